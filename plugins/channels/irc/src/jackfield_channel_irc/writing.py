"""An answer as lines of IRC."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jackfield.errors import TooLarge
from jackfield.models import TextUnit
from jackfield.models.splitting import LEAST_LIMIT, split_text
from jackfield_channel_kit.text.split import rendered_parts

__all__ = ["MOST_LINES", "lines_of", "pieces"]

MOST_LINES = 40
"""Of one send; `pieces` makes far fewer."""
LINES_A_PIECE = 8
"""So that what a break of the connection puts in doubt, and is sent again, stays short."""
MOST_BYTES = 65_536

_CODES = re.compile("[\x02\x11\x1d\x1e]")
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f]")


def pieces(text: str, limit: int) -> list[str]:
    """CommonMark pieces, each of which needs at most `limit` bytes and few lines."""
    out: list[str] = []
    for piece, rendered in rendered_parts(text, limit, TextUnit.UTF8, "irc"):
        size = len(rendered.encode())
        if rendered.count("\n") >= LINES_A_PIECE and size // 2 >= LEAST_LIMIT and size // 2 < limit:
            out += pieces(piece, size // 2)
        else:
            out.append(piece)
    return out


def lines_of(text: str, limit: int, *, plain: bool = False) -> Sequence[str]:
    """The lines to send, none longer than `limit` bytes, none empty; `plain` shows the markup as it stands.

    Raises:
        TooLarge: they would be more than `MOST_LINES`.
    """
    if len(text) > MOST_BYTES:
        raise TooLarge(f"a message of {len(text):,} characters", limit=MOST_BYTES)
    if plain:
        rendered = split_text(_CONTROL.sub(" ", text), limit, TextUnit.UTF8)
    else:
        rendered = [shown for _, shown in rendered_parts(text, limit, TextUnit.UTF8, "irc")]
    lines = [line for shown in rendered for line in shown.split("\n")]
    # A line of code may be empty, a message not.
    kept = [line if _CODES.sub("", line).strip() else " " for line in lines if line.strip()]
    if len(kept) > MOST_LINES:
        raise TooLarge(f"a message of {len(kept)} lines", limit=MOST_LINES)
    return kept
