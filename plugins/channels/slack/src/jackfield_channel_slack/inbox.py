"""What Slack tells us, by either way, to the core: stored first, acknowledged after.

Messages of one conversation are taken in their order, each when the one before is stored.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs
from weakref import WeakValueDictionary

from jackfield.api import ChannelContext, RawRequest, RawResponse
from jackfield.errors import JackfieldError
from jackfield.models import Address, MessageReceived
from jackfield_channel_kit.verify import Refused, slack

from jackfield_channel_slack.api import Identity, user_of
from jackfield_channel_slack.catching_up import seen
from jackfield_channel_slack.names import Names
from jackfield_channel_slack.reading import Reader, conversation_of, people_of

__all__ = ["Inbox"]

log = logging.getLogger(__name__)

ACK_SECONDS = 2.0
"""A click is acknowledged after so long even when it is not stored yet: after 3 s its button shows a failure (a
message has no such deadline, for Slack sends it again)."""
REMEMBERED = 1000


class Inbox:
    """For one instance, from when we know who we are."""

    def __init__(
        self,
        context: ChannelContext,
        me: Identity,
        reader: Reader,
        names: Names,
        revoked: Callable[[str], Awaitable[None]],
    ) -> None:
        self._context = context
        self._me = me
        self._reader = reader
        self._names = names
        self._revoked = revoked
        self._lanes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._clicks: set[asyncio.Task[None]] = set()
        self._told_foreign = False
        self.last_speaker: OrderedDict[Address, tuple[str, str]] = OrderedDict()
        """User and team of whoever wrote last in a thread: whom a stream is for."""
        self.response_urls: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        """How to answer a click on a message that only the clicker sees: by conversation, ts and user."""

    async def envelope(self, envelope: Mapping[str, Any]) -> None:
        """From a socket; returns when it may be acknowledged.

        Raises:
            JackfieldError: it could not be stored.
        """
        payload = envelope.get("payload")
        if not isinstance(payload, Mapping):
            return
        if envelope.get("type") == "events_api":
            await self._event(payload, redelivered=bool(envelope.get("retry_attempt")))
        elif envelope.get("type") == "interactive":
            await self._click(payload)

    async def request(self, request: RawRequest, secrets: tuple[str, ...]) -> RawResponse:
        """From Slack's own request, signed over the raw body, JSON or form."""
        try:
            slack(request.headers, request.body, secrets, self._context.clock.now() / 1000)
        except Refused as problem:
            log.warning("slack %s: %s", self._context.instance, problem)
            return RawResponse(status=401)
        headers = {name.lower(): value for name, value in request.headers}
        try:
            if headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
                form = parse_qs(request.body.decode(), max_num_fields=100)
                payload = json.loads(form["payload"][0]) if "payload" in form else {"type": "command"}
            else:
                payload = json.loads(request.body)
        except (ValueError, RecursionError):
            return RawResponse(status=400)
        if not isinstance(payload, dict):
            return RawResponse(status=400)
        if payload.get("type") == "url_verification":
            challenge = str(payload.get("challenge") or "")
            return RawResponse(headers=(("content-type", "text/plain"),), body=challenge.encode())
        if payload.get("type") == "event_callback":
            await self._event(payload, redelivered="x-slack-retry-num" in headers)
        elif payload.get("type") == "block_actions":
            await self._click(payload)
        return RawResponse()

    async def close(self) -> None:
        tasks = list(self._clicks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._names.close()

    # ---- inside

    async def _event(self, payload: Mapping[str, Any], *, redelivered: bool) -> None:
        event = payload.get("event")
        if not isinstance(event, Mapping) or not self._is_ours(payload):
            return
        kind = event.get("type")
        if kind == "app_uninstalled" or (kind == "tokens_revoked" and (event.get("tokens") or {}).get("bot")):
            await self._revoked("the app was removed from the workspace")
            return
        conversation = conversation_of(event)
        if conversation is None:
            return
        if kind in ("channel_rename", "group_rename"):
            self._names.forget(conversation)
        async with self._lanes.setdefault(conversation, asyncio.Lock()):
            known = await self._names.known(people_of(event), conversation)
            found = self._reader.read(event, known, now=self._context.clock.now(), redelivered=redelivered)
            if found is None:
                return
            if isinstance(found, MessageReceived) and not found.sender.is_bot:
                team = str(event.get("user_team") or event.get("team") or self._me.team_id)
                _remember(self.last_speaker, found.address, (user_of(found.sender.handle), team))
            cursor = seen(conversation, found.ref.ids[0]) if isinstance(found, MessageReceived) else None
            await self._context.accept(found, cursor)

    async def _click(self, payload: Mapping[str, Any]) -> None:
        event = self._reader.click(payload, now=self._context.clock.now())
        if event is None:
            return
        url = payload.get("response_url")
        if event.responder is not None and isinstance(url, str):
            conversation, ts, user, _, hidden = json.loads(event.responder)
            if hidden:
                _remember(self.response_urls, (conversation, ts, user), url)

        async def store() -> None:
            await self._context.accept(event)

        task = asyncio.create_task(store(), name="slack click")
        self._clicks.add(task)
        task.add_done_callback(self._stored)
        done, _ = await asyncio.wait({task}, timeout=ACK_SECONDS)
        if done:
            task.result()

    def _stored(self, task: asyncio.Task[None]) -> None:
        self._clicks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            level = logging.WARNING if isinstance(problem, JackfieldError) else logging.ERROR
            log.log(level, "a click could not be stored: %s", problem)

    def _is_ours(self, payload: Mapping[str, Any]) -> bool:
        """Whether it is for this workspace: an app that is installed in several gets the events of all."""
        me = self._me
        installed = [one for one in payload.get("authorizations") or () if isinstance(one, Mapping)]
        if not installed:
            team = payload.get("team_id")
            return team in (None, me.team_id) or me.enterprise_id is not None
        for one in installed:
            if one.get("team_id") == me.team_id or (me.enterprise_id and one.get("enterprise_id") == me.enterprise_id):
                return True
        if not self._told_foreign:
            self._told_foreign = True
            log.warning(
                "slack %s: the app is installed in another workspace too, whose messages are left out; make an app for"
                " each workspace",
                self._context.instance,
            )
        return False


def _remember(memory: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > REMEMBERED:
        memory.popitem(last=False)
