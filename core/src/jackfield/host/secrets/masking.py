"""Masking the texts of messages where they cross the host: what came in, what an agent wrote, what becomes of it.

By value only, and only in fields that hold text: an id, an address or the name by which a file is found stays.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, TypeVar

from jackfield.errors import JackfieldError
from jackfield.mailbox import OutboundBatch
from jackfield.models import (
    Ack,
    ActionRequest,
    ActivityRow,
    Attachment,
    Card,
    CardField,
    CardLink,
    ChatContent,
    Choice,
    EditContent,
    EventContent,
    InboundRow,
    MessageContent,
    MessageEdited,
    MessageReceived,
    NoticeContent,
    OutboundRow,
    OutFile,
    OutMessage,
    Prompt,
    Quote,
    Response,
    StoredFile,
    TaskContent,
    TurnError,
    UsageEntry,
    WebhookContent,
)
from jackfield.redaction import REDACTOR

__all__ = ["masked", "masked_batch", "masked_error"]

T = TypeVar("T")
E = TypeVar("E", bound=JackfieldError)

_FIELDS: dict[type, tuple[str, ...]] = {
    MessageReceived: ("text", "reply_to", "attachments"),
    MessageEdited: ("text",),
    Attachment: ("caption",),
    Quote: ("text",),
    InboundRow: ("content",),
    ChatContent: ("text", "quote", "files"),
    StoredFile: ("problem",),
    TaskContent: ("prompt",),
    WebhookContent: ("payload",),
    NoticeContent: ("text", "subject"),
    EventContent: ("text",),
    OutboundRow: ("content",),
    MessageContent: ("text", "card", "prompt"),
    EditContent: ("text",),
    OutMessage: ("text", "files", "card", "prompt"),
    OutFile: ("name",),
    Card: ("title", "text", "fields", "links", "image_url", "fallback_text"),
    CardField: ("name", "value"),
    CardLink: ("label", "url"),
    Prompt: ("title", "question", "choices"),
    Choice: ("label", "selected_label"),
    Ack: ("error",),
    TurnError: ("message", "message_for_user"),
    ActivityRow: ("target", "summary"),
    UsageEntry: ("provider", "model"),
}
"""Of each model, the fields that hold text, or models that do."""
_JSON: dict[type, str] = {ActionRequest: "arguments", Response: "body"}
"""Of each model, the field whose text is JSON and must stay so."""


def masked(value: T) -> T:
    """The model without any known secret in its texts; the same object when there is none in it."""
    return value if not REDACTOR.knows_any else _masked(value)


def masked_batch(batch: OutboundBatch) -> OutboundBatch:
    """What a runner wrote, the same way."""
    if not REDACTOR.knows_any:
        return batch
    return replace(
        batch,
        rows=[_masked(row) for row in batch.rows],
        acks=[_masked(ack) for ack in batch.acks],
        activity=[_masked(item) for item in batch.activity],
        usage=[_masked(item) for item in batch.usage],
    )


def masked_error(problem: E) -> E:
    """The exception itself, with its words masked: they are recorded, and told to agents and people."""
    problem.message = REDACTOR.values(problem.message)
    problem.args = (problem.message,)
    if problem.fix is not None:
        problem.fix = REDACTOR.values(problem.fix)
    return problem


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return REDACTOR.values(value)
    if isinstance(value, tuple):
        items = tuple(_masked(item) for item in value)
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    kind = type(value)
    if kind in _JSON:
        text = getattr(value, _JSON[kind])
        clean = _masked_json(text)
        return value if clean is text else replace(value, **{_JSON[kind]: clean})
    changes = {}
    for name in _FIELDS.get(kind, ()):
        old = getattr(value, name)
        new = _masked(old) if old is not None else None
        if new is not old:
            changes[name] = new
    return replace(value, **changes) if changes else value


def _masked_json(text: str) -> str:
    """JSON text that stays JSON: a value may begin right behind a backslash of another character."""
    if REDACTOR.values(text) is text:
        return text
    try:
        return json.dumps(REDACTOR.inside(json.loads(text)), ensure_ascii=False)
    except (ValueError, RecursionError):
        return REDACTOR.values(text)
