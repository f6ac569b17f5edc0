"""Discord's Markdown: close to CommonMark, without tables, images, rules and entities; `||` hides a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jackfield_channel_kit.text.dialects.commonmark import CommonMark, fenced
from jackfield_channel_kit.text.dialects.dialect import ZERO_WIDTH_SPACE, Dialect, defused

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["Discord"]

_SPECIAL = re.compile(r"[\\`\[\]<~]|\*(?!\s)|(?<!\s)\*|(?<![^\W_])_|_(?![^\W_])|\|(?=\|)|(?<=\|)\|")


class Discord(CommonMark):
    rule = Dialect.rule
    indents_code = False

    def text(self, content: str) -> str:
        return defused(_SPECIAL.sub(r"\\\g<0>", content))

    def mark(self, kind: str, token: Token, children: Sequence[Token], index: int) -> str:
        return "*" if token.markup == "_" else "**" if token.markup == "__" else token.markup

    def line_break(self, hard: bool, opened: dict[str, int]) -> str:
        return "\n"

    def heading(self, level: int, children: Sequence[Token]) -> str:
        if level <= 3:
            return super().heading(level, children)
        return f"**{self.inline([token for token in children if not token.type.startswith('strong_')])}**"

    def bullet(self, depth: int, markup: str) -> str:
        return "- "

    def number(self, number: int, markup: str) -> str:
        return f"{number}. "

    def code_block(self, code: str, language: str) -> str:
        known = "" if "`" in language else language  # such a one needs a fence of tildes, which is none there
        return fenced(code.replace("```", "`" + ZERO_WIDTH_SPACE + "``"), known)

    def table(self, rows: list[list[Sequence[Token]]], alignments: list[str]) -> str:
        return Dialect.table(self, rows, alignments)

    @staticmethod
    def safe_image(token: Token) -> bool:
        return False
