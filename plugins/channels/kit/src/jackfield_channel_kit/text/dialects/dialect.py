"""How a text is walked: blocks, lists in lists, inline marks.  A dialect says what each of them looks like.

A block is rendered to lines that all begin with `indent`; only preformatted text stays at the left edge, because
whoever copies it wants what the agent wrote (C035).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from jackfield_channel_kit.text.markdown import safe_target

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["AS_WRITTEN", "ZERO_WIDTH_SPACE", "Dialect", "aligned", "closing", "defused", "shown", "table_cells"]

ZERO_WIDTH_SPACE = "\u200b"
_EVERYONE = re.compile(r"(?<![\w.])@(?=everyone|here|(?:channel|room|all)(?![^\W_]))", re.I)
_LINE_ENDS = re.compile(r"[\r\n]+")
AS_WRITTEN = ("bare", "autolink")
"""The markup of links whose target is their label."""
_WIDEST_COLUMN = 40
"""Characters; a column is padded to no more, so that one long cell does not blow up all rows."""


def defused(text: str) -> str:
    """The text with mentions of everyone that no platform takes for one."""
    return _EVERYONE.sub("@" + ZERO_WIDTH_SPACE, text) if "@" in text else text


class Dialect:
    """Plain text; each dialect overrides what its platform can show."""

    separator: ClassVar[str] = "\n\n"
    """Between two blocks."""
    marks: ClassVar[dict[str, str]] = {}
    """What opens and closes inline formatting, by markdown-it's token types (`strong_open`, ...)."""
    bullets: ClassVar[tuple[str, ...]] = ("• ", "◦ ", "▪ ")
    rule: ClassVar[str] = "———"
    indents_code: ClassVar[bool] = False
    marks_in_links: ClassVar[bool] = True

    # ---- blocks

    def blocks(self, tokens: Sequence[Token]) -> list[str]:
        """The top-level blocks, each rendered, in order."""
        return self._blocks(tokens, 0, len(tokens), 0, "")

    def _blocks(self, tokens: Sequence[Token], at: int, end: int, depth: int, indent: str) -> list[str]:
        out: list[str] = []
        while at < end:
            rendered, at = self._block(tokens, at, depth, indent)
            out.append(rendered)
        return out

    def _block(self, tokens: Sequence[Token], at: int, depth: int, indent: str) -> tuple[str, int]:
        token = tokens[at]
        kind = token.type
        if kind == "paragraph_open":
            content = self.paragraph(self.inline(tokens[at + 1].children or ()), token.hidden)
            return self._indented(content, indent), at + 3
        if kind == "heading_open":
            return self._indented(self.heading(int(token.tag[1]), tokens[at + 1].children or ()), indent), at + 3
        if kind in ("fence", "code_block"):
            content = self.code_block(token.content, token.info.split(maxsplit=1)[0] if token.info.strip() else "")
            return self._indented(content, indent) if self.indents_code else content, at + 1
        if kind == "hr":
            return indent + self.rule, at + 1
        end = closing(tokens, at)
        if kind in ("bullet_list_open", "ordered_list_open"):
            return self._list(tokens, at, end, depth, indent), end + 1
        if kind == "blockquote_open":
            return self._indented(self.quote(self._blocks(tokens, at + 1, end, depth, "")), indent), end + 1
        if kind == "table_open":
            content = self.table(*table_cells(tokens, at, end))
            return self._indented(content, indent) if self.indents_code else content, end + 1
        raise AssertionError(f"no block begins with {kind}")

    @staticmethod
    def _indented(text: str, indent: str) -> str:
        return indent + text.replace("\n", "\n" + indent) if indent else text

    def _list(self, tokens: Sequence[Token], at: int, end: int, depth: int, indent: str) -> str:
        token = tokens[at]
        ordered = token.type == "ordered_list_open"
        number = int(token.attrs.get("start", 1)) if ordered else 0
        loose = False
        items: list[tuple[str, list[str]]] = []
        at += 1
        while at < end:
            close = closing(tokens, at)
            marker = self.number(number, token.markup) if ordered else self.bullet(depth, token.markup)
            inner = indent + " " * len(marker)
            children = self._blocks(tokens, at + 1, close, depth + 1, inner)
            loose = loose or any(
                one.type == "paragraph_open" and not one.hidden and one.level == tokens[at].level + 1
                for one in tokens[at + 1 : close]
            )
            items.append((marker, children))
            at, number = close + 1, number + 1
        between = self.separator if loose else "\n"
        out: list[str] = []
        for marker, children in items:
            inner = indent + " " * len(marker)
            first = children[0] if children else inner
            if first.startswith(inner):
                first = indent + marker + first[len(inner) :]
            else:
                first = indent + marker.rstrip() + "\n" + first
            out.append(between.join([first, *children[1:]]))
        return between.join(out)

    # ---- what a dialect says of blocks

    def paragraph(self, content: str, tight: bool) -> str:
        """A paragraph; `tight` when it is all that a list item holds."""
        return content

    def heading(self, level: int, children: Sequence[Token]) -> str:
        return self.inline(children)

    def code_block(self, code: str, language: str) -> str:
        return code.removesuffix("\n")

    def quote(self, blocks: list[str]) -> str:
        return "> " + "\n\n".join(blocks).replace("\n", "\n> ")

    def bullet(self, depth: int, markup: str) -> str:
        return self.bullets[depth % len(self.bullets)]

    def number(self, number: int, markup: str) -> str:
        return f"{number}. "

    def table(self, rows: list[list[Sequence[Token]]], alignments: list[str]) -> str:
        """The first row is the header."""
        from jackfield_channel_kit.text.dialects.plain import Plain

        plain = Plain()
        return self.code_block(aligned([[plain.inline(cell) for cell in row] for row in rows], alignments) + "\n", "")

    # ---- inline

    def inline(self, children: Sequence[Token]) -> str:
        """The text of a block, its marks included."""
        out: list[str] = []
        links: list[tuple[int, Token]] = []
        depths: dict[str, int] = {}
        for index, token in enumerate(children):
            kind = token.type
            if kind == "text":
                content = token.content
                if "\n" in content or "\r" in content:
                    content = _LINE_ENDS.sub(" ", content)  # from `&#10;`
                out.append(self.text(content))
            elif kind in ("softbreak", "hardbreak"):
                out.append(self.line_break(kind == "hardbreak", depths))
            elif kind == "code_inline":
                out.append(self.code(token.content))
            elif kind == "link_open":
                links.append((len(out), token))
            elif kind == "link_close":
                start, opened = links.pop()
                label = "".join(out[start:])
                del out[start:]
                href = str(opened.attrs.get("href", ""))
                out.append(self.link(label, href, opened) if safe_target(href) else self.unsafe_link(label, href))
            elif kind == "image":
                out.append(self.image(token))
            else:
                name, _, side = kind.rpartition("_")
                depth = depths.get(name, 0)
                depths[name] = depth + (1 if side == "open" else -1)
                if depth == (0 if side == "open" else 1) and (self.marks_in_links or not links):
                    out.append(self.mark(kind, token, children, index))
        return "".join(out)

    def text(self, content: str) -> str:
        return defused(content)

    def mark(self, kind: str, token: Token, children: Sequence[Token], index: int) -> str:
        """What opens or closes formatting; `children[index]` is the token."""
        return self.marks.get(kind, "")

    def line_break(self, hard: bool, opened: dict[str, int]) -> str:
        """`opened` counts the marks around it by their names (`strong`, `em`, `s`)."""
        return "\n"

    def code(self, content: str) -> str:
        return content

    def link(self, label: str, href: str, token: Token) -> str:
        """A link to a safe target; the label is rendered already, the target as its author wrote it."""
        if token.markup in AS_WRITTEN:
            return shown(href)
        return label if self.text(shown(href)) == label else f"{label} ({href})" if label else href

    def unsafe_link(self, label: str, href: str) -> str:
        """A target that nobody should open by a click, as text."""
        return f"{label} {self.text(f'({href})')}" if href else label

    def image(self, token: Token) -> str:
        """An image that lies elsewhere, as a link."""
        source = str(token.attrs.get("src", ""))
        label = self.text(token.content) or self.text(shown(source))
        return self.link(label, source, token) if safe_target(source) else self.unsafe_link(label, source)


