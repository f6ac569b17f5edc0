"""Archives: what goes in comes out, and what nobody of ours made is refused before anything is touched."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import sqlite3
import stat
import tarfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jackfield.config import Home
from jackfield.errors import (
    Conflict,
    JackfieldError,
    NotFound,
    NotRolledBack,
    RolledBack,
    StoreNewer,
    UsageError,
    VerificationFailed,
)
from jackfield.host.archive import home, swapping
from jackfield.host.archive.gathering import Gatherer
from jackfield.host.archive.manifest import MANIFEST, Manifest, check_name, dumps, loads
from jackfield.host.archive.swapping import put_in_place
from jackfield.host.archive.unpacking import unpack, verify
from jackfield.host.archive.writing import ArchiveWriter, destination, held
from jackfield.store import Store

LIMIT = 1 << 30
EMPTY = Manifest(kind="home", app="1.0", schema=1, install="ins_x", made_at="2026-01-31T08:00:00+00:00", home="/h")


def made(tmp_path: Path, content: dict[str, bytes], manifest: Manifest = EMPTY) -> Path:
    """An archive of a tree, by our own hands."""
    tree, scratch = tmp_path / "tree", tmp_path / "scratch"
    scratch.mkdir()
    for name, data in content.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(data)
    path = tmp_path / "a.tar.gz"
    with destination(path) as out:
        archive = ArchiveWriter(out)
        gatherer = Gatherer(archive, scratch)
        for entry in sorted(tree.iterdir()):
            (gatherer.tree if entry.is_dir() else gatherer.file)(entry, entry.name)
        archive.finish(manifest)
    return path


def forged(path: Path, members: list[tuple[tarfile.TarInfo, bytes]], manifest: bytes | None, tail: bytes = b"") -> Path:
    """An archive by somebody else's hands."""
    with gzip.open(path, "wb") as zipped:
        with tarfile.open(fileobj=zipped, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for info, data in members:
                tar.addfile(info, io.BytesIO(data))
            if manifest is not None:
                info = tarfile.TarInfo(MANIFEST)
                info.size = len(manifest)
                tar.addfile(info, io.BytesIO(manifest))
        zipped.write(tail)
    return path


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data)
    for field, value in more.items():
        setattr(info, field, value)
    return info, data


def listing(*members: tuple[tarfile.TarInfo, bytes], **changes: Any) -> bytes:
    """A manifest that fits the members, but for the changes."""
    body = json.loads(dumps(EMPTY))
    body["files"] = [
        {"path": info.name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "mode": 0o600}
        for info, data in members
        if not info.isdir()
    ]
    body["folders"] = [info.name for info, _ in members if info.isdir()]
    return json.dumps(body | changes).encode()


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    deep = "groups/" + "/".join(["d" * 60] * 5) + "/ünï\u202e"
    content = {
        "jackfield.toml": b"[host]\n", "groups/a/x": os.urandom(9 << 20), "groups/a/empty": b"", deep: b"long name",
        "state.db": b"s" * 70_000,
    }  # fmt: skip
    (tmp_path / "tree/groups/a").mkdir(parents=True)
    path = made(tmp_path, content)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (tmp_path / "tree/groups/a/x").touch()
    manifest = verify(path, "home", limit=LIMIT)
    target = tmp_path / "out"
    target.mkdir()
    unpack(path, manifest, target)
    assert {name: (target / name).read_bytes() for name in content} == content
    assert {entry.path: entry.size for entry in manifest.files} == {name: len(data) for name, data in content.items()}
    with tarfile.open(path) as tar:  # anybody can read it
        assert set(tar.getnames()) >= {*content, MANIFEST}


def test_links_sockets_and_second_names_stay_outside(tmp_path: Path) -> None:
    """C065: some of a home is a sandbox's to arrange."""
    outside = tmp_path / "outside"
    outside.write_text("not yours")
    inside = tmp_path / "tree/groups"
    inside.mkdir(parents=True)
    (inside / "link").symlink_to(outside)
    (inside / "folder").symlink_to(tmp_path)
    os.link(outside, inside / "second")
    os.mkfifo(inside / "pipe")
    (inside / "new\nline").write_text("x")
    (inside / "plain").write_text("fine")
    manifest = verify(made(tmp_path, {}), "home", limit=LIMIT)
    assert [entry.path for entry in manifest.files] == ["groups/plain"]
    assert {one.path.removeprefix("groups/"): one.why for one in manifest.left_out} == {
        "link": "a link", "folder": "a link", "second": "it has a second name", "pipe": "a named pipe",
        "new\nline": "its name can't be in an archive",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "/etc/x", "../x", "groups/../../x", "groups//x", "groups/./x", "", "groups/a\nb", "groups/" + "x" * 300,
        "host.sock", "host.lock", "logs/x", "MANIFEST.json/x", "groups/" * 200 + "x",
    ],
)  # fmt: skip
def test_names_that_no_backup_has_are_refused(name: str) -> None:
    with pytest.raises(VerificationFailed):
        check_name(name, "home")


