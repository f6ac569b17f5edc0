"""Tables, key-value lists and times for people."""

from __future__ import annotations

import datetime
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from jackfield.cli import printable
from jackfield.cli.state import say

__all__ = ["ago", "facts", "state_colour", "table", "text_of"]

NAME_WIDTH = 64
"""Columns of a name on a terminal."""
_GOOD = {"ready", "running", "active", "sent", "completed", "done", "ok", "accepted"}
_BAD = {"failed", "broken", "error", "auth_failed", "stopped", "refused", "blocked", "incompatible", "conflict"}
_MIDDLE = {"degraded", "retrying", "parked", "waiting", "connecting", "reconnecting", "pending", "dropped", "sending"}


def text_of(value: Any) -> str:
    """A JSON value for a cell: names are made harmless, nothing is a dash."""
    if value is None or value == "" or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(text_of(item) for item in value)
    if isinstance(value, float):
        return f"{value:g}"
    return printable.line(str(value))


def state_colour(word: str) -> str | None:
    """Green, yellow or red for a word that tells a state."""
    word = word.lower().replace(" ", "_")
    return "green" if word in _GOOD else "red" if word in _BAD else "yellow" if word in _MIDDLE else None


def table(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, empty: str, wide: str | None = None
) -> None:
    """Print rows in aligned columns; `columns` maps a key to its heading.

    On a terminal the column `wide` is cut so that a row fits into a line; piped, nothing is cut.  `empty` is said when
    there are no rows.
    """
    if not rows:
        say(empty)
        return
    cells = [{key: text_of(row.get(key)) for key in columns} for row in rows]
    sizes = {
        key: max(printable.width(head), *(printable.width(row[key]) for row in cells)) for key, head in columns.items()
    }
    if "name" in sizes and sys.stdout.isatty():
        sizes["name"] = min(sizes["name"], NAME_WIDTH)
    if wide is not None and sys.stdout.isatty():
        room = shutil.get_terminal_size().columns - sum(size + 2 for key, size in sizes.items() if key != wide)
        sizes[wide] = min(sizes[wide], max(12, room))
    last = list(columns)[-1]

    def cell(key: str, text: str) -> str:
        text = printable.cut(text, sizes[key])
        return text if key == last else text + " " * (sizes[key] - printable.width(text))

    say("  ".join(cell(key, heading) for key, heading in columns.items()), bold=True)
    for row in cells:
        out = []
        for key in columns:
            padded = cell(key, row[key])
            colour = state_colour(row[key]) if key in ("state", "status") else None
            out.append(click.style(padded, fg=colour) if colour else padded)
        say("  ".join(out).rstrip())


def facts(pairs: Mapping[str, Any], *, indent: int = 0) -> None:
    """Print names and values below each other; None is left out."""
    shown = {name: value for name, value in pairs.items() if value is not None}
    longest = max((printable.width(name) for name in shown), default=0)
    for name, value in shown.items():
        text = text_of(value)
        colour = state_colour(text) if name in ("state", "status") else None
        say(
            " " * indent
            + name
            + " " * (longest - printable.width(name) + 2)
            + (click.style(text, fg=colour) if colour else text)
        )


def ago(moment: str | None, *, now: datetime.datetime | None = None) -> str | None:
    """An ISO 8601 moment as people say it, in local time: ``3 min ago``, ``in 20 s``, ``yesterday 14:05``."""
    if moment is None:
        return None
    try:
        at = datetime.datetime.fromisoformat(moment)
    except ValueError:
        return moment
    now = now or datetime.datetime.now(datetime.UTC)
    seconds = (now - at).total_seconds()
    near = _distance(abs(seconds))
    if near is not None:
        if abs(seconds) < 2:
            return "now"
        return f"{near} ago" if seconds > 0 else f"in {near}"
    local, today = at.astimezone(), now.astimezone().date()
    if local.date() == today - datetime.timedelta(days=1):
        return f"yesterday {local:%H:%M}"
    if local.date() == today + datetime.timedelta(days=1):
        return f"tomorrow {local:%H:%M}"
    return f"{local:%Y-%m-%d %H:%M}"


def _distance(seconds: float) -> str | None:
    if seconds < 60:
        return f"{int(seconds)} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min"
    if seconds < 12 * 3600:
        return f"{int(seconds // 3600)} h"
    return None
