"""Signal: plain text, and ranges of it with a style, counted in UTF-16 units.

Inside, noncharacters mark where a style begins and ends; `clean` has taken them out of what people wrote.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from jackfield_channel_kit.text.dialects.plain import Plain

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["Signal", "ranges"]

_STYLES = ("BOLD", "ITALIC", "STRIKETHROUGH", "MONOSPACE")
_OPEN = {style: chr(0xFDD0 + 2 * index) for index, style in enumerate(_STYLES)}
_CLOSE = {style: chr(0xFDD1 + 2 * index) for index, style in enumerate(_STYLES)}
_MARK = re.compile("[\ufdd0-\ufdd7]")
_NAMES = {"strong": "BOLD", "em": "ITALIC", "s": "STRIKETHROUGH"}


def ranges(marked: str) -> tuple[str, list[tuple[int, int, str]]]:
    """The plain text of a marked one, and (start, length, style) in UTF-16 units, by start."""
    out: list[str] = []
    found: list[tuple[int, int, str]] = []
    begun: dict[str, int] = {}
    at = size = 0
    for mark in _MARK.finditer(marked):
        piece = marked[at : mark.start()]
        out.append(piece)
        size += len(piece.encode("utf-16-le")) // 2
        at = mark.end()
        number = ord(mark[0]) - 0xFDD0
        style = _STYLES[number // 2]
        if number % 2 == 0:
            begun.setdefault(style, size)
        elif style in begun:
            start = begun.pop(style)
            if size > start:
                found.append((start, size - start, style))
    out.append(marked[at:])
    return "".join(out), sorted(found)


class Signal(Plain):
    marks: ClassVar[dict[str, str]] = {
        **{f"{name}_open": _OPEN[style] for name, style in _NAMES.items()},
        **{f"{name}_close": _CLOSE[style] for name, style in _NAMES.items()},
    }

    def heading(self, level: int, children: Sequence[Token]) -> str:
        return _OPEN["BOLD"] + super().heading(level, children) + _CLOSE["BOLD"]

    def code(self, content: str) -> str:
        return _OPEN["MONOSPACE"] + content + _CLOSE["MONOSPACE"]

    def code_block(self, code: str, language: str) -> str:
        return self.code(super().code_block(code, language))
