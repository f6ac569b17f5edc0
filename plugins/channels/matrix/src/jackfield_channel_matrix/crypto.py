"""Encrypted rooms, by matrix-nio: its store, its keys, its sessions.

Messages go to all devices of a room's members: an agent has no screen on which to compare emoji (see the README).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jackfield.clock import UnixMs
from jackfield.errors import ConfigError, JackfieldError, SendNotAllowed, Transient

from jackfield_channel_matrix.reading import occurred_at

if TYPE_CHECKING:
    from nio import AsyncClient, MegolmEvent

__all__ = ["Crypto", "decrypted_file", "encrypted_file", "store_folder"]

log = logging.getLogger(__name__)

Raw = Mapping[str, Any]

WAITING = 500
"""How many messages wait for their keys; the oldest are given up."""
WAITING_MS = 7 * 24 * 3600 * 1000
"""How long they wait: a key that has not come in a week does not come, and what anybody forged has none."""
_WAITING_FILE = "waiting.json"
_WAITING_BYTES = 64 * 1024 * 1024
"""More than `WAITING` events of the largest size have: a larger file is none of ours."""


def store_folder(folder: Path) -> Path:
    """Where the keys lie: for the owner only.

    Raises:
        ConfigError: what encryption needs is not installed.
    """
    from nio.crypto import ENCRYPTION_ENABLED

    if not ENCRYPTION_ENABLED:
        raise ConfigError(
            "encryption = true, and what it needs is not installed",
            fix="pip install 'jackfield-channel-matrix[e2e]', or set encryption = false",
        )
    found = folder / "crypto"
    found.mkdir(mode=0o700, parents=True, exist_ok=True)
    return found


class Crypto:
    """The account's keys.  `take` every sync before its events are read.

    Messages whose keys have not come lie beside the keys, in a file: the position in the sync has passed them, and
    nothing else remembers them over a restart (C240).  They are as they came, hidden.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._file = Path(client.store_path) / _WAITING_FILE
        self._waiting: OrderedDict[str, tuple[str, Raw]] = OrderedDict()
        self._sharing: dict[str, asyncio.Lock] = {}

    @property
    def waiting(self) -> tuple[int, int]:
        """How many messages wait for their keys, and in how many rooms."""
        return len(self._waiting), len({room for room, _ in self._waiting.values()})

    def open(self) -> None:
        """Load the store, and make our keys if this is a new device.

        Raises:
            ConfigError: the store can't be read.
        """
        import nio
        import peewee

        try:
            self._client.load_store()
        except (nio.LocalProtocolError, peewee.PeeweeException, OSError, ValueError) as problem:
            raise ConfigError(
                f"the keys in {self._client.store_path} can't be read: {problem}",
                fix="restore the folder from a backup, or remove it to begin as a new device",
            ) from None
        self._waiting = _read_waiting(self._file)

    async def take(self, answer: Raw) -> None:
        """What a sync brings for encryption: keys, devices, who is in which room.

        Raises:
            Transient: our keys could not be published.
        """
        import nio

        response = nio.SyncResponse.from_dict(_for_nio(answer))
        if not isinstance(response, nio.SyncResponse):
            log.warning("a sync has a shape that matrix-nio does not take; its keys are lost: %s", response)
            return
        await self._client.receive_response(response)
        with_errors: list[object] = []
        if self._client.should_upload_keys:
            with_errors.append(await self._asked(self._client.keys_upload()))
        if self._client.should_query_keys:
            with_errors.append(await self._asked(self._client.keys_query()))
        if self._client.should_claim_keys:
            users = self._client.get_users_for_key_claiming()
            with_errors.append(await self._asked(self._client.keys_claim(users)))
        with_errors += await self._asked(self._client.send_to_device_messages())
        for one in with_errors:
            if isinstance(one, nio.ErrorResponse):
                log.warning("the homeserver did not take what encryption needs: %s", one)

    async def encrypt(self, room: str, kind: str, content: Raw) -> tuple[str, dict[str, Any]]:
        """Kind and content of the event that hides this one.

        Raises:
            Transient: the room's keys could not be shared now.
        """
        import nio

        if kind == "m.reaction":
            return kind, dict(content)
        known = self._client.rooms.get(room)
        if known is None or not known.encrypted:
            known = self._client.rooms[room] = known or nio.MatrixRoom(room, self._client.user_id, encrypted=True)
            known.encrypted = True
        assert self._client.olm is not None
        async with self._sharing.setdefault(room, asyncio.Lock()):
            if not known.members_synced:
                await self._asked(self._client.joined_members(room))
                self._client.olm.update_tracked_users(known)
            if self._client.should_query_keys:
                await self._asked(self._client.keys_query())
            try:
                if self._client.olm.should_share_group_session(room):
                    await self._asked(self._client.share_group_session(room, ignore_unverified_devices=True))
                hidden = self._client.encrypt(room, kind, dict(content))
            except (nio.EncryptionError, nio.LocalProtocolError) as problem:
                raise Transient(f"the message could not be encrypted: {problem}") from None
        return str(hidden[0]), dict(hidden[1])

    def decrypt(self, room: str, event: Raw) -> Raw | None:
        """What an `m.room.encrypted` event hides; None when its key is not here."""
        import nio

        parsed = _megolm(room, event)
        if parsed is None:
            return None
        try:
            found = self._client.decrypt_event(parsed)
        except (nio.EncryptionError, ValueError, KeyError, TypeError) as problem:  # a stranger wrote it
            log.info("an event of %s can't be decrypted yet: %s", room, problem)
            return None
        source = getattr(found, "source", None)
        if not isinstance(source, dict):
            return None
        # The envelope's facts are the server's; a relation may stand outside (threads, edits), where servers need it.
        content = source.get("content")
        content = dict(content) if isinstance(content, dict) else {}
        outside = event.get("content")
        if "m.relates_to" not in content and isinstance(outside, dict) and "m.relates_to" in outside:
            content["m.relates_to"] = outside["m.relates_to"]
        return {**event, "type": source.get("type"), "content": content, "decrypted": True}

    async def wait_for_key(self, room: str, event: Raw) -> None:
        """Keep an event that can't be decrypted, and ask our other devices and the sender for its key.

        One of a shape that no key opens is not kept.

        Raises:
            Transient: it could not be kept; the position must not pass it.
        """
        import nio

        parsed = _megolm(room, event)
        if parsed is None:
            return
        event_id = str(event.get("event_id", ""))
        self._waiting[event_id] = (room, event)
        while len(self._waiting) > WAITING:
            self._waiting.popitem(last=False)
        self._write()
        with suppress(nio.LocalProtocolError, JackfieldError):  # asked for already; or later by itself
            await self._asked(self._client.request_room_key(parsed))

    def released(self, now: UnixMs) -> list[tuple[str, Raw]]:
        """Waiting events whose keys have come: room and decrypted event, in order.  They wait on until `settled`."""
        for event_id, (_, event) in list(self._waiting.items()):
            if occurred_at(event, now) < now - WAITING_MS:
                del self._waiting[event_id]
        found = ((room, self.decrypt(room, event)) for room, event in self._waiting.values())
        return [(room, plain) for room, plain in found if plain is not None]

    def settled(self, events: Iterable[Raw]) -> None:
        """These events of `released` are stored.

        Raises:
            Transient: it could not be written down.
        """
        for event in events:
            self._waiting.pop(str(event.get("event_id", "")), None)
        self._write()

    def _write(self) -> None:
        fresh = self._file.with_suffix(".new")
        try:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(list(self._waiting.values()), file)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._file)
        except OSError as problem:
            raise Transient(f"what waits for its key could not be kept in {self._file}: {problem}") from None

    async def _asked(self, request: Any) -> Any:
        import aiohttp

        try:
            return await request
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            raise Transient(f"the homeserver could not be asked for keys: {type(problem).__name__} {problem}") from None