@pytest.mark.parametrize(
    "bad",
    [
        member("groups/x", kind=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("groups/x", kind=tarfile.LNKTYPE, linkname="state.db"),
        member("groups/x", kind=tarfile.CHRTYPE),
        member("groups/x", kind=tarfile.BLKTYPE),
        member("groups/x", kind=tarfile.FIFOTYPE),
        member("groups/x", kind=b"S"),
        member("../x", b"x"),
        member("/tmp/x", b"x"),
        member("host.sock", b"x"),
    ],
    ids=lambda one: f"{one[0].name}-{one[0].type!r}",
)
def test_hostile_members_are_refused(tmp_path: Path, bad: tuple[tarfile.TarInfo, bytes]) -> None:
    path = forged(tmp_path / "f.tar.gz", [bad], listing(bad))
    with pytest.raises(VerificationFailed):
        verify(path, "home", limit=LIMIT)


GOOD = member("state.db", b"data")


@pytest.mark.parametrize(
    ("members", "manifest"),
    [
        ([GOOD], None),
        ([], listing(GOOD)),
        ([GOOD], listing()),
        ([GOOD, GOOD], listing(GOOD)),
        ([GOOD], listing(GOOD, member("state.db", b"data"))),
        ([member("state.db", b"dato")], listing(GOOD)),
        ([member("state.db", b"longer")], listing(GOOD)),
        ([GOOD, member("groups", kind=tarfile.DIRTYPE)], listing(GOOD)),
        ([GOOD], listing(GOOD, member("groups", kind=tarfile.DIRTYPE))),
        ([GOOD], b"no json"),
        ([GOOD], b"[" * 100_000),
        ([GOOD], listing(GOOD, jackfield="something")),
        ([GOOD], listing(GOOD, format="1")),
        ([GOOD], listing(GOOD, files=[{"path": "state.db"}])),
        ([GOOD], listing(GOOD, kind="group")),
        ([GOOD], listing(GOOD, fresh_outboxes=["../../etc"])),
        ([GOOD], listing(GOOD, fresh_outboxes=["sessions/a/b"])),
        ([GOOD, member("groups"), member("groups/x")], listing(GOOD, member("groups"), member("groups/x"))),
    ],
)
def test_an_archive_that_is_not_what_it_says_is_refused(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]], manifest: bytes | None
) -> None:
    path = forged(tmp_path / "f.tar.gz", members, manifest)
    with pytest.raises(VerificationFailed) as caught:
        verify(path, "home", limit=LIMIT)
    assert caught.value.exit_code == 7


@pytest.mark.parametrize("changes", [{"format": 2}, {"format": 2, "files": "of another shape"}, {"schema": 10_000}])
def test_an_archive_of_a_newer_version_is_refused_as_such(tmp_path: Path, changes: dict[str, Any]) -> None:
    """C202."""
    path = forged(tmp_path / "f.tar.gz", [GOOD], listing(GOOD, **changes))
    with pytest.raises(StoreNewer, match=r"newer|format 2"):
        verify(path, "home", limit=LIMIT)


def test_a_missing_file_and_one_of_another_kind_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        verify(tmp_path / "none", "home", limit=LIMIT)
    (tmp_path / "text").write_text("hello, this is no archive at all")
    with pytest.raises(VerificationFailed, match="none"):
        verify(tmp_path / "text", "home", limit=LIMIT)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="no regular file"):
        verify(tmp_path / "pipe", "home", limit=LIMIT)


def _other_database() -> bytes:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE deliveries (state)")
        return db.serialize()


@pytest.mark.parametrize("store", [None, b"", b"no database at all" * 100, _other_database()])
def test_a_backup_without_a_store_of_ours_is_refused_and_nothing_is_touched(
    tmp_path: Path, store: bytes | None
) -> None:
    """Its hashes are right, so this shows only when it is prepared for the host."""
    members = [] if store is None else [member("state.db", store)]
    path = forged(tmp_path / "f.tar.gz", members, listing(*members))
    with pytest.raises(VerificationFailed, match=r"state\.db"):
        home.restore(path, Home(tmp_path / "new" / "home"))
    assert list((tmp_path / "new").iterdir()) == []


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return made(tmp_path_factory.mktemp("whole"), {"state.db": b"0123456789" * 50, "groups/a/b": b"text"}).read_bytes()


