"""What we know of the rooms that we are in: asked for when it is first needed, kept up to date by the sync."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jackfield.errors import ChatNotFound, SendNotAllowed

from jackfield_channel_matrix.homeserver import CLIENT, Homeserver, quoted

__all__ = ["Direct", "Room", "Rooms"]

Raw = Mapping[str, Any]

ROOMS = 1000
"""How many rooms are kept in mind."""


@dataclass(slots=True)
class Room:
    """One room.  `members` are those who joined or are invited, with their names."""

    id: str
    name: str | None = None
    encrypted: bool = False
    members: dict[str, str | None] = field(default_factory=dict)

    def take(self, event: Raw) -> None:
        """Change by a state event."""
        kind, content = event.get("type"), event.get("content")
        if not isinstance(content, dict):
            return
        if kind == "m.room.name":
            name = content.get("name")
            self.name = name if isinstance(name, str) and name.strip() else None
        elif kind == "m.room.encryption":
            self.encrypted = True
        elif kind == "m.room.member" and isinstance(user := event.get("state_key"), str):
            if content.get("membership") in ("join", "invite"):
                name = content.get("displayname")
                self.members[user] = name if isinstance(name, str) and name.strip() else None
            else:
                self.members.pop(user, None)


class Direct:
    """The account data `m.direct`: which rooms are direct messages, and with whom."""

    def __init__(self, homeserver: Homeserver) -> None:
        self._homeserver = homeserver
        self._rooms: dict[str, list[str]] = {}
        self._lock = asyncio.Lock()

    def __contains__(self, room: str) -> bool:
        return any(room in rooms for rooms in self._rooms.values())

    def take(self, content: Raw) -> None:
        """What the homeserver has."""
        self._rooms = {
            user: [room for room in rooms if isinstance(room, str)]
            for user, rooms in content.items()
            if isinstance(rooms, list)
        }

    async def load(self) -> None:
        try:
            self.take(await self._homeserver.request("GET", self._path))
        except ChatNotFound:
            self._rooms = {}

    def with_person(self, user: str) -> Sequence[str]:
        """Newest last."""
        return self._rooms.get(user, ())

    async def add(self, user: str, room: str) -> None:
        """Say that this room is a direct message with that person."""
        async with self._lock:
            await self.load()  # other sessions of the account may have changed it
            if room not in self._rooms.setdefault(user, []):
                self._rooms[user].append(room)
                await self._homeserver.request("PUT", self._path, self._rooms)

    @property
    def _path(self) -> str:
        return f"{CLIENT}/user/{quoted(self._homeserver.user_id)}/account_data/m.direct"


class Rooms:
    """The rooms by id."""

    def __init__(self, homeserver: Homeserver) -> None:
        self._homeserver = homeserver
        self._rooms: OrderedDict[str, Room] = OrderedDict()
        self.direct = Direct(homeserver)

    def known(self, room_id: str) -> Room | None:
        return self._rooms.get(room_id)

    def forget(self, room_id: str) -> None:
        self._rooms.pop(room_id, None)

    async def get(self, room_id: str) -> Room:
        """The room; the homeserver is asked for one that is not known.

        Raises:
            ChannelError: it could not be asked, or we are not in there.
        """
        room = self._rooms.get(room_id)
        if room is None:
            room = await self._load(room_id)
            self._rooms[room_id] = room
            while len(self._rooms) > ROOMS:
                self._rooms.popitem(last=False)
        self._rooms.move_to_end(room_id)
        return room

    def is_group(self, room: Room) -> bool:
        """Two people, and the account says it is direct or nobody named it: a direct message.  Everything else is a
        group, also a direct message that a third person came into."""
        return len(room.members) > 2 or not (room.id in self.direct or room.name is None)

    async def direct_with(self, user: str) -> str | None:
        """The newest room that is a direct message with that person, who is still in it."""
        for room_id in reversed(self.direct.with_person(user)):
            try:
                room = await self.get(room_id)
            except (SendNotAllowed, ChatNotFound):
                continue
            if user in room.members and not self.is_group(room):
                return room_id
        return None

    async def _load(self, room_id: str) -> Room:
        base = f"{CLIENT}/rooms/{quoted(room_id)}"
        room = Room(room_id)
        members, name, encryption = await asyncio.gather(
            self._homeserver.request("GET", f"{base}/members", query={"not_membership": "leave"}),
            self._state(f"{base}/state/m.room.name/"),
            self._state(f"{base}/state/m.room.encryption/"),
        )
        for event in members.get("chunk", ()):
            room.take(event)
        room.take({"type": "m.room.name", "content": name})
        if encryption is not None:
            room.take({"type": "m.room.encryption", "content": encryption})
        return room

    async def _state(self, path: str) -> dict[str, Any] | None:
        try:
            return await self._homeserver.request("GET", path)
        except ChatNotFound:
            return None