def _read_waiting(file: Path) -> OrderedDict[str, tuple[str, Raw]]:
    """What waited when we stopped; what can't be read is told and left out."""
    found: OrderedDict[str, tuple[str, Raw]] = OrderedDict()
    if not file.exists():
        return found
    try:
        if file.stat().st_size > _WAITING_BYTES:
            raise ValueError("it is too large")
        for room, event in json.loads(file.read_text(encoding="utf-8")):
            found[str(event["event_id"])] = (str(room), event)
    except (OSError, ValueError, TypeError, KeyError) as problem:
        log.warning("messages that waited for their keys can't be read from %s: %s", file, problem)
    return found


def _megolm(room: str, event: Raw) -> MegolmEvent | None:
    """An encrypted event as matrix-nio has it; None for one of a kind or shape that it does not know."""
    import nio

    content = event.get("content")
    if not isinstance(content, dict) or content.get("algorithm") != "m.megolm.v1.aes-sha2":
        return None
    parsed = nio.MegolmEvent.from_dict({**event, "room_id": room})
    if not isinstance(parsed, nio.MegolmEvent):
        return None
    parsed.room_id = room
    return parsed


def _for_nio(answer: Raw) -> dict[str, Any]:
    """A sync without what we decrypt ourselves: matrix-nio would do it a second time, and take that for a replay."""
    rooms = answer.get("rooms")
    joined = rooms.get("join", {}) if isinstance(rooms, dict) else {}
    kept: dict[str, Any] = {}
    for room_id, room in joined.items():
        timeline = room.get("timeline") or {}
        state = [event for event in timeline.get("events", ()) if "state_key" in event]
        kept[room_id] = {
            "timeline": {"events": state, "limited": False, "prev_batch": str(timeline.get("prev_batch", ""))},
            "state": room.get("state") or {"events": []},
            "ephemeral": {"events": []},
            "account_data": {"events": []},
            "summary": room.get("summary") or {},
            "unread_notifications": {},
        }
    return {
        "next_batch": answer["next_batch"],
        "device_one_time_keys_count": answer.get("device_one_time_keys_count") or {},
        "device_lists": {"changed": [], "left": [], **(answer.get("device_lists") or {})},
        "to_device": answer.get("to_device") or {"events": []},
        "rooms": {"invite": {}, "join": kept, "leave": {}},
        "presence": {"events": []},
        "account_data": {"events": []},
    }


async def encrypted_file(data: bytes) -> tuple[bytes, dict[str, Any]]:
    """A file's bytes as they are uploaded, and the content's `file` without its address."""
    from nio.crypto import encrypt_attachment

    hidden, keys = await asyncio.to_thread(encrypt_attachment, data)
    return bytes(hidden), dict(keys)


async def decrypted_file(data: bytes, token: Mapping[str, str]) -> bytes:
    """A file's own bytes.

    Raises:
        SendNotAllowed: they were changed on their way.
    """
    import nio
    from nio.crypto import decrypt_attachment

    try:
        return bytes(await asyncio.to_thread(decrypt_attachment, data, token["key"], token["hash"], token["iv"]))
    except (nio.EncryptionError, KeyError, ValueError) as problem:
        raise SendNotAllowed(f"the encrypted file can't be opened: {problem}") from None