def test_a_truncated_archive_is_refused_wherever_it_was_cut(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "cut.tar.gz"
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(VerificationFailed):
            verify(path, "home", limit=LIMIT)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(st.data())
def test_a_flipped_byte_is_noticed_or_changes_nothing(tmp_path: Path, whole: bytes, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(whole) - 1))
    broken = bytearray(whole)
    broken[position] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "broken.tar.gz"
    path.write_bytes(bytes(broken))
    sound = verify_or_none(path)
    if sound is not None:  # a compression has bits that nobody reads, like the time in its header
        assert gzip.decompress(bytes(broken)) == gzip.decompress(whole)
        assert {entry.path for entry in sound.files} == {"state.db", "groups/a/b"}


def verify_or_none(path: Path) -> Manifest | None:
    try:
        return verify(path, "home", limit=LIMIT)
    except (VerificationFailed, StoreNewer):
        return None


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=3000))
def test_garbage_behind_a_sound_compression_never_raises_anything_else(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        path.write_bytes(gzip.compress(data))
        assert verify_or_none(path) is None


def test_a_bomb_is_refused_at_what_there_is_room_for(tmp_path: Path) -> None:
    bomb = member("groups/x", b"\0" * (8 << 20))
    path = forged(tmp_path / "f.tar.gz", [bomb], listing(bomb))
    assert path.stat().st_size < 20_000
    with pytest.raises(VerificationFailed, match="room"):
        verify(path, "home", limit=4 << 20)
    header = bytearray(gzip.decompress(path.read_bytes())[:512])
    header[124:136] = b"77777777777\0"  # claims 8 GiB, holds nothing
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
    path.write_bytes(gzip.compress(bytes(header)))
    with pytest.raises(VerificationFailed, match="room"):
        verify(path, "home", limit=LIMIT)


def test_a_description_of_a_gigabyte_is_not_read(tmp_path: Path) -> None:
    header = bytearray(member("x", b"")[0].tobuf(tarfile.USTAR_FORMAT))
    header[156:157], header[124:136] = b"x", b"07777777777\0"
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
    path = tmp_path / "f.tar.gz"
    path.write_bytes(gzip.compress(bytes(header) + b"\0" * 4096))
    with pytest.raises(VerificationFailed, match="describes"):
        verify(path, "home", limit=LIMIT)


def test_something_behind_the_end_is_refused(tmp_path: Path) -> None:
    path = forged(tmp_path / "f.tar.gz", [GOOD], listing(GOOD), tail=b"more")
    with pytest.raises(VerificationFailed, match="follows"):
        verify(path, "home", limit=LIMIT)
    path = forged(tmp_path / "g.tar.gz", [GOOD], listing(GOOD), tail=b"\0" * (4 << 20))
    with pytest.raises(VerificationFailed, match="follows"):
        verify(path, "home", limit=LIMIT)


def test_a_file_that_is_exchanged_between_the_check_and_the_unpacking_is_refused(tmp_path: Path) -> None:
    path = forged(tmp_path / "f.tar.gz", [GOOD], listing(GOOD))
    manifest = verify(path, "home", limit=LIMIT)
    other = member("state.db", b"evil")
    forged(path, [other], listing(other))
    target = tmp_path / "out"
    target.mkdir()
    with pytest.raises(VerificationFailed, match="meanwhile"):
        unpack(path, manifest, target)


def test_a_manifest_survives_its_own_text() -> None:
    full = replace(EMPTY, fresh_outboxes=("sessions/a/b",), details={"open_sends": {"sending": 2}}, secrets=True)
    assert loads(dumps(full), newest_schema=1) == full


# ---- putting things in place


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_takes_anothers_place_and_the_old_one_is_kept(
    tmp_path: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchange:
        monkeypatch.setattr(swapping, "_exchanged", lambda *paths: False)
    new, place, aside = tmp_path / "new", tmp_path / "home", tmp_path / "aside"
    for folder, text in ((new, "new"), (place, "old")):
        folder.mkdir()
        (folder / "x").write_text(text)
    put_in_place(new, place, aside)
    assert ((place / "x").read_text(), (aside / "x").read_text(), new.exists()) == ("new", "old", False)


def test_a_folder_that_filled_up_meanwhile_is_left_alone(tmp_path: Path) -> None:
    new, place = tmp_path / "new", tmp_path / "home"
    new.mkdir()
    place.mkdir()
    (place / "x").write_text("somebody's")
    with pytest.raises(Conflict):
        put_in_place(new, place, None)
    assert (place / "x").read_text() == "somebody's"


def test_when_the_exchange_fails_everything_is_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swapping, "_exchanged", lambda *paths: False)
    new, place, aside = tmp_path / "new", tmp_path / "home", tmp_path / "aside"
    new.mkdir()
    place.mkdir()
    real = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self == new:
            raise PermissionError(1, "no")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(PermissionError):
        put_in_place(new, place, aside)
    assert place.is_dir()
    assert not aside.exists()


def test_what_a_killed_command_left_goes_with_the_next_one_and_a_live_ones_stays(tmp_path: Path) -> None:
    (tmp_path / ".x-dead").mkdir()
    (tmp_path / ".x-dead/file").write_text("x")
    (tmp_path / ".a.tar.gz.dead.part").write_text("x")
    with held(tmp_path, ".x-") as first, held(tmp_path, ".x-") as second:
        assert {path.name for path in tmp_path.glob(".x-*")} == {first.name, second.name}
    assert not list(tmp_path.glob(".x-*"))
    with destination(tmp_path / "a.tar.gz") as one, destination(tmp_path / "a.tar.gz") as two:
        one.write(b"1")
        two.write(b"2")
        assert len(list(tmp_path.glob(".a.tar.gz.*.part"))) == 2
    assert (tmp_path / "a.tar.gz").read_bytes() == b"1"
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("spoil", [lambda path: path.mkdir(), lambda path: path.parent.rmdir()])
def test_a_place_where_nothing_can_be_written_is_told(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    place = tmp_path / "there" / "x.tar.gz"
    place.parent.mkdir()
    spoil(place)
    with pytest.raises((RolledBack, Conflict)), destination(place):
        pass


@pytest.mark.parametrize("kind", ["file", "link", "fifo", "folder"])
def test_nothing_but_an_older_archive_is_replaced(tmp_path: Path, kind: str) -> None:
    """A slip of the keyboard must not cost a file, a device or what a link leads to."""
    place, other = tmp_path / "place", tmp_path / "other"
    match kind:
        case "file":
            place.write_text("precious")
        case "link":
            other.write_bytes(gzip.compress(b"precious"))
            place.symlink_to(other)
        case "fifo":
            os.mkfifo(place)
        case "folder":
            place.mkdir()
    before = place.lstat()
    with pytest.raises(Conflict, match="is no archive"), destination(place) as out:
        out.write(b"new")
    assert place.lstat() == before
    assert {path.name for path in tmp_path.iterdir()} <= {"place", "other"}


@pytest.mark.parametrize("old", [b"", gzip.compress(b"last week's", mtime=0)], ids=["empty", "archive"])
def test_an_older_archive_and_an_empty_file_are_replaced(tmp_path: Path, old: bytes) -> None:
    place = tmp_path / "weekly.tar.gz"
    place.write_bytes(old)
    with destination(place) as out:
        out.write(b"new")
    assert place.read_bytes() == b"new"


def test_a_failure_in_the_middle_leaves_the_file_of_before(tmp_path: Path) -> None:
    """C213."""
    place = tmp_path / "x.tar.gz"
    place.write_bytes(gzip.compress(b"before"))
    with pytest.raises(JackfieldError, match="full"), destination(place) as out:
        out.write(b"half")
        raise JackfieldError("full")
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar.gz"]
    assert gzip.decompress(place.read_bytes()) == b"before"


# ---- a restore that fails on the way


@pytest.fixture
async def backup(tmp_path: Path) -> Path:
    store = Store(tmp_path / "tree" / "state.db")
    await store.open()
    await store.close()
    return made(tmp_path, {"jackfield.toml": b"[host]\n"})


async def test_a_restore_that_fails_on_the_way_says_whether_all_is_as_it_was(
    tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "home"
    place.mkdir()
    (place / "x").write_text("old")

    def fail(new: Path, home: Path, aside: Path) -> None:
        raise PermissionError(1, "not permitted")

    def fail_badly(new: Path, home: Path, aside: Path) -> None:
        home.rename(aside)
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(home, "put_in_place", fail)
    with pytest.raises(RolledBack) as first:
        home.restore(backup, Home(place), force=True)
    assert first.value.exit_code == 5
    assert (place / "x").read_text() == "old"
    monkeypatch.setattr(home, "put_in_place", fail_badly)
    with pytest.raises(NotRolledBack) as second:
        home.restore(backup, Home(place), force=True)
    assert second.value.exit_code == 6
    (aside,) = tmp_path.glob("home.before-restore-*")
    assert str(aside) in str(second.value.fix)
    assert (aside / "x").read_text() == "old"
    monkeypatch.undo()
    done = home.restore(backup, Home(place))
    assert done.repaired is not None
    assert (done.repaired.sessions, done.repaired.maybe_sent, done.aside) == (0, 0, None)
    assert Home(place).initialised
