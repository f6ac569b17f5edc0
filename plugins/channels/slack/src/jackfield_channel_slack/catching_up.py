"""What was written while nobody listened for longer than Slack repeats (about five minutes): read from the history.

Only conversations from which something was stored before are looked at, from there on, in order, before anything new
is taken.  It is bounded: after a long absence the newest messages of the liveliest conversations are brought.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from jackfield.api import ChannelContext, Cursor
from jackfield.errors import ChannelError

from jackfield_channel_slack.api import WebApi
from jackfield_channel_slack.names import Names
from jackfield_channel_slack.reading import Reader, people_of

__all__ = ["catch_up", "seen"]

log = logging.getLogger(__name__)

CONVERSATIONS = 40
"""Slack lets an app read the history about 50 times a minute."""
MESSAGES = 50
THREADS = 10
"""Threads of one conversation that are looked into."""
SECONDS = 20.0


def seen(conversation: str, ts: str) -> Cursor:
    """That the messages of a conversation are stored up to this one."""
    return Cursor(f"seen:{conversation}", ts)


async def catch_up(context: ChannelContext, api: WebApi, reader: Reader, names: Names) -> None:
    """Take what was missed.  What Slack refuses to tell is left; it may be asked for again after the next absence.

    Raises:
        JackfieldError: something could not be stored.
    """
    try:
        async with asyncio.timeout(SECONDS):
            known: list[tuple[str, str]] = []
            async for conversation in _conversations(api):
                stored = await context.cursor(f"seen:{conversation}")
                if stored is not None:
                    known.append((stored, conversation))
            for stored, conversation in sorted(known, reverse=True)[:CONVERSATIONS]:
                for message in await _missed(api, conversation, stored):
                    found = reader.message(
                        message,
                        conversation,
                        await names.known(people_of(message), conversation),
                        now=context.clock.now(),
                        history=True,
                    )
                    if found is not None and not found.sender.is_self:
                        await context.accept(found, seen(conversation, message["ts"]))
    except (ChannelError, TimeoutError) as problem:
        log.warning("slack %s: not all that was missed could be read: %s", context.instance, problem or "no time")


async def _conversations(api: WebApi) -> AsyncGenerator[str, None]:
    """Ids of the conversations that we are in."""
    fields: dict[str, Any] = {
        "types": "public_channel,private_channel,mpim,im",
        "limit": 200,
        "exclude_archived": "true",
    }
    while True:
        said = await api.read("users.conversations", fields)
        for one in said.get("channels") or ():
            if isinstance(one, Mapping) and isinstance(one.get("id"), str):
                yield one["id"]
        cursor = (said.get("response_metadata") or {}).get("next_cursor")
        if not cursor:
            return
        fields["cursor"] = cursor


async def _missed(api: WebApi, conversation: str, stored: str) -> list[dict[str, Any]]:
    """Messages after the stored one, answers in threads among them, oldest first."""
    said = await api.read("conversations.history", {"channel": conversation, "limit": MESSAGES})
    recent = [one for one in said.get("messages") or () if isinstance(one, dict) and isinstance(one.get("ts"), str)]
    found = {one["ts"]: one for one in recent if one["ts"] > stored}
    for root in [one for one in recent if str(one.get("latest_reply") or "") > stored][:THREADS]:
        fields = {"channel": conversation, "ts": root["ts"], "oldest": stored, "limit": MESSAGES}
        said = await api.read("conversations.replies", fields)
        replies = [one for one in said.get("messages") or () if isinstance(one, dict)]
        found |= {one["ts"]: one for one in replies if isinstance(one.get("ts"), str) and one["ts"] > stored}
    return [found[ts] for ts in sorted(found)]
