"""CommonMark again, normalised: what would mean something else than it says is escaped, raw HTML is text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jackfield_channel_kit.text.dialects.dialect import Dialect, defused
from jackfield_channel_kit.text.markdown import url_end

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["CommonMark", "Gfm", "code_span", "fenced"]

_SPECIAL = re.compile(
    r"""(?i)[\\`\[\]<~]|\*(?!\s)|(?<!\s)\*|(?<![^\W_])_|_(?![^\W_])|&(?=\#?\w{1,32};)|!$|(?:(?<=http)|(?<=https)):(?=//)"""
)
_LINE_START = re.compile(r"^([ \t]*)([#>=|:-]|[*+](?=\s|$)|\d{1,9}(?=[.)](?:\s|$)))", re.M)
_TICKS = re.compile(r"`+")
_FENCES = re.compile(r"^[ \t]*(`{3,})", re.M)
_CLOSING = re.compile(r"(?:^|[ \t])#+$")
"""What ends a heading and is no part of it."""
_AWKWARD = re.compile(r"[\s()<>\\]")
_OTHER = {"-": "*", "*": "-", "+": "-", ".": ")", ")": "."}
"""Another marker for a list."""


def code_span(content: str) -> str:
    """A code span, with as many back-ticks as its content needs."""
    runs = {len(run) for run in _TICKS.findall(content)}
    size = 1
    while size in runs:
        size += 1
    padded = content[:1] == "`" or content[-1:] == "`"
    padded = padded or (content[:1] == content[-1:] == " " and content.strip() != "")
    space = " " if padded else ""
    return "`" * size + space + content + space + "`" * size


def fenced(code: str, info: str, marker: str = "```") -> str:
    """A fenced block; the fence is longer when the code holds one."""
    if code and not code.endswith("\n"):
        code += "\n"
    if "`" in info:
        marker = "~~~"  # back-ticks can't have one in their info string
    if marker in code:
        longest = max(len(run) for run in re.findall(re.escape(marker[0]) + "{3,}", code))
        marker = marker[0] * (longest + 1)
    return f"{marker}{info}\n{code}{marker}"


class CommonMark(Dialect):
    rule = "___"
    indents_code = True

    def text(self, content: str) -> str:
        return defused(self.escaped(content))

    @staticmethod
    def escaped(content: str) -> str:
        """Running text that reads as it stands; the start of a line is `paragraph`'s matter."""
        return _SPECIAL.sub(r"\\\g<0>", content)

    @staticmethod
    def destination(href: str) -> str:
        """A link's target as it stands between the parentheses."""
        return f"<{href}>" if _AWKWARD.search(href) else href

    def inline(self, children: Sequence[Token]) -> str:
        for opened, closed, after in zip(children, children[2:], children[3:], strict=False):
            if opened.markup == closed.markup == "bare" and closed.type == "link_close" and after.type == "text":
                href = str(opened.attrs["href"])
                following = href + self.text(after.content)
                if url_end(following, href.index("://") + 3, len(following)) != len(href):
                    opened.markup = closed.markup = "autolink"  # between < and >, where it ends without doubt
        return super().inline(children)

    def mark(self, kind: str, token: Token, children: Sequence[Token], index: int) -> str:
        return token.markup

    def line_break(self, hard: bool, opened: dict[str, int]) -> str:
        return "\\\n" if hard else "\n"

    def paragraph(self, content: str, tight: bool) -> str:
        return _LINE_START.sub(_escaped_start, content).strip(" \t")

    def heading(self, level: int, children: Sequence[Token]) -> str:
        content = " ".join(self.inline([token for token in children if token.type != "hardbreak"]).split("\n"))
        return "#" * level + " " + (content[:-1] + "\\#" if _CLOSING.search(content) else content)

    def _list(self, tokens: Sequence[Token], at: int, end: int, depth: int, indent: str) -> str:
        """A list behind a list keeps apart from it by its marker: what kept them apart, a definition, is gone."""
        before, opened = tokens[at - 1] if at else None, tokens[at]
        if before is not None and before.type == tokens[end].type and before.markup == opened.markup:
            opened.markup = tokens[end].markup = _OTHER[opened.markup]
        return super()._list(tokens, at, end, depth, indent)

    def code(self, content: str) -> str:
        return code_span(content)

    def code_block(self, code: str, language: str) -> str:
        return fenced(code, language)

    def bullet(self, depth: int, markup: str) -> str:
        return markup + " "

    def number(self, number: int, markup: str) -> str:
        return f"{number}{markup} "

    def table(self, rows: list[list[Sequence[Token]]], alignments: list[str]) -> str:
        lines = ["| " + " | ".join(self.inline(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
        shapes = {"left": ":--", "right": "--:", "center": ":-:"}
        lines.insert(1, "|" + "|".join(shapes.get(alignment, "---") for alignment in alignments) + "|")
        return "\n".join(lines)

    def link(self, label: str, href: str, token: Token) -> str:
        if token.markup == "bare":
            return href
        if token.markup == "autolink" and not _AWKWARD.search(href):
            return f"<{href.removeprefix('mailto:')}>"
        if label == self.text(href) and not _AWKWARD.search(href):
            return f"<{href}>"
        return f"[{label}]({self.destination(href)})"

    def image(self, token: Token) -> str:
        return "!" + super().image(token) if self.safe_image(token) else super().image(token)

    @staticmethod
    def safe_image(token: Token) -> bool:
        """Whether readers may be made to load it."""
        return str(token.attrs.get("src", "")).lower().startswith(("http://", "https://"))


def _escaped_start(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}\\" if found[2][0].isdigit() else f"{found[1]}\\{found[2]}"


class Gfm(CommonMark):
    """With task lists."""

    def paragraph(self, content: str, tight: bool) -> str:
        if content.startswith(("\\[ \\] ", "\\[x\\] ", "\\[X\\] ")):
            return f"[{content[2]}] {super().paragraph(content[6:], tight)}"
        return super().paragraph(content, tight)
