"""Telegram's `parse_mode=HTML`: few tags, line ends for blocks, `& < >` escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, ClassVar

from jackfield_channel_kit.text.dialects.dialect import AS_WRITTEN, Dialect, defused, shown

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["TelegramHtml", "escaped"]


def escaped(content: str) -> str:
    """`&`, `<` and `>` as entities."""
    if "&" in content:
        content = content.replace("&", "&amp;")
    if "<" in content:
        content = content.replace("<", "&lt;")
    return content.replace(">", "&gt;") if ">" in content else content


class TelegramHtml(Dialect):
    marks: ClassVar[dict[str, str]] = {
        "strong_open": "<b>",
        "strong_close": "</b>",
        "em_open": "<i>",
        "em_close": "</i>",
        "s_open": "<s>",
        "s_close": "</s>",
    }

    def text(self, content: str) -> str:
        return escaped(defused(content))

    def heading(self, level: int, children: Sequence[Token]) -> str:
        return f"<b>{self.inline([token for token in children if not token.type.startswith('strong_')])}</b>"

    def code(self, content: str) -> str:
        return f"<code>{escaped(content)}</code>"

    def code_block(self, code: str, language: str) -> str:
        code = escaped(code.removesuffix("\n"))
        if not language:
            return f"<pre>{code}</pre>"
        return f'<pre><code class="language-{escape(language)}">{code}</code></pre>'

    def quote(self, blocks: list[str]) -> str:
        # Telegram refuses a quote in a quote.
        content = "\n\n".join(blocks)
        if "<blockquote>" in content:
            content = content.replace("<blockquote>", "&gt; ").replace("</blockquote>", "")
        return f"<blockquote>{content}</blockquote>"

    def link(self, label: str, href: str, token: Token) -> str:
        if not label or token.markup in AS_WRITTEN:
            label = escaped(shown(href))
        return f'<a href="{escape(href)}">{label}</a>'
