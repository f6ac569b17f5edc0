"""Platform markup as CommonMark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["from_html", "from_irc", "from_slack", "from_telegram"]


def from_slack(text: str, *, users: Mapping[str, str], channels: Mapping[str, str]) -> str:
    """Slack's mrkdwn as CommonMark; names by id."""
    return text


def from_telegram(text: str, entities: Sequence[Mapping[str, Any]]) -> str:
    """Telegram's text and entities (offsets in UTF-16 units) as CommonMark."""
    return text


def from_html(html: str) -> str:
    """HTML as CommonMark."""
    return html


def from_irc(text: str) -> str:
    """A line with IRC's control codes as CommonMark."""
    return text
