"""The contract of document packs: plain markdown files that can be read before anything is run (canvas.md 2.7)."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from jackfield.api import DocumentPack
from jackfield.mailbox import safe_name
from jackfield.plugins.kinds import Kind
from jackfield.testing.contracts.checks import check, plain_text
from jackfield.testing.contracts.plugin import PluginContract

__all__ = ["PackContract", "front_matter"]

_DOCUMENT_LIMIT = 262_144
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
_NAMED = re.compile(r"\[\[([^\]\n|#]+)")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_KEY = re.compile(r"([A-Za-z][\w-]*):(?:[ \t]+(.*))?")
_KINDS = ("knowledge", "preference")
_RETIRED = ("when", "why")


class PackContract(PluginContract):
    """For a document pack: `class TestInsights(PackContract): plugin = "insights"`."""

    kind: ClassVar[Kind] = Kind.PACK

    def folder(self) -> Path:
        """Where its documents lie, found without importing the package."""
        item = self.item()
        assert isinstance(item, DocumentPack), f"register_packs gave {item!r}"
        if not item.package:
            assert Path(item.folder).is_absolute(), f"{item.folder!r} is no absolute path, and there is no package"
            return Path(item.folder)
        spec = importlib.util.find_spec(item.package)
        assert spec is not None and spec.submodule_search_locations, f"{item.package!r} is no importable package"
        return Path(spec.submodule_search_locations[0]) / item.folder

    def documents(self) -> list[Path]:
        return sorted(self.folder().rglob("*.md"))

    def _texts(self) -> Iterator[tuple[str, str]]:
        for path in self.documents():
            yield str(path.relative_to(self.folder())), path.read_text(encoding="utf-8")

    @check("PACK-01")
    def test_pack_01_its_folder_is_there(self) -> None:
        """The pack has the entry point's name, a title, and a folder with at least one document inside its package."""
        item = self.item()
        assert isinstance(item, DocumentPack), f"register_packs gave {item!r}"
        assert item.name == self.plugin
        assert item.title.strip(), "title is empty"
        folder = self.folder()
        assert folder.is_dir(), f"there is no folder {folder}; is it part of the wheel?"
        if item.package:
            assert folder.resolve().is_relative_to(folder.parents[len(Path(item.folder).parts) - 1].resolve())
            assert ".." not in Path(item.folder).parts, f"folder = {item.folder!r} leaves the package"
        assert self.documents(), f"there is no *.md in {folder}"

    @check("PACK-02")
    def test_pack_02_the_tree_is_plain(self) -> None:
        """Files have plain names, nothing is a link, and nothing but markdown lies in the folder."""
        for path in self.folder().rglob("*"):
            place = str(path.relative_to(self.folder()))
            assert not path.is_symlink(), f"{place} is a link"
            safe_name(path.name)
            assert not plain_text(path.name) and path.name == path.name.strip(), f"{place!r} is no plain name"
            assert path.is_dir() or path.suffix == ".md", f"{place} is no markdown file"

    @check("PACK-03")
    def test_pack_03_documents_are_readable_text(self) -> None:
        """Each document is UTF-8, has at most 256 KiB, a body, and no characters that can't be seen."""
        for path in self.documents():
            place, data = path.relative_to(self.folder()), path.read_bytes()
            assert len(data) <= _DOCUMENT_LIMIT, f"{place} has {len(data)} bytes"
            try:
                text = data.decode()
            except UnicodeDecodeError as problem:
                raise AssertionError(f"{place} is not UTF-8: {problem}") from None
            assert not plain_text(text), f"{place} has hidden characters: {plain_text(text)}"
            assert front_matter(text)[1].strip(), f"{place} is empty"

    @check("PACK-04")
    def test_pack_04_front_matter_tells_when_to_read(self) -> None:
        """Each document's front matter has its kind, and in one line when and why to read it; no retired key."""
        for place, text in self._texts():
            found, _ = front_matter(text)
            assert found, f"{place} has no front matter: it begins with a line '---', keys, and '---'"
            assert found.get("kind") in _KINDS, f"{place}: kind is {found.get('kind')!r}, allowed are {_KINDS}"
            assert found.get("when-and-why-to-read"), f"{place}: when-and-why-to-read is missing"
            retired = [key for key in _RETIRED if key in found]
            assert not retired, f"{place}: {retired} are retired keys"

    @check("PACK-05")
    def test_pack_05_links_lead_somewhere(self) -> None:
        """A relative link, and a [[name]] that begins with the pack's, lead to a document of the pack."""
        folder = self.folder()
        names = {self._name(path) for path in self.documents()}
        for path in self.documents():
            place = path.relative_to(folder)
            text = _FENCE.sub("", front_matter(path.read_text(encoding="utf-8"))[1])
            for target in _LINK.findall(text):
                if "://" in target or target.startswith(("#", "mailto:")):
                    continue
                there = (path.parent / target.partition("#")[0]).resolve()
                assert there.is_file() and there.is_relative_to(folder.resolve()), f"{place}: {target} leads nowhere"
            for name in (found.strip() for found in _NAMED.findall(text)):
                if name.split("/")[0] == self.plugin:
                    assert name in names, f"{place}: [[{name}]] leads nowhere; the pack has {', '.join(sorted(names))}"

    @check("PACK-06")
    def test_pack_06_no_two_documents_share_a_name(self) -> None:
        """`dir.md` and `dir/INDEX.md` would be one document, and so would names that differ in case only."""
        names = [self._name(path).lower() for path in self.documents()]
        twice = sorted({name for name in names if names.count(name) > 1})
        assert not twice, f"two documents are called {twice}"

    def _name(self, path: Path) -> str:
        """As agents see it: `pack/path`, where `INDEX` is not part of the name."""
        parts = path.relative_to(self.folder()).with_suffix("").parts
        return "/".join((self.plugin, *(parts[:-1] if parts[-1] == "INDEX" else parts)))


def front_matter(text: str) -> tuple[dict[str, str], str]:
    """The keys on top with their one-line values, and the body.  Without front matter the first is empty."""
    if not text.startswith("---\n"):
        return {}, text
    head, found, body = text[4:].partition("\n---\n")
    if not found:
        return {}, text
    keys = (_KEY.fullmatch(line) for line in head.splitlines())
    return {key[1]: (key[2] or "").strip().strip("\"'") for key in keys if key}, body
