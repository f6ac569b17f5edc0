"""IRC: control codes, one message a line, so that formatting is opened again on each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from jackfield_channel_kit.text.dialects.dialect import Dialect

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["Irc"]

BOLD, ITALIC, STRUCK, MONOSPACE = "\x02", "\x1d", "\x1e", "\x11"
_CODES = {"strong": BOLD, "em": ITALIC, "s": STRUCK}


class Irc(Dialect):
    separator = "\n"
    bullets = ("- ",)
    marks: ClassVar[dict[str, str]] = {
        f"{name}_{side}": code for name, code in _CODES.items() for side in ("open", "close")
    }

    def line_break(self, hard: bool, opened: dict[str, int]) -> str:
        codes = [_CODES[name] for name, depth in opened.items() if depth > 0 and name in _CODES]
        return "".join(reversed(codes)) + "\n" + "".join(codes)

    def heading(self, level: int, children: Sequence[Token]) -> str:
        content = self.inline([token for token in children if not token.type.startswith("strong_")])
        return "\n".join(BOLD + line + BOLD for line in content.split("\n"))

    def code(self, content: str) -> str:
        return MONOSPACE + content + MONOSPACE

    def code_block(self, code: str, language: str) -> str:
        return "\n".join(MONOSPACE + line + MONOSPACE for line in code.removesuffix("\n").split("\n"))

    def quote(self, blocks: list[str]) -> str:
        return "> " + "\n".join(blocks).replace("\n", "\n> ")
