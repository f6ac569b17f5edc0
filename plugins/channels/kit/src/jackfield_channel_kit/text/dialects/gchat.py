"""Google Chat's text: Slack's marks and links, but nothing is escaped; what looks like a mention is broken up."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jackfield_channel_kit.text.dialects.dialect import AS_WRITTEN, ZERO_WIDTH_SPACE, shown
from jackfield_channel_kit.text.dialects.marked import Marked

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["GoogleChat"]

_TAG = re.compile(r"<(?=users/|https?:|mailto:)", re.I)


class GoogleChat(Marked):
    marks_in_links = False
    bullets = ("* ",)

    def escaped(self, content: str) -> str:
        return _TAG.sub("<" + ZERO_WIDTH_SPACE, content) if "<" in content else content

    def bullet(self, depth: int, markup: str) -> str:
        return "* " if depth == 0 else "- "

    def link(self, label: str, href: str, token: Token) -> str:
        if token.markup in AS_WRITTEN or not label:
            return shown(href)
        label = label.replace("\n", " ").replace(">", "\u203a")
        return f"<{href.replace('|', '%7C')}|{label}>"
