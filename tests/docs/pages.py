"""The documentation as data: pages, headings, links and what is fenced."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

__all__ = ["ROOT", "Fence", "Page", "all_pages", "page", "script"]

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_NAMED = re.compile(r"^`([\w./-]+)`:\n\n```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fence:
    """A block of code, and its language."""

    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def prose(self) -> str:
        """Without what is fenced."""
        return _FENCE.sub("", self.text)

    @property
    def headings(self) -> list[str]:
        """As they are written, with their backticks."""
        return _HEADING.findall(self.prose)

    @property
    def anchors(self) -> set[str]:
        anchor = script("docs").anchor
        return {anchor(heading) for heading in self.headings}

    @property
    def links(self) -> list[str]:
        return _LINK.findall(self.prose)

    def fences(self, language: str) -> list[str]:
        return [text for found, text in _FENCE.findall(self.text) if found == language]

    @property
    def files(self) -> dict[str, str]:
        """Samples that are whole files: a line with the path in backticks and a colon, then the block."""
        return dict(_NAMED.findall(self.text))


def page(name: str) -> Page:
    return Page(ROOT / name)


def all_pages() -> list[Page]:
    """Everything that people read, of plugins too."""
    found = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "core" / "README.md",
        *ROOT.glob("plugins/*/*/README.md"),
    ]
    return [Page(path) for path in sorted(found)]


_SCRIPTS: dict[str, ModuleType] = {}


def script(name: str) -> ModuleType:
    """A module of `scripts/`, which is no package."""
    if name not in _SCRIPTS:
        spec = importlib.util.spec_from_file_location(f"{name}_script", ROOT / "scripts" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        _SCRIPTS[name] = module
    return _SCRIPTS[name]
