"""Slack's languages: mrkdwn, where only `&`, `<` and `>` are escaped and links are `<target|label>`; and Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jackfield_channel_kit.text.dialects.commonmark import CommonMark
from jackfield_channel_kit.text.dialects.dialect import AS_WRITTEN, ZERO_WIDTH_SPACE, Dialect
from jackfield_channel_kit.text.dialects.marked import Marked

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["SlackMarkdown", "SlackMrkdwn", "unaddressed"]

_ADDRESS = re.compile(r"<(?=!(?:here|channel|everyone|subteam|date)\b|[@#][A-Z0-9]{2})")


class SlackMrkdwn(Marked):
    marks_in_links = False

    def escaped(self, content: str) -> str:
        if "&" in content:
            content = content.replace("&", "&amp;")
        if "<" in content:
            content = content.replace("<", "&lt;")
        return content.replace(">", "&gt;") if ">" in content else content

    def link(self, label: str, href: str, token: Token) -> str:
        target = self.escaped(href.replace("|", "%7C"))
        if token.markup in AS_WRITTEN or not label:
            return f"<{target}>"
        return f"<{target}|{label.replace(chr(10), ' ')}>"


class SlackMarkdown(CommonMark):
    """What Slack takes as `markdown_text`: CommonMark without tables, where a line's end is one, and where `<!here>` or
    `<@U1>` may reach people wherever it stands, also in code."""

    def text(self, content: str) -> str:
        return unaddressed(super().text(content))

    def line_break(self, hard: bool, opened: dict[str, int]) -> str:
        return "\n"

    def code(self, content: str) -> str:
        return super().code(unaddressed(content))

    def code_block(self, code: str, language: str) -> str:
        return super().code_block(unaddressed(code), language)

    def table(self, rows: list[list[Sequence[Token]]], alignments: list[str]) -> str:
        return Dialect.table(self, rows, alignments)


def unaddressed(text: str) -> str:
    """The text with Slack's own tokens for people and groups made harmless."""
    return _ADDRESS.sub("<" + ZERO_WIDTH_SPACE, text) if "<" in text else text
