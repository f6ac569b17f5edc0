"""The suites for packs and extensions refuse bad documents, and services that don't end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from jackfield.api import DocumentPack, ExtensionType, HostContext
from jackfield.testing import ExtensionContract, PackContract

from tests.contracts.refusing import refusal

GOOD = "---\nkind: knowledge\nwhen-and-why-to-read: When it rains, read this because it says so.\n---\nTake a coat.\n"
_GO = asyncio.Event()
OPENED: list[int] = []


class Pack(PackContract):
    plugin = "rain"
    place: ClassVar[Path]

    def item(self) -> DocumentPack:
        return DocumentPack(name="rain", title="Rain", package="", folder=str(self.place))


def pack(folder: Path, files: Mapping[str, str | bytes]) -> type[Pack]:
    folder.mkdir()
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return type("Bad", (Pack,), {"place": folder})


@pytest.mark.parametrize(
    ("files", "id", "says"),
    [
        ({}, "PACK-01", "there is no *.md"),
        ({"a.md": GOOD, "run.sh": "true"}, "PACK-02", "no markdown file"),
        ({"a\u202e.md": GOOD}, "PACK-02", "no plain name"),
        ({"a.md": GOOD + "\u202e"}, "PACK-03", "U+202E"),
        ({"a.md": GOOD.encode() + b"\xff"}, "PACK-03", "not UTF-8"),
        ({"a.md": GOOD + "x" * 300_000}, "PACK-03", "bytes"),
        ({"a.md": GOOD.rpartition("---\n")[0] + "---\n"}, "PACK-03", "is empty"),
        ({"a.md": "Take a coat."}, "PACK-04", "no front matter"),
        ({"a.md": GOOD.replace("knowledge", "novel")}, "PACK-04", "kind is 'novel'"),
        ({"a.md": GOOD.replace("kind:", "why: x\nkind:")}, "PACK-04", "retired"),
        ({"a.md": GOOD + "[more](b.md)"}, "PACK-05", "b.md leads nowhere"),
        ({"a.md": GOOD + "[out](../../secret.md)"}, "PACK-05", "leads nowhere"),
        ({"a.md": GOOD + "[[rain/b]]"}, "PACK-05", "[[rain/b]] leads nowhere"),
        ({"a.md": GOOD, "a/INDEX.md": GOOD}, "PACK-06", "rain/a"),
    ],
)
async def test_a_bad_pack_is_refused(files: dict[str, str], id: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("x")
    assert says in await refusal(pack(tmp_path / "documents", files), id, tmp_path)


async def test_a_link_in_a_pack_is_refused(tmp_path: Path) -> None:
    bad = pack(tmp_path / "documents", {"a.md": GOOD})
    (tmp_path / "documents" / "b.md").symlink_to("/etc/passwd")
    assert "b.md is a link" in await refusal(bad, "PACK-02", tmp_path)


class Bent:
    """An extension with one bad habit."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.started = False

    async def start(self, host: HostContext) -> None:
        if self.fault == "once" and self.started:
            raise RuntimeError("I was started already")
        self.started = True
        if self.fault == "leaves_task":
            asyncio.get_running_loop().create_task(asyncio.sleep(60), name="a forgotten one")
        if self.fault == "leaks":
            OPENED.append(os.open("/dev/null", os.O_RDONLY))
        if self.fault == "module_loop":
            try:
                await asyncio.wait_for(_GO.wait(), 0.01)
            except TimeoutError:
                return
        try:
            await host.agent_groups()
        except Exception as problem:
            if self.fault == "accident":
                raise KeyError("groups") from problem

    async def stop(self) -> None:
        if self.fault == "hangs":
            await asyncio.Event().wait()
        if self.fault == "needs_start":
            assert self.started, "it was never started"


class Service(ExtensionContract):
    plugin = "service"
    stop_bound = 1.0
    fault: ClassVar[str] = ""

    def item(self) -> ExtensionType:
        return ExtensionType(name="service", title="Service", create=lambda settings: Bent(self.fault))


@pytest.mark.parametrize(
    ("fault", "id", "says"),
    [
        ("leaves_task", "EXT-02", "a forgotten one"),
        ("leaks", "EXT-02", "/dev/null"),
        ("hangs", "EXT-02", "vain for stop"),
        ("needs_start", "EXT-03", "never started"),
    ],
)
async def test_a_bent_extension_is_refused(
    fault: str, id: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jackfield.testing.waiting.BOUND", 3.0)
    try:
        assert says in await refusal(type("Bad", (Service,), {"fault": fault}), id, tmp_path)
    finally:
        while OPENED:
            os.close(OPENED.pop())


@pytest.mark.parametrize(
    ("fault", "id", "raises"),
    [("once", "EXT-05", RuntimeError), ("accident", "EXT-06", KeyError), ("module_loop", "EXT-04", RuntimeError)],
)
async def test_an_accident_of_an_extension_fails_the_check(
    fault: str, id: str, raises: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(raises):
        await refusal(type("Bad", (Service,), {"fault": fault}), id, tmp_path)


async def test_a_good_extension_passes(tmp_path: Path) -> None:
    good: Any = Service()
    await good.test_ext_02_it_leaves_nothing_behind()
    await good.test_ext_03_stopping_is_always_fine()
    await good.test_ext_07_cancelling_start_is_fine()
