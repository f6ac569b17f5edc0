"""Encrypted rooms: a real client of matrix-nio at the other end, and a real Synapse between."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nio
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from jackfield.errors import JackfieldError
from jackfield.models import Address, ChannelState, MessageEdited, MessageReceived, MessageRef, OutFile, OutMessage
from jackfield.testing import ChannelRecorder
from jackfield_channel_kit.testing.synapse import Synapse
from matrix_peer import CLIENT, MatrixPeer, Person
from test_matrix_rooms import _in, event_of, made, people, running

_ENCRYPTED = {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}


@asynccontextmanager
async def client_of(person: Person, folder: Path) -> AsyncIterator[Any]:
    """A device of theirs that can encrypt, with its keys published."""
    folder.mkdir()
    client = nio.AsyncClient(person.synapse.url, person.id, store_path=str(folder))
    await client.login(person.account.password)
    await client.sync(timeout=0, full_state=True)
    await client.keys_upload()
    try:
        yield client
    finally:
        await client.close()
        client.store.database.close()


async def seen_by(client: Any, event_id: str) -> Any:
    """What this client makes of an event, once it has come."""
    async with asyncio.timeout(30):
        while True:
            answer = await client.sync(timeout=2000)
            for room in answer.rooms.join.values():
                for event in room.timeline.events:
                    if event.event_id == event_id:
                        return event


async def said(client: Any, room: str, content: dict[str, Any]) -> str:
    await client.sync(timeout=0)
    if client.should_query_keys:
        await client.keys_query()
    answer = await client.room_send(room, "m.room.message", content, ignore_unverified_devices=True)
    return str(answer.event_id)


async def joined(peer: MatrixPeer, context: Any) -> str:
    room = await peer.ann.room(invite=(peer.bot.id,), direct=True, initial_state=[_ENCRYPTED])
    await context.until(lambda: _in(context, room), "it to join")
    return room


async def test_texts_edits_and_files_are_encrypted_both_ways_and_after_a_restart(
    synapse: Synapse, tmp_path: Path
) -> None:
    """What the homeserver holds shows nothing of them; relations stay readable, as threads and edits need it."""
    settings: dict[str, Any] = {"encryption": True, "invites": "*"}
    async with people(synapse, fresh=True) as peer, client_of(peer.ann, tmp_path / "ann") as ann:
        async with running(peer, tmp_path / "bot", **settings) as (channel, context):
            room = await joined(peer, context)
            address = Address("matrix", peer.instance, room)
            question = await said(ann, room, {"msgtype": "m.text", "body": "a secret question"})
            event = await event_of(context, MessageReceived, text="a secret question")
            assert event.ref.ids == (question,) and event.sender.handle == peer.ann.id and not event.is_group
            relates = {"rel_type": "m.replace", "event_id": question}
            new = {"msgtype": "m.text", "body": "another question"}
            await said(ann, room, {**new, "m.new_content": new, "m.relates_to": relates})
            assert (await event_of(context, MessageEdited)).text == "another question"

            sent = await channel.send(address, OutMessage(text="a **secret** answer"), idempotency_key="dl_secret")
            found = await seen_by(ann, sent.ids[0])
            assert found.decrypted and found.body == "a **secret** answer"
            again = await channel.send(address, OutMessage(text="a **secret** answer"), idempotency_key="dl_secret")
            assert again.ids == sent.ids
            assert channel.capabilities(address).e2ee
            edited = await channel.edit(MessageRef(address, sent.ids), OutMessage(text="a better answer"))
            assert edited.ids == sent.ids

            path = tmp_path / "plan.txt"
            path.write_text("the plan")
            file = OutFile(name="plan.txt", path=str(path), size=8)
            with_file = await channel.send(address, OutMessage(files=(file,)), idempotency_key="dl_file")
            found = await seen_by(ann, with_file.ids[0])
            raw = await ann.download(found.url)
            assert raw.body != b"the plan"
            key = found.source["content"]["file"]
            plain = nio.crypto.decrypt_attachment(raw.body, key["key"]["k"], key["hashes"]["sha256"], key["iv"])
            assert plain == b"the plan"
            memory = context.memory

        await said(ann, room, {"msgtype": "m.text", "body": "while it was away"})
        await said(ann, room, found.source["content"])
        async with running(peer, tmp_path / "bot", memory, **settings) as (channel, context):
            await event_of(context, MessageReceived, text="while it was away")
            file_event = await event_of(context, MessageReceived, text="")
            async with channel.open_attachment(file_event.attachments[0]) as parts:
                assert b"".join([part async for part in parts]) == b"the plan"
            thread = Address("matrix", peer.instance, room, question)
            sent = await channel.send(thread, OutMessage(text="in the thread"), idempotency_key="dl_thread")
            assert (await seen_by(ann, sent.ids[0])).body == "in the thread"

        everything = str(await peer.ann.messages(room))
        assert not [word for word in ("secret", "question", "answer", "plan", "away") if word in everything]
        assert question in everything


async def test_forged_ciphers_and_keys_harm_nobody(synapse: Synapse, tmp_path: Path) -> None:
    """Anybody may send anything to a device or into a room: it is passed over, and what follows is read."""
    settings: dict[str, Any] = {"encryption": True, "invites": "*"}
    async with people(synapse, fresh=True) as peer, client_of(peer.ann, tmp_path / "ann") as ann:  # noqa: SIM117
        async with running(peer, tmp_path / "bot", **settings) as (_, context):
            room = await joined(peer, context)
            good = await said(ann, room, {"msgtype": "m.text", "body": "good"})
            await event_of(context, MessageReceived, text="good")
            (event,) = [one for one in await peer.ann.messages(room) if one["event_id"] == good]
            for change in (
                {"ciphertext": "garbage"},
                {"ciphertext": "AwgAEg" * 20},
                {"ciphertext": 7},
                {"session_id": None},
                {"algorithm": "m.unknown"},
                {"algorithm": ["m"]},
            ):
                await peer.ann.send(room, {**event["content"], **change}, "m.room.encrypted")
            key = {"algorithm": "m.olm.v1.curve25519-aes-sha2", "sender_key": "x", "ciphertext": {"y": {"type": 9}}}
            for kind in ("m.room.encrypted", "m.room_key", "m.room_key_request", "m.forwarded_room_key"):
                path = f"{CLIENT}/sendToDevice/{kind}/{kind}"
                await peer.bo.call("PUT", path, {"messages": {peer.bot.id: {"*": key}}})
            await said(ann, room, {"msgtype": "m.text", "body": "still there"})
            await event_of(context, MessageReceived, text="still there")
            assert context.state in (ChannelState.READY, ChannelState.DEGRADED)


async def test_keys_that_can_t_be_read_are_told_with_what_to_do(synapse: Synapse, tmp_path: Path) -> None:
    """Never silently a new device: that would give up what was written before."""
    async with people(synapse) as peer:
        async with running(peer, tmp_path / "bot", encryption=True):
            pass
        (store,) = (tmp_path / "bot" / "crypto").glob("*.db")
        store.write_bytes(b"this is no database, and it is long enough to be looked at" * 100)
        channel = made(peer, encryption=True)
        context = ChannelRecorder("matrix", peer.instance, tmp_path / "bot", secrets=peer.secrets)
        await asyncio.wait_for(channel.start(context), 30)
        assert context.state is ChannelState.FAILED and "backup" in context.statuses[-1].detail
        await asyncio.wait_for(channel.stop(), 2)
        await context.close()


async def test_messages_whose_keys_come_later_are_read_then_and_once(
    synapse: Synapse, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C240: one warning for the room, a status that says so, and what waits outlives a restart and a full disk."""
    settings: dict[str, Any] = {"encryption": True, "invites": "*"}
    async with people(synapse, fresh=True) as peer, client_of(peer.ann, tmp_path / "ann") as ann:
        async with running(peer, tmp_path / "bot", **settings) as (_, context):
            room = await joined(peer, context)
            await ann.sync(timeout=0)
            await ann.joined_members(room)
            ann.olm.update_tracked_users(ann.rooms[room])
            await ann.keys_query()
            early: list[str] = []
            keys: list[tuple[str, str]] = []
            for number in range(3):
                ann.olm.create_outbound_group_session(room)
                session = ann.olm.outbound_group_sessions[room]
                keys.append((session.id, session.session_key))  # of the first message on
                session.shared = True  # so it believes; nobody has the key
                early.append(await said(ann, room, {"msgtype": "m.text", "body": f"early {number}"}))
            await context.until(lambda: "3 messages of 1 rooms" in context.statuses[-1].detail, "the status")
            assert context.state is ChannelState.DEGRADED
            assert peer.line.count("PUT", "/sendToDevice/m.room_key_request") == 3
            assert not [one for one in context.events if isinstance(one, MessageReceived)]
            memory = context.memory
            await peer.ann.say(peer.rooms["one"], "the position moves on")
            await event_of(context, MessageReceived, text="the position moves on")
        async with running(peer, tmp_path / "bot", memory, **settings) as (_, context):
            context.fail(JackfieldError("the disk is full"))
            await hand_over(ann, room, peer.bot.id, *keys[0])
            await context.until(lambda: context.state is ChannelState.RECONNECTING, "the failure")
            context.mend()
            await hand_over(ann, room, peer.bot.id, *keys[2])
            for number in (0, 2):
                assert (await event_of(context, MessageReceived, text=f"early {number}")).ref.ids == (early[number],)
            await context.until(lambda: context.statuses[-1].detail.startswith("1 messages of 1 rooms"), "the status")
        async with running(peer, tmp_path / "bot", memory, **settings) as (_, context):
            await said(ann, room, {"msgtype": "m.text", "body": "later"})
            await peer.ann.say(peer.rooms["one"], "the end")
            await event_of(context, MessageReceived, text="the end")
            texts = [one.text for one in context.events if isinstance(one, MessageReceived)]
            assert sorted(one for one in texts if "early" in one) == ["early 0", "early 2"]
        assert len([one for one in caplog.messages if f"a message in {room}" in one]) == 1


async def hand_over(client: Any, room: str, user: str, session_id: str, key: str) -> None:
    """Send a room's key to the devices of a user."""
    await client.keys_claim(client.get_missing_sessions(room))
    for device in client.device_store.active_user_devices(user):
        names = {"algorithm": "m.megolm.v1.aes-sha2", "room_id": room, "session_id": session_id, "session_key": key}
        hidden = client.olm._olm_encrypt(client.olm.session_store.get(device.curve25519), device, "m.room_key", names)
        await client.to_device(nio.ToDeviceMessage("m.room.encrypted", user, device.id, hidden))
