"""HTML as Matrix and Teams take it: blocks are elements, lists and tables real ones."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, ClassVar

from jackfield_channel_kit.text.dialects.dialect import AS_WRITTEN, Dialect, defused, shown
from jackfield_channel_kit.text.dialects.telegram import escaped

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["MatrixHtml", "TeamsHtml", "TelegramRich"]


class MatrixHtml(Dialect):
    separator = "\n"
    rule = "<hr>"
    marks: ClassVar[dict[str, str]] = {
        "strong_open": "<strong>",
        "strong_close": "</strong>",
        "em_open": "<em>",
        "em_close": "</em>",
        "s_open": "<del>",
        "s_close": "</del>",
    }

    def text(self, content: str) -> str:
        return escaped(defused(content))

    def line_break(self, hard: bool, opened: dict[str, int]) -> str:
        return "<br>"

    def paragraph(self, content: str, tight: bool) -> str:
        return content if tight else f"<p>{content}</p>"

    def heading(self, level: int, children: Sequence[Token]) -> str:
        return f"<h{level}>{self.inline(children)}</h{level}>"

    def code(self, content: str) -> str:
        return f"<code>{escaped(content)}</code>"

    def code_block(self, code: str, language: str) -> str:
        marked = f' class="language-{escape(language)}"' if language else ""
        return f"<pre><code{marked}>{escaped(code.removesuffix(chr(10)))}</code></pre>"

    def quote(self, blocks: list[str]) -> str:
        return f"<blockquote>{self.separator.join(blocks)}</blockquote>"

    def _list(self, tokens: Sequence[Token], at: int, end: int, depth: int, indent: str) -> str:
        ordered = tokens[at].type == "ordered_list_open"
        start = int(tokens[at].attrs.get("start", 1)) if ordered else 1
        out = ["<ul>" if not ordered else "<ol>" if start == 1 else f'<ol start="{start}">']
        level = tokens[at].level + 1
        opened = at + 1
        for index in range(at + 1, end):
            token = tokens[index]
            if token.level != level:
                continue
            if token.nesting > 0:
                opened = index
            else:
                out.append(f"<li>{chr(10).join(self._blocks(tokens, opened + 1, index, depth + 1, ''))}</li>")
        out.append("</ol>" if ordered else "</ul>")
        return "".join(out)

    def table(self, rows: list[list[Sequence[Token]]], alignments: list[str]) -> str:
        def row(cells: list[Sequence[Token]], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{self.inline(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(row(cells, "td") for cells in rows[1:])
        return f"<table><thead>{row(rows[0], 'th')}</thead><tbody>{body}</tbody></table>"

    def link(self, label: str, href: str, token: Token) -> str:
        if not label or token.markup in AS_WRITTEN:
            label = escaped(shown(href))
        return f'<a href="{escape(href)}">{label}</a>'


class TeamsHtml(MatrixHtml):
    """Teams strikes with `<s>` and shows no headings above the third."""

    marks: ClassVar[dict[str, str]] = {**MatrixHtml.marks, "s_open": "<s>", "s_close": "</s>"}

    def heading(self, level: int, children: Sequence[Token]) -> str:
        return super().heading(min(level, 3), children)


class TelegramRich(MatrixHtml):
    """Telegram's rich messages (Bot API 10.1): the same elements, tables without sections."""

    rule = "<hr/>"

    def line_break(self, hard: bool, opened: dict[str, int]) -> str:
        return "<br/>"

    def table(self, rows: list[list[Sequence[Token]]], alignments: list[str]) -> str:
        table = super().table(rows, alignments)
        for tag in ("<thead>", "</thead>", "<tbody>", "</tbody>"):
            table = table.replace(tag, "")
        return table
