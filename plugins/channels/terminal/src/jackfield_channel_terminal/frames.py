"""The JSON objects between channel and client (version 1).

Client to channel::

    {"type": "hello", "group": "<folder>" | null, "thread": "<name>" | null}
    {"type": "message", "id": "<client's own id>", "text": "...", "files": ["/absolute/path"]}
    {"type": "choice", "id": "<client's own id>", "prompt_id": "...", "value": "..."}
    {"type": "shown", "delivery": "<key>"}
    {"type": "bye"}

Channel to client::

    {"type": "welcome", "protocol": 1, "group": "...", "thread": null, "user": "..."}
    {"type": "accepted", "id": "...", "duplicate": false}       {"type": "refused", "id": "...", "reason": "..."}
    {"type": "typing", "on": true}
    {"type": "stream", "key": "...", "text": "whole text so far"}    {"type": "stream_end", "key": "..."}
    {"type": "message", "key": "...", "ids": ["..."], "text": "...", "files": [{"name", "path", "size"}],
     "card": {...} | null, "prompt": {...} | null, "stream": "<key of the stream that it completes>" | null,
     "maybe_duplicate": false}
    {"type": "edit", "id": "...", "text": "..."}
    {"type": "reaction", "id": "...", "emoji": "...", "on": true}
    {"type": "prompt_done", "prompt_id": "...", "text": "..."}
    {"type": "error", "message": "..."}

Every `message` must be confirmed by `shown`; one whose key the client showed before is confirmed again, not shown.
"""

from __future__ import annotations

from typing import Any

from jackfield.errors import MalformedData
from jackfield.models import Card, OutMessage, Prompt

__all__ = ["PROTOCOL", "Frame", "card_frame", "message_frame", "prompt_frame", "text_of"]

PROTOCOL = 1

Frame = dict[str, Any]
"""One JSON object."""


def message_frame(key: str, ids: tuple[str, ...], message: OutMessage, files: list[Frame], stream: str | None) -> Frame:
    """A message as the client gets it; `files` lie where the client may read them."""
    return {
        "type": "message",
        "key": key,
        "ids": list(ids),
        "text": message.text,
        "files": files,
        "card": card_frame(message.card) if message.card is not None else None,
        "prompt": prompt_frame(message.prompt) if message.prompt is not None else None,
        "stream": stream,
        "maybe_duplicate": message.maybe_duplicate,
    }


def card_frame(card: Card) -> Frame:
    """A card in plain JSON."""
    return {
        "title": card.title,
        "text": card.text,
        "fields": [{"name": item.name, "value": item.value, "inline": item.inline} for item in card.fields],
        "image_url": card.image_url,
        "links": [{"label": item.label, "url": item.url} for item in card.links],
        "fallback_text": card.fallback_text,
    }


def prompt_frame(prompt: Prompt) -> Frame:
    """A question in plain JSON.  `expires_at` is in milliseconds since the epoch."""
    return {
        "id": prompt.id,
        "title": prompt.title,
        "question": prompt.question,
        "choices": [
            {"value": item.value, "label": item.label, "selected_label": item.selected_label, "style": item.style}
            for item in prompt.choices
        ],
        "allow_text": prompt.allow_text,
        "expires_at": prompt.expires_at,
    }


def text_of(frame: Frame, name: str, *, limit: int = 200, empty: bool = False) -> str:
    """A text that a client must give.

    Raises:
        MalformedData: it is missing, no text, or too long.
    """
    value = frame.get(name)
    if not isinstance(value, str) or (not value and not empty):
        raise MalformedData(f"a frame of type {frame.get('type')!r} needs {name!r} (a text)")
    if len(value) > limit:
        raise MalformedData(f"{name!r} may have {limit} characters, not {len(value)}")
    return value
