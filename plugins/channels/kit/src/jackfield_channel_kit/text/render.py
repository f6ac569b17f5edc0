"""CommonMark, tables and strikethrough as each platform writes them (channels.md R7)."""

from __future__ import annotations

from jackfield_channel_kit.text.dialects import DIALECTS, dialect_named
from jackfield_channel_kit.text.markdown import clean, parse

__all__ = ["DIALECTS", "plain", "render", "signal_ranges"]


def render(text: str, dialect: str) -> str:
    """The text in a dialect of `DIALECTS`.

    Raw HTML in it is shown as text, mentions of everyone reach nobody, links lead only where `safe_target` says.

    Raises:
        ValueError: there is no such dialect.
    """
    chosen = dialect_named(dialect)
    return chosen.separator.join(chosen.blocks(parse(clean(text))))


def plain(text: str) -> str:
    """The text as it reads, without markup."""
    return render(text, "plain")


def signal_ranges(text: str) -> tuple[str, list[tuple[int, int, str]]]:
    """The plain text, and its styles as (start, length, style), counted in UTF-16 units.

    Styles: BOLD, ITALIC, STRIKETHROUGH, MONOSPACE.
    """
    from jackfield_channel_kit.text.dialects.signal import Signal, ranges

    signal = Signal()
    return ranges(signal.separator.join(signal.blocks(parse(clean(text)))))