def shown(href: str) -> str:
    """A target as people write it."""
    return href.removeprefix("mailto:").removeprefix("tel:")


def aligned(rows: list[list[str]], alignments: list[str]) -> str:
    """A table in columns of equal width; wide characters count two."""
    cells = [[" ".join(cell.split()) for cell in row] for row in rows]
    sizes = [[_width(cell) for cell in row] for row in cells]
    columns = len(alignments)
    widths = [min(_WIDEST_COLUMN, max((row[n] for row in sizes if n < len(row)), default=0)) for n in range(columns)]
    lines = []
    for row, row_sizes in zip(cells, sizes, strict=True):
        padded = [
            _padded(cell, width - size, alignment)
            for cell, size, width, alignment in zip(row, row_sizes, widths, alignments, strict=False)
        ]
        lines.append(" | ".join(padded).rstrip())
    lines.insert(1, "-+-".join("-" * width for width in widths))
    return "\n".join(lines)


def _padded(cell: str, missing: int, alignment: str) -> str:
    if missing <= 0:
        return cell
    left = missing if alignment == "right" else missing // 2 if alignment == "center" else 0
    return " " * left + cell + " " * (missing - left)


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def closing(tokens: Sequence[Token], at: int) -> int:
    """The index of the token that closes the container opened at `at`."""
    level = tokens[at].level
    at += 1
    while tokens[at].level != level:
        at += 1
    return at


def table_cells(tokens: Sequence[Token], at: int, end: int) -> tuple[list[list[Sequence[Token]]], list[str]]:
    """The cells of a table by rows, as inline tokens, and how each column is aligned (`left`, `right`, `center`)."""
    rows: list[list[Sequence[Token]]] = []
    alignments: list[str] = []
    for index in range(at, end):
        token = tokens[index]
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("th_open", "td_open"):
            rows[-1].append(tokens[index + 1].children or ())
            if token.type == "th_open":
                alignments.append(str(token.attrs.get("style", "")).removeprefix("text-align:"))
    return rows, alignments
