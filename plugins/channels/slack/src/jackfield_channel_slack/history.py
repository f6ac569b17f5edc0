"""What was said in a conversation or thread, for looking up whether a message arrived."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jackfield.clock import UnixMs
from jackfield.models import Address, MessageReceived

from jackfield_channel_slack.api import WebApi
from jackfield_channel_slack.names import Known
from jackfield_channel_slack.reading import Reader

__all__ = ["history"]

PAGE = 200
PAGES = 10
"""A thread can only be read from its beginning; of a longer one the end is not reached."""


async def history(
    api: WebApi, reader: Reader, address: Address, *, after: str | None, limit: int, now: UnixMs
) -> list[MessageReceived]:
    """The newest `limit` messages, or the first ones after the one named, oldest first; ours among them."""
    fields: dict[str, Any] = {"channel": address.platform_id, "oldest": after, "limit": min(limit, PAGE)}
    if address.thread_id is None:
        said = await api.read("conversations.history", fields)
        found = list(reversed(said.get("messages") or ()))
    else:
        found = []
        fields |= {"ts": address.thread_id, "limit": PAGE}
        for _ in range(PAGES):
            said = await api.read("conversations.replies", fields)
            found += said.get("messages") or ()
            cursor = (said.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                break
            fields["cursor"] = cursor
    messages = [
        message
        for one in found
        if isinstance(one, Mapping)
        and one.get("ts") != after
        and (message := reader.message(one, address.platform_id, Known(), now=now, history=True)) is not None
    ]
    return messages[:limit] if after is not None else messages[-limit:]
