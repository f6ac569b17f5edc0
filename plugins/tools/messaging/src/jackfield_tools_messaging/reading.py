"""What the model passed, as models; or a sentence that tells it which parameter is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from jackfield.api import ToolFailed
from jackfield.models import CardField, CardLink, Choice

__all__ = [
    "card_fallback",
    "message_number",
    "read_choices",
    "read_emoji",
    "read_fields",
    "read_links",
    "read_url",
    "required_text",
]

_MAX_CHOICES = 25


def required_text(value: object, parameter: str) -> str:
    """The text, which must hold more than white space."""
    if not isinstance(value, str) or not value.strip():
        raise ToolFailed(f"{parameter} is required")
    return value


def message_number(value: object, parameter: str) -> int:
    """A message's number, as the agent sees it."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ToolFailed(f"{parameter} must be the number of a message (like 7), not {value!r}")
    return value


def read_emoji(value: object) -> str:
    """An emoji, or its name without colons."""
    emoji = required_text(value, "emoji").strip().strip(":")
    if not emoji or len(emoji) > 64 or re.search(r"\s", emoji):
        raise ToolFailed(f"emoji must be one emoji or its name, like thumbs_up, not {value!r}")
    return emoji


def read_choices(options: object, *, allow_text: bool = False) -> tuple[Choice, ...]:
    """Options in their normal form: a bare string is label, value and selected label (messaging.md 7)."""
    if not isinstance(options, Sequence) or isinstance(options, (str, bytes)):
        raise ToolFailed("options must be a list of texts or of {label, value, selectedLabel}")
    if not options and not allow_text:
        raise ToolFailed("options is required: give at least one, or set allow_text")
    if len(options) > _MAX_CHOICES:
        raise ToolFailed(f"options: {len(options)} are too many, at most {_MAX_CHOICES} can be shown")
    choices = tuple(_choice(option, number) for number, option in enumerate(options, 1))
    values = [choice.value for choice in choices]
    for value in values:
        if values.count(value) > 1:
            raise ToolFailed(f"options: two of them have the value {value!r}")
    return choices


def _choice(option: object, number: int) -> Choice:
    place = f"options[{number}]"
    if isinstance(option, str):
        option = {"label": option}
    if not isinstance(option, Mapping):
        raise ToolFailed(f"{place} must be a text or {{label, value, selectedLabel}}, not {option!r}")
    label = required_text(option.get("label"), f"{place}.label").strip()
    value = option.get("value", label)
    selected = option.get("selectedLabel", option.get("selected_label", label))
    return Choice(
        value=required_text(value, f"{place}.value"),
        label=label,
        selected_label=required_text(selected, f"{place}.selectedLabel"),
    )


def _tables(value: object, parameter: str, shape: str) -> list[Mapping[str, object]]:
    if value is None:
        return []
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise ToolFailed(f"{parameter} must be a list of {shape}")
    for number, item in enumerate(value, 1):
        if not isinstance(item, Mapping):
            raise ToolFailed(f"{parameter}[{number}] must be {shape}, not {item!r}")
    return list(value)


def read_fields(value: object) -> tuple[CardField, ...]:
    """A card's facts."""
    return tuple(
        CardField(
            name=required_text(item.get("name"), f"fields[{number}].name"),
            value=required_text(item.get("value"), f"fields[{number}].value"),
            inline=item.get("inline") in (True, "true"),
        )
        for number, item in enumerate(_tables(value, "fields", "{name, value, inline}"), 1)
    )


def read_links(value: object) -> tuple[CardLink, ...]:
    """A card's links."""
    found = []
    for number, item in enumerate(_tables(value, "links", "{label, url}"), 1):
        url = read_url(item.get("url"), f"links[{number}].url")
        label = item.get("label", url)
        found.append(CardLink(label=required_text(label, f"links[{number}].label"), url=url))
    return tuple(found)


def read_url(value: object, parameter: str) -> str:
    """A web address; nothing else becomes a link or an image."""
    url = required_text(value, parameter).strip()
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ToolFailed(f"{parameter} must begin with https:// or http://, not {url[:80]!r}")
    return url


def card_fallback(title: str, text: str, fields: Sequence[CardField], links: Sequence[CardLink]) -> str:
    """The card as plain CommonMark, for where no card can be shown."""
    lines = [f"**{title}**"] if title else []
    if text:
        lines.append(text)
    if fields:
        lines.append("\n".join(f"- {item.name}: {item.value}" for item in fields))
    if links:
        lines.append("\n".join(f"- [{link.label}]({link.url})" for link in links))
    return "\n\n".join(lines)
