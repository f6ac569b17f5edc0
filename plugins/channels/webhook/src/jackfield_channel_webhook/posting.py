"""What is posted: an answer as the JSON of a Standard Webhook."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from pathlib import Path
from typing import Any

from jackfield.clock import UnixMs, to_datetime
from jackfield.errors import TooLarge
from jackfield.models import Address, OutFile, OutMessage

__all__ = ["FILE_LIMIT", "answer_of", "encoded", "payload", "webhook_id"]

FILE_LIMIT = 8_388_608
"""Bytes of one file; it travels inside the JSON."""


def webhook_id(idempotency_key: str) -> str:
    """The key as an id that the standard allows: it separates with dots, so there is none in it."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", idempotency_key)


async def answer_of(address: Address, message: OutMessage) -> dict[str, Any]:
    """A message as JSON values.

    Raises:
        TooLarge: a file is over `FILE_LIMIT`.
    """
    return {
        "hook": address.instance,
        "chat": address.platform_id,
        "thread": address.thread_id,
        "text": message.text,
        "reply_to": message.reply_to.ids[0] if message.reply_to is not None and message.reply_to.ids else None,
        "files": [await asyncio.to_thread(_file, one) for one in message.files],
    }


def payload(message_id: str, answer: dict[str, Any], now: UnixMs, *, maybe_duplicate: bool) -> dict[str, Any]:
    """The whole body."""
    return {
        "type": "message",
        "timestamp": to_datetime(now).isoformat().replace("+00:00", "Z"),
        "data": {"id": message_id, **answer, "maybe_duplicate": maybe_duplicate},
    }


def encoded(value: Any) -> bytes:
    """JSON in UTF-8; what can't be written so (half a character) becomes a question mark."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _file(file: OutFile) -> dict[str, Any]:
    path = Path(file.path)
    with path.open("rb") as stream:
        data = stream.read(FILE_LIMIT + 1)
    if len(data) > FILE_LIMIT:
        raise TooLarge(f"the file {file.name!r} is over {FILE_LIMIT} bytes", limit=FILE_LIMIT)
    return {
        "name": file.name,
        "mime": file.mime,
        "size": len(data),
        "content_base64": base64.b64encode(data).decode(),
    }
