"""Frames as text: plain for pipes, with Rich for a terminal.  Everything from outside is cleaned here."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from jackfield_channel_terminal.cleaning import clean, clean_name
from jackfield_channel_terminal.frames import Frame

__all__ = ["plain", "rich_text", "size_text"]

_MARKDOWN_LIMIT = 20_000
"""Characters; a longer text is printed as it is, so that a hostile one costs little (C217)."""


def size_text(size: object) -> str:
    """Bytes as a person reads them."""
    value = float(size) if isinstance(size, (int, float)) else 0.0
    for unit in ("bytes", "kB", "MB"):
        if value < 1000 or unit == "MB":
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("unreachable")


def plain(frame: Frame) -> str:
    """A message without any markup of ours."""
    parts = [clean(str(frame.get("text") or "")).rstrip()]
    card = frame.get("card")
    if isinstance(card, dict):
        parts.append(_plain_card(card))
    parts.extend(_file_lines(frame.get("files")))
    prompt = frame.get("prompt")
    if isinstance(prompt, dict):
        parts.append(_plain_prompt(prompt))
    body = "\n".join(part for part in parts if part)
    return f"(perhaps shown before) {body}" if frame.get("maybe_duplicate") else body


def _plain_card(card: Frame) -> str:
    lines = [clean_name(str(card.get("title") or "")), clean(str(card.get("text") or ""))]
    lines += [
        f"{clean_name(str(item.get('name')))}: {clean(str(item.get('value')))}" for item in _dicts(card.get("fields"))
    ]
    if card.get("image_url"):
        lines.append(clean_name(str(card["image_url"]), 2000))
    lines += [
        f"{clean_name(str(item.get('label')))}: {clean_name(str(item.get('url')), 2000)}"
        for item in _dicts(card.get("links"))
    ]
    return "\n".join(line for line in lines if line)


def _plain_prompt(prompt: Frame) -> str:
    lines = [clean_name(str(prompt.get("title") or "")), clean(str(prompt.get("question") or ""))]
    lines += [
        f"  {number}. {clean_name(str(choice.get('label')))}"
        for number, choice in enumerate(_dicts(prompt.get("choices")), 1)
    ]
    if prompt.get("allow_text"):
        lines.append("  or write an answer")
    return "\n".join(line for line in lines if line)


def _file_lines(files: object) -> list[str]:
    return [
        f"[file] {clean_name(str(item.get('name')))} ({size_text(item.get('size'))}): "
        f"{clean_name(str(item.get('path')), 4096)}"
        for item in _dicts(files)
    ]


def _dicts(value: object) -> Sequence[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def rich_text(frame: Frame, *, width: int, color: bool) -> str:
    """A message with Markdown drawn, as text with escape sequences of ours only."""
    from rich.console import Console, Group, RenderableType
    from rich.markdown import Markdown
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    def markdown(value: object) -> RenderableType:
        text = clean(str(value or "")).rstrip()
        # Links are written out: a hyperlink would hide where it leads.
        return Markdown(text, hyperlinks=False) if len(text) <= _MARKDOWN_LIMIT else Text(text)

    parts: list[RenderableType] = []
    if frame.get("maybe_duplicate"):
        parts.append(Text("(perhaps shown before)", style="dim"))
    if frame.get("text"):
        parts.append(markdown(frame["text"]))
    card = frame.get("card")
    if isinstance(card, dict):
        facts = Table.grid(padding=(0, 2))
        for item in _dicts(card.get("fields")):
            facts.add_row(Text(clean_name(str(item.get("name"))), style="bold"), Text(clean(str(item.get("value")))))
        inner: list[RenderableType] = [markdown(card["text"])] if card.get("text") else []
        if facts.row_count:
            inner.append(facts)
        rest = _plain_card({"image_url": card.get("image_url"), "links": card.get("links")})
        if rest:
            inner.append(Text(rest))
        title = clean_name(str(card.get("title") or "")) or None
        parts.append(Panel(Group(*inner), title=Text(title) if title else None, title_align="left", expand=False))
    parts.extend(Text(line, style="cyan") for line in _file_lines(frame.get("files")))
    prompt = frame.get("prompt")
    if isinstance(prompt, dict):
        parts.append(Text(_plain_prompt(prompt), style="bold"))
    written = io.StringIO()
    console = Console(
        file=written,
        width=max(20, width),
        force_terminal=color,
        color_system="256" if color else None,
        no_color=not color,
        emoji=False,
        markup=False,
        highlight=False,
        legacy_windows=False,
    )
    console.print(Group(*parts))
    return written.getvalue().rstrip("\n")
