"""Cutting an answer into messages by what each measures once it is rendered (C021-C031).

The text is parsed once and cut between its blocks.  A block that is too long for a message is cut by its own kind:
prose by `passages`, the others by `blocks`.  Each part is CommonMark of its own: rendered alone it is what it was in
the whole.
"""

from __future__ import annotations

from jackfield.models import TextUnit
from jackfield.models.splitting import LEAST_LIMIT

from jackfield_channel_kit.text.blocks import Cutter
from jackfield_channel_kit.text.dialects import dialect_named
from jackfield_channel_kit.text.markdown import clean

__all__ = ["rendered_parts", "split"]


def split(text: str, limit: int, unit: TextUnit, dialect: str = "commonmark") -> list[str]:
    """CommonMark pieces, each of which rendered in the dialect measures at most `limit` in `unit`.

    Nothing is cut inside a character as people see it, and no link, code span or row of a table that fits a message.  A
    fenced block is fenced again in each piece, with its info string; a table gets its header again.

    Raises:
        ValueError: the limit is below `LEAST_LIMIT`, or there is no such dialect.
    """
    return [part for part, _ in rendered_parts(text, limit, unit, dialect)]


def rendered_parts(text: str, limit: int, unit: TextUnit, dialect: str) -> list[tuple[str, str]]:
    """The pieces of `split`, each with what it is rendered to; as fast as one rendering.

    Raises:
        ValueError: as `split`.
    """
    if limit < LEAST_LIMIT:
        raise ValueError(f"a text limit of {limit} is too small to send anything; at least {LEAST_LIMIT}")
    return Cutter(dialect_named(dialect), unit).parts(clean(text), limit)
