"""Slack's mrkdwn: only `&`, `<` and `>` are escaped, links are `<target|label>`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jackfield_channel_kit.text.dialects.dialect import AS_WRITTEN
from jackfield_channel_kit.text.dialects.marked import Marked

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["SlackMrkdwn"]


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
