"""From the sync to the core: each event is stored before the position in the sync moves on (channels.md R2, R3)."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from jackfield.api import ChannelContext, Cursor
from jackfield.errors import (
    AuthFailed,
    BadContent,
    ChannelError,
    ChatNotFound,
    JackfieldError,
    MalformedData,
    Transient,
)
from jackfield.models import Address, ChannelState, ChannelStatus, ConversationChange, ConversationChanged, Event

from jackfield_channel_matrix.crypto import Crypto
from jackfield_channel_matrix.homeserver import CLIENT, Homeserver, quoted
from jackfield_channel_matrix.reading import content_of, occurred_at
from jackfield_channel_matrix.rooms import Rooms
from jackfield_channel_matrix.settings import MatrixSettings
from jackfield_channel_matrix.translate import Translator

__all__ = ["CURSOR", "Intake", "since_invited"]

log = logging.getLogger(__name__)

Raw = Mapping[str, Any]

CURSOR = "sync"
POLL = 30.0
"""Seconds that the homeserver waits for something new."""
_GAP = 2000
"""How many events of one room are fetched that a sync left out."""


class Intake:
    """Reads the sync of one account."""

    def __init__(
        self,
        homeserver: Homeserver,
        rooms: Rooms,
        translator: Translator,
        crypto: Crypto | None,
        settings: MatrixSettings,
        context: ChannelContext,
        *,
        since: str | None,
        began: Callable[[str], Awaitable[None]],
    ) -> None:
        self._homeserver = homeserver
        self._rooms = rooms
        self._translator = translator
        self._crypto = crypto
        self._settings = settings
        self._context = context
        self._since = since
        self._began = began
        self._whole = crypto is not None
        """Whether the next sync asks for the whole state: the keys need to know who is in each room."""
        self._missed = ""
        """What the status says of messages that could not be read because our position was lost."""
        self._told: set[str] = set()
        self._shown = ""
        """What the status says of messages that can't be read."""

    async def listen(self, ready: Callable[[], None]) -> None:
        """Sync until it fails; `ready` is called once the homeserver answers.  For the kit's `supervise`.

        Raises:
            ChannelError: the homeserver can't be reached, or does not know us any more.
        """
        await self._rooms.direct.load()
        if self._since is None:
            await self._begin()
        else:
            try:
                answer = await self._sync(self._since, 0.0)
            except BadContent as problem:
                await self._begin_again(problem)
            else:
                await self._round(answer)
        ready()
        self._shown = ""
        while True:
            self._show_unread()
            await self._round(await self._sync(self._since, POLL))
            ready()

    async def _begin(self) -> None:
        """From now on: what was written before belongs to others."""
        answer = await self._sync(None, 0.0)
        await self._prepare(answer)
        self._since = str(answer["next_batch"])
        await self._began(self._since)

    async def _begin_again(self, problem: BadContent) -> None:
        """The homeserver does not take our position: its database was put back, or another one answers at its address.
        Asking again would never mend it.  What was written since the position can't be told from history."""
        log.warning("the homeserver refuses the position in its sync, what came since is not read: %s", problem)
        await self._begin()
        self._missed = "messages may have been missed: the homeserver did not know where reading had ended"

    def _show_unread(self) -> None:
        """Say in the status what can't be read, and when it could be (C240)."""
        unread = ""
        if self._crypto is None and self._told:
            unread = f"{len(self._told)} rooms are encrypted and can't be read; set encryption = true"
        elif self._crypto is not None and self._crypto.waiting[0]:
            messages, rooms = self._crypto.waiting
            unread = f"{messages} messages of {rooms} rooms can't be read: their keys have not come"
        detail = "; ".join(filter(None, (self._missed, unread)))
        if detail != self._shown:
            self._shown = detail
            state = ChannelState.DEGRADED if detail else ChannelState.READY
            self._context.report(ChannelStatus(state=state, detail=detail))

    async def _sync(self, since: str | None, wait: float) -> dict[str, Any]:
        wanted = _filter(1 if since is None else 50, lazily=self._crypto is None)
        query: dict[str, Any] = {"timeout": int(wait * 1000), "filter": json.dumps(wanted)}
        if since is not None:
            query["since"] = since
        if self._whole:
            query["full_state"] = "true"
        answer = await self._homeserver.request("GET", f"{CLIENT}/sync", query=query, seconds=wait + 60.0)
        if not isinstance(answer.get("next_batch"), str):
            raise Transient("the homeserver's sync has no position")
        return answer

    async def _round(self, answer: Raw) -> None:
        """Take one answer: everything in it is stored, then the position moves."""
        await self._prepare(answer)
        events: list[Event] = []
        released = self._crypto.released(self._context.clock.now()) if self._crypto is not None else []
        for room_id, plain in released:
            events += await self._understood(room_id, plain, True)
        for room_id, room in _tables(_table(answer, "rooms"), "join"):
            events += await self._room(room_id, room)
        for room_id, room in _tables(_table(answer, "rooms"), "leave"):
            events += self._left(room_id, room)
        cursor = Cursor(CURSOR, str(answer["next_batch"]))
        for number, event in enumerate(events, 1):
            try:
                await self._context.accept(event, cursor if number == len(events) else None)
            except MalformedData:
                log.exception("an event of %s can't be stored and is left out", event.address.platform_id)
            except ChannelError:
                raise
            except JackfieldError as problem:
                raise Transient(f"what was written could not be stored: {problem}") from problem
        self._since = cursor.value
        if self._crypto is not None and released:
            self._crypto.settled(plain for _, plain in released)

    async def _prepare(self, answer: Raw) -> None:
        """What must be known before events are read: keys, direct messages, invitations, the state of rooms."""
        if self._crypto is not None:
            await self._crypto.take(answer)
            self._whole = False
        for event in _events(answer, "account_data"):
            if event.get("type") == "m.direct":
                self._rooms.direct.take(content_of(event))
        for room_id, room in _tables(_table(answer, "rooms"), "join"):
            known = self._rooms.known(room_id)
            if _table(room, "timeline").get("limited") is True:
                self._rooms.forget(room_id)  # who came and went in the gap is not told when members load lazily
            elif known is not None:
                for event in (*_events(room, "state"), *_events(room, "timeline")):
                    if "state_key" in event:
                        known.take(event)
        for room_id, room in _tables(_table(answer, "rooms"), "invite"):
            await self._invited(room_id, _events(room, "invite_state"))

    # ---- rooms

    async def _room(self, room_id: str, room: Raw) -> list[Event]:
        timeline = _table(room, "timeline")
        events = _events(room, "timeline")
        gap: list[Raw] = []
        if timeline.get("limited") is True and self._since is not None:
            gap = await self._gap(room_id, str(timeline.get("prev_batch", "")), events)
        late = {id(event) for event in gap}
        found: list[Event] = []
        for event in since_invited((*gap, *events), self._homeserver.user_id):
            found += await self._understood(room_id, event, id(event) in late)
        return found

    async def _understood(self, room_id: str, event: Raw, late: bool) -> Sequence[Event]:
        """What the core is to know of an event; nothing of one that a stranger made to be understood by nobody."""
        try:
            return await self._event(room_id, event, late)
        except ChannelError as problem:
            if isinstance(problem, AuthFailed | Transient):
                raise
            log.warning("an event of %s is left out: %s", room_id, problem)
        except Exception:
            log.exception("an event of %s can't be understood and is left out", room_id)
        return ()

    async def _event(self, room_id: str, event: Raw, late: bool) -> Sequence[Event]:
        if event.get("type") == "m.room.encrypted":
            plain = self._crypto.decrypt(room_id, event) if self._crypto is not None else None
            if plain is None:
                await self._closed(room_id, event)
                return ()
            event = plain
        if event.get("type") == "m.room.tombstone" and "state_key" in event:
            return await self._moved(room_id, event)
        return await self._translator.events(room_id, event, backfill=late)

    async def _closed(self, room_id: str, event: Raw) -> None:
        """An event that we can't read."""
        if event.get("sender") == self._homeserver.user_id:
            return
        if self._crypto is not None:
            await self._crypto.wait_for_key(room_id, event)
        if room_id not in self._told:
            self._told.add(room_id)
            why = "set encryption = true" if self._crypto is None else "its key has not come; it is asked for"
            log.warning("a message in %s is encrypted and can't be read: %s", room_id, why)

    async def _gap(self, room_id: str, before: str, known: Sequence[Raw]) -> list[Raw]:
        """What a sync left out between the last position and its timeline, oldest first (C011)."""
        path = f"{CLIENT}/rooms/{quoted(room_id)}/messages"
        found: list[Raw] = []
        while before and len(found) < _GAP:
            query = {"dir": "b", "from": before, "to": self._since, "limit": 100}
            try:
                answer = await self._homeserver.request("GET", path, query=query)
            except ChatNotFound:
                break
            chunk = _events(answer, "chunk", direct=True)
            found += chunk
            before = str(answer.get("end") or "") if chunk else ""
            if any(_membership(event, self._homeserver.user_id) == "invite" for event in chunk):
                break  # what was before is history
        if len(found) >= _GAP:
            log.warning("more than %s events were missed in %s; the oldest are left out", _GAP, room_id)
        ids = {event.get("event_id") for event in known}
        return [event for event in reversed(found) if event.get("event_id") not in ids]

    def _left(self, room_id: str, room: Raw) -> list[Event]:
        """We left, or were put out."""
        self._rooms.forget(room_id)
        own = self._homeserver.user_id
        for event in reversed(_events(room, "timeline")):
            if event.get("type") == "m.room.member" and event.get("state_key") == own:
                change = ConversationChange.LEFT if event.get("sender") == own else ConversationChange.REMOVED
                return [self._changed(room_id, event, change)]
        return []

    async def _invited(self, room_id: str, events: Sequence[Raw]) -> None:
        own = self._homeserver.user_id
        for event in events:
            if event.get("type") != "m.room.member" or event.get("state_key") != own:
                continue
            sender = str(event.get("sender", ""))
            if content_of(event).get("membership") != "invite":
                continue
            if not self._settings.invited_by(sender):
                log.info("an invitation of %s is not answered: they are not in `invites`", sender)
                continue
            try:
                await self._homeserver.request("POST", f"{CLIENT}/join/{quoted(room_id)}", {})
                if content_of(event).get("is_direct") is True:
                    await self._rooms.direct.add(sender, room_id)
            except (AuthFailed, Transient):
                raise
            except ChannelError as problem:
                log.warning("the invitation of %s into %s could not be accepted: %s", sender, room_id, problem)

    async def _moved(self, room_id: str, event: Raw) -> Sequence[Event]:
        """The room was replaced by another; if we get in, the chat goes with it."""
        new = content_of(event).get("replacement_room")
        if not isinstance(new, str) or not new.startswith("!"):
            return ()
        server = str(event.get("sender", "")).partition(":")[2]
        try:
            await self._homeserver.request("POST", f"{CLIENT}/join/{quoted(new)}", {}, query={"server_name": server})
        except (AuthFailed, Transient):
            raise
        except ChannelError as problem:
            log.warning("room %s was replaced by %s, and we can't join it: %s", room_id, new, problem)
            return ()
        return [self._changed(room_id, event, ConversationChange.MIGRATED, new)]

    def _changed(self, room_id: str, event: Raw, change: ConversationChange, new: str | None = None) -> Event:
        instance = self._context.instance
        return ConversationChanged(
            address=Address("matrix", instance, room_id),
            dedupe_key=str(event.get("event_id", "")) or f"{room_id}:{change}:{event.get('origin_server_ts')}",
            occurred_at=occurred_at(event, self._context.clock.now()),
            change=change,
            new_address=None if new is None else Address("matrix", instance, new),
        )


