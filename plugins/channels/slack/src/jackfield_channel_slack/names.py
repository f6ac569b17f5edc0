"""Names of people and conversations, which Slack's events don't carry: asked for once, kept for a while."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from jackfield.clock import Clock
from jackfield.errors import ChannelError
from jackfield.models import ConversationKind

from jackfield_channel_slack.api import WebApi

__all__ = ["Conversation", "Known", "Names", "User"]

log = logging.getLogger(__name__)

KEPT_SECONDS = 3600.0
FAILED_SECONDS = 60.0
SIZE = 5000
PATIENCE = 1.0
"""Seconds that an event waits for names: Slack wants its acknowledgement within 3."""


@dataclass(frozen=True, slots=True)
class User:
    name: str
    is_bot: bool = False


@dataclass(frozen=True, slots=True)
class Conversation:
    name: str | None = None
    kind: ConversationKind = ConversationKind.CHANNEL


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the ids in one event."""

    users: dict[str, User] = field(default_factory=dict)
    conversation: Conversation | None = None

    @property
    def names(self) -> dict[str, str]:
        return {user: found.name for user, found in self.users.items()}


class Names:
    """A bounded cache; an id is asked for once at a time, and not again for a minute when that failed."""

    def __init__(self, api: WebApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, Any]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[Any]] = {}

    async def known(self, users: Collection[str], conversation: str | None) -> Known:
        """What can be said within `PATIENCE` seconds; what comes later is there the next time."""
        asked = {user: self._ask(user, self._user) for user in users}
        if conversation is not None and not conversation.startswith("D"):
            asked[conversation] = self._ask(conversation, self._conversation)
        tasks = [one for one in asked.values() if isinstance(one, asyncio.Task)]
        if tasks:
            await asyncio.wait(tasks, timeout=PATIENCE)
        found = {key: self._value(one) for key, one in asked.items()}
        return Known(
            {user: found[user] for user in users if isinstance(found[user], User)},
            found.get(conversation) if conversation is not None else None,
        )

    def forget(self, key: str) -> None:
        """It was renamed."""
        self._kept.pop(key, None)

    async def close(self) -> None:
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ask(self, key: str, ask: Callable[[str], Awaitable[Any]]) -> Any:
        kept = self._kept.get(key)
        if kept is not None and kept[0] > self._clock.monotonic():
            return kept[1]
        if key not in self._asking:
            self._asking[key] = asyncio.create_task(self._keep(key, ask), name=f"slack name {key}")
        return self._asking[key]

    async def _keep(self, key: str, ask: Callable[[str], Awaitable[Any]]) -> Any:
        seconds, value = FAILED_SECONDS, None
        try:
            value = await ask(key)
            seconds = KEPT_SECONDS
        except ChannelError as problem:
            log.debug("no name for %s: %s", key, problem)
        finally:
            del self._asking[key]
        self._kept[key] = (self._clock.monotonic() + seconds, value)
        self._kept.move_to_end(key)
        while len(self._kept) > SIZE:
            self._kept.popitem(last=False)
        return value

    @staticmethod
    def _value(one: Any) -> Any:
        if not isinstance(one, asyncio.Task):
            return one
        return one.result() if one.done() and not one.cancelled() and one.exception() is None else None

    async def _user(self, user: str) -> User:
        said = (await self._api.read("users.info", {"user": user})).get("user") or {}
        profile = said.get("profile") or {}
        names = (profile.get("display_name"), profile.get("real_name"), said.get("real_name"), said.get("name"), user)
        return User(next(name for name in names if name), bool(said.get("is_bot")))

    async def _conversation(self, conversation: str) -> Conversation:
        said = (await self._api.read("conversations.info", {"channel": conversation})).get("channel") or {}
        if said.get("is_im"):
            kind = ConversationKind.DM
        else:
            kind = ConversationKind.GROUP if said.get("is_mpim") else ConversationKind.CHANNEL
        return Conversation(said.get("name") or None, kind)
