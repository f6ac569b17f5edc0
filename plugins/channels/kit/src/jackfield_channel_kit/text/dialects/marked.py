"""What Slack, WhatsApp and Google Chat share: `*bold*`, `_italic_`, `~struck~`, code in back-ticks, and no escapes.

They take a marker for one only at the edge of a word.  So a real one gets a zero-width space where it touches a letter
(C041), and one that merely stands in the text gets one behind it where it could open a pair (C039).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from jackfield_channel_kit.text.dialects.dialect import ZERO_WIDTH_SPACE, Dialect, defused

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["Marked"]

_PAIRS = tuple(
    (
        char,
        re.compile(
            rf"(?<![^\W_]){re.escape(char)}(?=[^\s{re.escape(char)}][^{re.escape(char)}\n]*{re.escape(char)}(?![^\W_]))"
        ),
    )
    for char in "*_~`"
)


class Marked(Dialect):
    marks: ClassVar[dict[str, str]] = {
        "strong_open": "*",
        "strong_close": "*",
        "em_open": "_",
        "em_close": "_",
        "s_open": "~",
        "s_close": "~",
    }

    def escaped(self, content: str) -> str:
        """What the platform would read as its own."""
        return content

    def text(self, content: str) -> str:
        for char, pair in _PAIRS:
            if char in content and content.count(char) > 1:
                content = pair.sub(char + ZERO_WIDTH_SPACE, content)
        return self.escaped(defused(content))

    def mark(self, kind: str, token: Token, children: Sequence[Token], index: int) -> str:
        mark = self.marks[kind]
        if kind.endswith("_open"):
            before = children[index - 1] if index else None
            touches = before is not None and (
                (before.type == "text" and before.content[-1:].isalnum())
                or before.type in ("code_inline", "link_close")
            )
            return ZERO_WIDTH_SPACE + mark if touches else mark
        after = children[index + 1] if index + 1 < len(children) else None
        touches = after is not None and (
            (after.type == "text" and after.content[:1].isalnum()) or after.type in ("code_inline", "link_open")
        )
        return mark + ZERO_WIDTH_SPACE if touches else mark

    def heading(self, level: int, children: Sequence[Token]) -> str:
        content = self.inline([token for token in children if not token.type.startswith("strong_")])
        return "\n".join(f"*{line}*" if line.strip() else line for line in content.split("\n"))

    def code(self, content: str) -> str:
        if "`" not in content:
            return f"`{self.escaped(content)}`"
        return f"```{self.escaped(_no_fence(content))}```"

    def code_block(self, code: str, language: str) -> str:
        return f"```\n{self.escaped(_no_fence(code.removesuffix(chr(10))))}\n```"


def _no_fence(code: str) -> str:
    return code.replace("```", "`" + ZERO_WIDTH_SPACE + "`" + ZERO_WIDTH_SPACE + "`")