def since_invited(events: Sequence[Raw], user: str) -> Sequence[Raw]:
    """Without what was written before the user was invited or came in: that is history, addressed to others."""
    start = 0
    invited = False
    for number, event in enumerate(events):
        change = _membership(event, user)
        if change == "invite" or (change == "join" and not invited):
            start = number
        if change is not None:
            invited = change == "invite"
    return events[start:]


def _membership(event: Raw, user: str) -> str | None:
    """What this event changes about the user's being in the room; None for others, and for a new name or picture."""
    if event.get("type") != "m.room.member" or event.get("state_key") != user:
        return None
    now = content_of(event).get("membership")
    before = _table(_table(event, "unsigned"), "prev_content").get("membership")
    return now if isinstance(now, str) and now != before else None


def _filter(timeline: int, *, lazily: bool) -> dict[str, Any]:
    """What a sync shall hold.  With `lazily`, of the members only those who wrote."""
    return {
        "presence": {"types": []},
        "account_data": {"types": ["m.direct"]},
        "room": {
            "ephemeral": {"types": []},
            "account_data": {"types": []},
            "timeline": {"limit": timeline},
            "state": {"lazy_load_members": lazily},
        },
    }


def _table(value: Raw, name: str) -> Raw:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _tables(value: Raw, name: str) -> Iterable[tuple[str, Raw]]:
    return [(key, one) for key, one in _table(value, name).items() if isinstance(one, dict)]


def _events(value: Raw, name: str, *, direct: bool = False) -> list[Raw]:
    found = value.get(name) if direct else _table(value, name).get("events")
    return [event for event in found if isinstance(event, dict)] if isinstance(found, list) else []
