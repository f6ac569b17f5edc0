"""One class a dialect, by the name that `Capabilities.dialect` bears; loaded when it is first used."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jackfield_channel_kit.text.dialects.dialect import Dialect

__all__ = ["DIALECTS", "dialect_named"]

DIALECTS = {
    "commonmark": "commonmark:CommonMark",
    "gfm": "commonmark:Gfm",
    "plain": "plain:Plain",
    "slack-mrkdwn": "slack:SlackMrkdwn",
    "slack-markdown": "slack:SlackMarkdown",
    "telegram-html": "telegram:TelegramHtml",
    "telegram-rich": "html:TelegramRich",
    "matrix-html": "html:MatrixHtml",
    "teams-html": "html:TeamsHtml",
    "discord": "discord:Discord",
    "whatsapp": "whatsapp:WhatsApp",
    "gchat": "gchat:GoogleChat",
    "irc": "irc:Irc",
    "signal": "plain:Plain",
}
"""Name to `module:class` below this package."""


@cache
def dialect_named(name: str) -> Dialect:
    """The dialect.

    Raises:
        ValueError: there is none of that name.
    """
    place = DIALECTS.get(name)
    if place is None:
        raise ValueError(f"no dialect {name!r}; there are {', '.join(sorted(DIALECTS))}")
    module, _, cls = place.partition(":")
    made: Dialect = getattr(import_module(f"{__name__}.{module}"), cls)()
    return made
