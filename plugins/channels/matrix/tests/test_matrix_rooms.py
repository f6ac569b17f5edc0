"""The channel against a real Synapse: what is Matrix's own, beyond the contract of channels."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from jackfield.api import Channel
from jackfield.errors import AuthFailed, ChatNotFound, RateLimited, SendNotAllowed, Transient, Unsupported
from jackfield.models import (
    Address,
    Addressed,
    Attachment,
    ChannelState,
    ConversationChange,
    ConversationChanged,
    MessageDeleted,
    MessageEdited,
    MessageReceived,
    MessageRef,
    OutFile,
    OutMessage,
    ReactionChanged,
)
from jackfield.models import Person as Somebody
from jackfield.testing import ChannelMemory, ChannelRecorder
from jackfield_channel_kit.testing.synapse import Synapse
from jackfield_channel_matrix import channel as channel_module
from jackfield_channel_matrix import plugin
from jackfield_channel_matrix.channel import MatrixChannel
from jackfield_channel_matrix.login import LoginFile
from matrix_peer import CLIENT, MatrixPeer, Person, quoted

pytestmark = pytest.mark.usefixtures("synapse")


@asynccontextmanager
async def people(synapse: Synapse, instance: str = "rooms", *, fresh: bool = False) -> AsyncIterator[MatrixPeer]:
    peer = MatrixPeer(synapse, instance, fresh=fresh)
    await peer.open()
    try:
        yield peer
    finally:
        await peer.close()


@asynccontextmanager
async def running(
    peer: MatrixPeer,
    folder: Path,
    memory: ChannelMemory | None = None,
    *,
    secrets: Mapping[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[MatrixChannel, ChannelRecorder]]:
    """The channel, started and ready."""
    channel = made(peer, **settings)
    context = ChannelRecorder("matrix", peer.instance, folder, secrets=secrets or peer.secrets, memory=memory)
    await asyncio.wait_for(channel.start(context), 30)
    await context.until_ready()
    try:
        yield channel, context
    finally:
        await asyncio.wait_for(channel.stop(), 30)
        await context.close()
    assert not context.failed


def made(peer: MatrixPeer, **settings: Any) -> MatrixChannel:
    channel: Channel = plugin.create(peer.instance, {**peer.settings, **settings})
    assert isinstance(channel, MatrixChannel)
    return channel


async def event_of(context: ChannelRecorder, kind: type[Any], **facts: Any) -> Any:
    """The first stored event of a kind with these facts."""

    def find() -> Any:
        return next(
            (
                one
                for one in context.events
                if isinstance(one, kind) and all(getattr(one, name) == value for name, value in facts.items())
            ),
            None,
        )

    await context.until(lambda: find() is not None, f"{kind.__name__} {facts}")
    return find()


async def texts(person: Person, room: str, sender: str) -> list[str]:
    return [
        one["content"]["body"]
        for one in await person.messages(room)
        if one["sender"] == sender and "body" in one["content"] and "m.new_content" not in one["content"]
    ]


# ---- history, restarts, connections


async def test_what_was_written_before_the_first_start_is_not_read_and_what_comes_while_it_is_down_is(
    synapse: Synapse, tmp_path: Path
) -> None:
    """The first sync replays history: it is not for us.  From then on nothing is missed, also without a cursor."""
    async with people(synapse) as peer:
        room = peer.rooms["one"]
        await peer.ann.say(room, "long ago")
        async with running(peer, tmp_path):
            pass
        await peer.ann.say(room, "while it was down")
        async with running(peer, tmp_path) as (_, context):
            found = await event_of(context, MessageReceived, text="while it was down")
            assert found.sender.handle == peer.ann.id and found.sender.display_name
            assert [one.text for one in context.events if isinstance(one, MessageReceived)] == ["while it was down"]


async def test_a_gap_in_the_sync_is_filled(synapse: Synapse, tmp_path: Path) -> None:
    """C011: a homeserver sends the newest 50 events of a room; the others are fetched, in order."""
    async with people(synapse) as peer:
        room = peer.rooms["one"]
        async with running(peer, tmp_path):
            pass
        wanted = [f"missed {number}" for number in range(70)]
        for text in wanted:
            await peer.ann.say(room, text)
        async with running(peer, tmp_path) as (_, context):
            await event_of(context, MessageReceived, text=wanted[-1])
            assert [one.text for one in context.events if isinstance(one, MessageReceived)] == wanted


async def test_a_position_that_the_homeserver_does_not_know_is_given_up_and_told(
    synapse: Synapse, tmp_path: Path
) -> None:
    """Asking with it again would never end; also after the next start, before anything moved the cursor."""
    async with people(synapse) as peer:
        memory = ChannelMemory()
        memory.cursors["sync"] = "no position of this homeserver"
        async with running(peer, tmp_path, memory) as (_, context):
            await context.until(lambda: "may have been missed" in context.statuses[-1].detail, "it to be told")
            assert context.state is ChannelState.DEGRADED
        await peer.ann.say(peer.rooms["one"], "while it was down")
        async with running(peer, tmp_path, memory) as (_, context):
            await event_of(context, MessageReceived, text="while it was down")
            assert context.state is ChannelState.READY


async def test_the_position_moves_only_with_what_is_stored(synapse: Synapse, tmp_path: Path) -> None:
    """The next sync begins where it began until everything of this one is stored, and then the cursor is stored
    with the last of it."""
    async with people(synapse) as peer, running(peer, tmp_path) as (_, context):
        with context.held():
            event_id = await peer.ann.say(peer.rooms["one"], "slowly")
            await context.until(lambda: context.waiting > 0, "accept")
            assert not context.memory.cursors
        await event_of(context, MessageReceived, text="slowly")
        await context.until(lambda: bool(context.memory.cursors), "the cursor")
        (end,) = {end for _, end, text in peer.line.syncs if event_id in text}
        assert context.memory.cursors == {"sync": end}


async def test_a_homeserver_that_is_killed_and_comes_back_is_found_again(tmp_path: Path) -> None:
    """C234: nothing that was written in between is lost, and sends meanwhile are told to be repeated.  A channel that
    starts while the homeserver is down waits for it, too."""
    server = Synapse(tmp_path / "synapse")
    async with server, people(server, fresh=True) as peer, running(peer, tmp_path / "channel") as (channel, context):
        await server.stop(kill=True)
        await context.until(lambda: context.state is ChannelState.RECONNECTING, "it to be noticed")
        with pytest.raises(Transient):
            await channel.send(peer.address(), OutMessage(text="lost?"), idempotency_key="dl_one")
        secrets = {"matrix-token": peer.bo.account.token}
        other = ChannelRecorder("matrix", peer.instance, tmp_path / "other", secrets=secrets)
        late = made(peer)
        await asyncio.wait_for(late.start(other), 30)
        assert other.state is ChannelState.RECONNECTING
        await server.resume()
        await other.until(lambda: other.state is ChannelState.READY, "it to be found")
        await late.stop()
        await other.close()
        await peer.ann.say(peer.rooms["one"], "are you back?")
        await event_of(context, MessageReceived, text="are you back?")
        assert context.state is ChannelState.READY
        await channel.send(peer.address(), OutMessage(text="lost?"), idempotency_key="dl_one")
        assert await texts(peer.ann, peer.rooms["one"], peer.bot.id) == ["lost?"]


async def test_a_homeserver_that_says_nothing_does_not_hold_up_the_host(
    synapse: Synapse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`start` comes back, and so does `stop`."""
    monkeypatch.setattr(channel_module, "START_SECONDS", 0.2)
    async with people(synapse) as peer:
        peer.line.held = True
        channel = made(peer)
        context = ChannelRecorder("matrix", peer.instance, tmp_path, secrets=peer.secrets)
        await asyncio.wait_for(channel.start(context), 5)
        assert context.state is ChannelState.RECONNECTING
        await asyncio.wait_for(channel.stop(), 2)
        await context.close()


async def test_a_revoked_token_is_told_once_and_asked_for_no_more(synapse: Synapse, tmp_path: Path) -> None:
    """C234."""
    async with people(synapse, fresh=True) as peer, running(peer, tmp_path) as (channel, context):
        await peer.bot.call("POST", f"{CLIENT}/logout", {})
        for _ in range(3):
            with pytest.raises((AuthFailed, Transient)):
                await channel.send(peer.address(), OutMessage(text="x"), idempotency_key="dl_x")
        await context.until(lambda: context.state is ChannelState.AUTH_FAILED, "it to be told")
        asked = len(peer.line.asked_since)
        await asyncio.sleep(0.5)  # the time in which a storm would be seen
        assert len(peer.line.asked_since) == asked
        assert [one.state for one in context.statuses].count(ChannelState.AUTH_FAILED) == 1


async def test_every_connection_goes_through_the_proxy(
    synapse: Synapse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C238: the sync, sends and uploads; the homeserver's name exists only behind the proxy."""
    for name in ("HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with people(synapse) as peer:
        monkeypatch.setenv("http_proxy", peer.line.url)
        async with running(peer, tmp_path / "c", homeserver="http://matrix.invalid") as (channel, context):
            await peer.ann.say(peer.rooms["one"], "through the proxy?")
            await event_of(context, MessageReceived, text="through the proxy?")
            path = tmp_path / "a.txt"
            path.write_bytes(b"data")
            file = OutFile(name="a.txt", path=str(path), size=4)
            await channel.send(peer.address(), OutMessage(text="yes", files=(file,)), idempotency_key="dl_proxy")
        assert peer.line.hosts == {"matrix.invalid"}
        assert peer.line.count("POST", "/upload") == 1


async def test_of_a_message_with_a_bad_file_nothing_arrives(synapse: Synapse, tmp_path: Path) -> None:
    """C075: the core sends its text and its good files one by one then."""
    good = tmp_path / "good.txt"
    good.write_text("good")
    files = (OutFile("good.txt", str(good), 4), OutFile("missing.txt", str(tmp_path / "missing.txt"), 4))
    async with people(synapse) as peer, running(peer, tmp_path / "c") as (channel, _):
        with pytest.raises(SendNotAllowed, match=r"missing\.txt"):
            await channel.send(peer.address(), OutMessage(text="two", files=files), idempotency_key="dl_files")
        await channel.send(peer.address(), OutMessage(text="after"), idempotency_key="dl_after")
        assert (await asyncio.wait_for(peer.arrived(), 30)).text == "after"


async def test_two_instances_with_one_account_are_refused(synapse: Synapse, tmp_path: Path) -> None:
    """C236: both would answer."""
    async with people(synapse) as peer:
        async with running(peer, tmp_path / "one"):
            second = made(peer)
            context = ChannelRecorder("matrix", peer.instance, tmp_path / "two", secrets=peer.secrets)
            await asyncio.wait_for(second.start(context), 30)
            assert context.state is ChannelState.FAILED and "same token" in context.statuses[-1].detail
            await second.stop()
            await context.close()
        async with running(peer, tmp_path / "two"):
            pass


async def test_a_lost_answer_is_repeated_without_a_second_message(synapse: Synapse, tmp_path: Path) -> None:
    """C081: the transaction id makes it one."""
    async with people(synapse) as peer, running(peer, tmp_path) as (channel, _):
        peer.line.lose = 2  # the client's connection pool tries a PUT once more by itself
        with pytest.raises(Transient):
            await channel.send(peer.address(), OutMessage(text="only once"), idempotency_key="dl_lost")
        await channel.send(peer.address(), OutMessage(text="only once"), idempotency_key="dl_lost")
        found = await texts(peer.ann, peer.rooms["one"], peer.bot.id)
        assert found.count("only once") == 1


async def test_a_limit_of_the_homeserver_holds_for_all_sends_until_it_is_over(tmp_path: Path) -> None:
    """C077, C083: by a real Synapse's own limit; while it holds, nothing is asked."""
    limits = "rc_message: {per_second: 1, burst_count: 3}"
    server = Synapse(tmp_path / "synapse", limits=limits)
    async with server, people(server, fresh=True) as peer, running(peer, tmp_path / "channel") as (channel, _):
        wait = 0.0
        for number in range(20):
            try:
                await channel.send(peer.address(), OutMessage(text="x"), idempotency_key=f"dl_{number}")
            except RateLimited as problem:
                wait = problem.retry_after
                break
        assert 0 < wait <= 5
        asked, began = peer.line.count("PUT", "/send/"), time.monotonic()
        again = asyncio.create_task(channel.send(peer.address(), OutMessage(text="x"), idempotency_key="dl_again"))
        await peer.line.until(lambda: peer.line.count("PUT", "/send/") > asked, "the next send")
        assert time.monotonic() - began >= wait - 0.1
        await asyncio.wait({again})


# ---- logging in


async def test_a_password_is_used_once_and_the_token_kept_for_its_owner(synapse: Synapse, tmp_path: Path) -> None:
    async with people(synapse, fresh=True) as peer:
        mode: dict[str, Any] = {"token": None, "user": peer.bot.id, "password": "pw"}
        secrets = {"pw": peer.bot.account.password}
        for _ in range(2):
            async with running(peer, tmp_path, secrets=secrets, **mode) as (channel, _):
                await channel.send(peer.address(), OutMessage(text="hi"), idempotency_key="dl_hi")
        assert peer.line.count("POST", "/login") == 1
        login = LoginFile(tmp_path).read()
        assert login.user_id == peer.bot.id and login.token not in repr(login)
        assert stat.S_IMODE((tmp_path / "login.json").stat().st_mode) == 0o600
        devices = (await peer.bot.call("GET", f"{CLIENT}/devices"))["devices"]
        assert [one["display_name"] for one in devices if one["device_id"] == login.device_id] == ["Jackfield"]


async def test_a_kept_token_that_is_refused_is_forgotten(synapse: Synapse, tmp_path: Path) -> None:
    """AUTH_FAILED now; the next start logs in by password again, as the same device."""
    async with people(synapse, fresh=True) as peer:
        mode: dict[str, Any] = {"token": None, "user": peer.bot.id, "password": "pw"}
        secrets = {"pw": peer.bot.account.password}
        async with running(peer, tmp_path, secrets=secrets, **mode):
            before = LoginFile(tmp_path).read()
        await synapse.call("POST", f"{CLIENT}/logout", {}, token=before.token)
        channel = made(peer, **mode)
        context = ChannelRecorder("matrix", peer.instance, tmp_path, secrets=secrets)
        await asyncio.wait_for(channel.start(context), 30)
        assert context.state is ChannelState.AUTH_FAILED
        await channel.stop()
        await context.close()
        async with running(peer, tmp_path, secrets=secrets, **mode):
            assert LoginFile(tmp_path).read().device_id == before.device_id


async def test_a_check_says_what_to_do(synapse: Synapse, tmp_path: Path) -> None:
    async with people(synapse) as peer:
        good = ChannelRecorder("matrix", "rooms", tmp_path, secrets=peer.secrets)
        assert (await made(peer).check(good)).ok
        wrong = ChannelRecorder("matrix", "rooms", tmp_path, secrets={"matrix-token": "wrong", "pw": "wrong"})
        for channel in (made(peer), made(peer, token=None, user=peer.bot.id, password="pw")):
            found = await channel.check(wrong)
            assert not found.ok and found.fix
        unset = await made(peer).check(ChannelRecorder("matrix", "rooms", tmp_path))
        assert not unset.ok and unset.fix
        nobody = await made(peer, homeserver="http://127.0.0.1:1").check(good)
        assert not nobody.ok and nobody.fix and "127.0.0.1" in nobody.fix
        devices = await peer.bot.call("GET", f"{CLIENT}/devices")
        assert len(devices["devices"]) == 1


# ---- rooms and people


async def test_an_invitation_is_accepted_from_those_who_are_named_only(synapse: Synapse, tmp_path: Path) -> None:
    """What was written between the invitation and the joining is read; what was there before is not."""
    async with people(synapse, fresh=True) as peer, running(peer, tmp_path, invites=[peer.ann.id]) as (_, context):
        strange = await peer.bo.room(invite=(peer.bot.id,), direct=True)
        room = await peer.ann.room()
        await peer.ann.say(room, "before")
        await peer.ann.call("POST", f"{CLIENT}/rooms/{quoted(room)}/invite", {"user_id": peer.bot.id})
        await peer.ann.say(room, "hello there")
        found = await event_of(context, MessageReceived, text="hello there")
        assert found.address == Address("matrix", peer.instance, room) and not found.is_group
        await event_of(context, ConversationChanged, change=ConversationChange.JOINED)
        assert not [one for one in context.events if getattr(one, "text", "") == "before"]
        joined = (await peer.bot.call("GET", f"{CLIENT}/joined_rooms"))["joined_rooms"]
        assert room in joined and strange not in joined


async def test_a_direct_message_is_one_by_account_data_and_number_of_members(synapse: Synapse, tmp_path: Path) -> None:
    """A named room of two is a group unless `m.direct` says otherwise; a third person makes any room a group."""
    async with people(synapse, fresh=True) as peer, running(peer, tmp_path, invites="*") as (_, context):
        named = await peer.ann.room(invite=(peer.bot.id,), name="Plans")
        direct = await peer.ann.room(invite=(peer.bot.id,), direct=True, name="Andy and Ann")
        for room in (named, direct):
            await context.until(lambda room=room: _in(context, room), "it to join")  # type: ignore[misc]  # mypy infers no lambda with a default
            await peer.ann.say(room, f"in {room}")
        first = await event_of(context, MessageReceived, text=f"in {named}")
        assert first.is_group and first.addressed is Addressed.NONE and first.conversation_name == "Plans"
        second = await event_of(context, MessageReceived, text=f"in {direct}")
        assert not second.is_group and second.addressed is Addressed.DM
        await peer.ann.call("POST", f"{CLIENT}/rooms/{quoted(direct)}/invite", {"user_id": peer.bo.id})
        await peer.ann.say(direct, "now we are three")
        assert (await event_of(context, MessageReceived, text="now we are three")).is_group


def _in(context: ChannelRecorder, room: str) -> bool:
    return any(isinstance(one, ConversationChanged) and one.address.platform_id == room for one in context.events)


async def test_a_reply_to_us_addresses_us_and_one_to_others_does_not(synapse: Synapse, tmp_path: Path) -> None:
    """C042: also when the message replied to was sent before this start.  C228: and not one of a bot."""
    async with people(synapse) as peer:
        async with running(peer, tmp_path) as (channel, _):
            ours = (await channel.send(peer.address("group"), OutMessage(text="ours"), idempotency_key="dl_q")).ids[0]
        theirs = await peer.bo.say(peer.rooms["group"], "theirs")
        async with running(peer, tmp_path) as (_, context):
            for target, text in ((ours, "and tomorrow?"), (theirs, "really?")):
                relates = {"m.relates_to": {"m.in_reply_to": {"event_id": target}}, "m.mentions": {}}
                await peer.ann.say(peer.rooms["group"], text, **relates)
            first = await event_of(context, MessageReceived, text="and tomorrow?")
            assert first.addressed is Addressed.REPLY
            assert (first.reply_to.platform_id, first.reply_to.sender, first.reply_to.text) == (
                ours,
                peer.bot.id,
                "ours",
            )
            second = await event_of(context, MessageReceived, text="really?")
            assert second.addressed is Addressed.NONE and second.reply_to.text == "theirs"
            relates = {"m.relates_to": {"m.in_reply_to": {"event_id": ours}}, "m.mentions": {}}
            await peer.bo.send(peer.rooms["group"], {"msgtype": "m.notice", "body": "beep", **relates})
            third = await event_of(context, MessageReceived, text="beep")
            assert third.sender.is_bot and third.addressed is Addressed.NONE


async def test_edits_reactions_and_redactions_of_people_come_in_and_ours_do_not(
    synapse: Synapse, tmp_path: Path
) -> None:
    """C056, C064, C230: with the thread of what they concern; nobody edits what another wrote."""
    async with people(synapse) as peer, running(peer, tmp_path) as (channel, context):
        room, thread = peer.rooms["one"], peer.threads["t1"]
        sent = await channel.send(peer.address(thread="t1"), OutMessage(text="ours"), idempotency_key="dl_r")
        await channel.react(MessageRef(peer.address(), sent.ids), "\U0001f440")
        await channel.edit(MessageRef(peer.address(), sent.ids), OutMessage(text="ours, better"))
        relates = {"m.relates_to": {"rel_type": "m.thread", "event_id": thread}}
        said = await peer.ann.say(room, "frist", **relates)
        edit = await peer.ann.edit(room, said, "first")
        await peer.ann.edit(room, sent.ids[0], "forged")
        mark = {"m.relates_to": {"rel_type": "m.annotation", "event_id": sent.ids[0], "key": "\U0001f44d"}}
        reaction = await peer.ann.send(room, mark, "m.reaction")
        await peer.ann.redact(room, reaction)
        await peer.ann.redact(room, said)
        gone = await event_of(context, MessageDeleted)
        assert gone.ref == MessageRef(peer.address(thread="t1"), (said,)) and gone.by.handle == peer.ann.id
        edited = await event_of(context, MessageEdited)
        assert (edited.text, edited.version, edited.address) == ("first", edit, peer.address(thread="t1"))
        reactions = [one for one in context.events if isinstance(one, ReactionChanged)]
        assert [(one.emoji, one.added, one.user.handle) for one in reactions] == [
            ("\U0001f44d", True, peer.ann.id),
            ("\U0001f44d", False, peer.ann.id),
        ]
        assert all(one.ref == MessageRef(peer.address(thread="t1"), sent.ids) for one in reactions)
        assert "forged" not in [getattr(one, "text", "") for one in context.events]


async def test_a_room_that_is_renamed_replaced_or_left_is_told(synapse: Synapse, tmp_path: Path) -> None:
    async with people(synapse, fresh=True) as peer, running(peer, tmp_path) as (_, context):
        room = peer.rooms["group"]
        await peer.ann.call("PUT", f"{CLIENT}/rooms/{quoted(room)}/state/m.room.name/", {"name": "Garden"})
        renamed = await event_of(context, ConversationChanged, change=ConversationChange.RENAMED)
        assert renamed.name == "Garden"
        new = await peer.ann.room(name="Garden", preset="public_chat")
        tombstone = {"body": "moved", "replacement_room": new}
        await peer.ann.call("PUT", f"{CLIENT}/rooms/{quoted(room)}/state/m.room.tombstone/", tombstone)
        moved = await event_of(context, ConversationChanged, change=ConversationChange.MIGRATED)
        assert moved.new_address == Address("matrix", peer.instance, new)
        await peer.ann.call("POST", f"{CLIENT}/rooms/{quoted(new)}/kick", {"user_id": peer.bot.id})
        removed = await event_of(context, ConversationChanged, change=ConversationChange.REMOVED)
        assert removed.address == moved.new_address


async def test_a_direct_message_is_opened_once(synapse: Synapse, tmp_path: Path) -> None:
    async with people(synapse, fresh=True) as peer, running(peer, tmp_path) as (channel, _):
        first = await channel.open_dm(Somebody(peer.bo.id))
        assert await channel.open_dm(Somebody(peer.bo.id)) == first
        await peer.bo.join(first.platform_id)
        await channel.send(first, OutMessage(text="hello Bo"), idempotency_key="dl_bo")
        assert await texts(peer.bo, first.platform_id, peer.bot.id) == ["hello Bo"]
        with pytest.raises(ChatNotFound):
            await channel.open_dm(Somebody("bo"))


# ---- out


async def test_a_long_text_is_split_edited_shrunk_and_taken_away_with_all_its_parts(
    synapse: Synapse, tmp_path: Path
) -> None:
    """C050: every part in the thread, an edit of fewer parts redacts the others (channels.md R8)."""
    async with people(synapse) as peer, running(peer, tmp_path) as (channel, _):
        address = peer.address(thread="t1")
        long = "\n\n".join(f"paragraph {number} " + "word " * 400 for number in range(15))
        sent = await channel.send(address, OutMessage(text=long), idempotency_key="dl_long")
        assert len(sent.ids) == 3
        longer = await channel.edit(MessageRef(address, sent.ids), OutMessage(text=long + "\n\n" + long))
        assert longer.ids[:3] == sent.ids and len(longer.ids) == 6
        room = await peer.ann.messages(peer.rooms["one"])
        mine = {one["event_id"]: one["content"].get("m.relates_to", {}) for one in room}
        assert all(mine[one]["event_id"] == peer.threads["t1"] for one in longer.ids)
        shorter = await channel.edit(MessageRef(address, longer.ids), OutMessage(text="short"))
        assert shorter.ids == sent.ids[:1]
        left = [one for one in await peer.ann.messages(peer.rooms["one"]) if one["event_id"] in longer.ids]
        assert [bool(one["content"]) for one in left] == [True, False, False, False, False, False]


async def test_a_reply_quotes_and_an_id_that_is_none_of_matrix_is_left_out(synapse: Synapse, tmp_path: Path) -> None:
    """C052."""
    async with people(synapse) as peer, running(peer, tmp_path) as (channel, _):
        said = await peer.ann.say(peer.rooms["one"], "a question")
        for target, key in ((said, "dl_a"), ("int-9f3", "dl_b")):
            message = OutMessage(text="an answer", reply_to=MessageRef(peer.address(), (target,)))
            sent = await channel.send(peer.address(), message, idempotency_key=key)
            (found,) = [one for one in await peer.ann.messages(peer.rooms["one"]) if one["event_id"] == sent.ids[0]]
            relates = found["content"].get("m.relates_to")
            assert relates == ({"m.in_reply_to": {"event_id": said}} if target == said else None)


async def test_a_reaction_is_there_once_however_it_is_written(synapse: Synapse, tmp_path: Path) -> None:
    """C060, C062: by its name too, and never as a word; and it can be taken away after a restart."""
    async with people(synapse) as peer:
        said = await peer.ann.say(peer.rooms["one"], "love it?")
        ref = MessageRef(peer.address(), (said,))

        async def reactions() -> list[str]:
            path = f"/_matrix/client/v1/rooms/{quoted(peer.rooms['one'])}/relations/{quoted(said)}/m.annotation"
            found = (await peer.ann.call("GET", path))["chunk"]
            return [one["content"]["m.relates_to"]["key"] for one in found]

        async with running(peer, tmp_path) as (channel, _):
            await channel.react(ref, "\u2764\ufe0f")
            await channel.react(ref, "\u2764")
            await channel.react(ref, "heart")
            assert await reactions() == ["\u2764\ufe0f"]
            for emoji in ("thumbs_up", "+1", ":+1:", "\U0001f44d"):
                await channel.react(ref, emoji)
            assert sorted(await reactions()) == ["\u2764\ufe0f", "\U0001f44d"]
            await channel.react(ref, "thumbs_up", on=False)
            with pytest.raises(Unsupported, match="not_an_emoji"):
                await channel.react(ref, "not_an_emoji")
        async with running(peer, tmp_path) as (channel, _):
            await channel.react(ref, "\u2764", on=False)
            assert await reactions() == []


async def test_files_of_any_name_go_both_ways(synapse: Synapse, tmp_path: Path) -> None:
    """C069: the name stays what it was; several files are several events, each under a key of its own."""
    names = ["报告 – Q3.pdf", "ملف.txt", 'a"b;c.txt']
    async with people(synapse) as peer, running(peer, tmp_path / "c") as (channel, _):
        files = []
        for number, name in enumerate(names):
            path = tmp_path / str(number)
            path.write_bytes(name.encode() * 10)
            files.append(OutFile(name=name, path=str(path), size=path.stat().st_size))
        for _ in range(2):
            message = OutMessage(text="three files", files=tuple(files))
            sent = await channel.send(peer.address(), message, idempotency_key="dl_files")
        seen = [one for one in await peer.ann.messages(peer.rooms["one"]) if "url" in one["content"]]
        mine = [one for one in seen if one["sender"] == peer.bot.id]
        assert [one["event_id"] for one in mine if one["event_id"] in sent.ids] == list(sent.ids)
        assert [one["content"]["filename"] for one in mine][-3:] == names
        assert channel.capabilities().file_max_bytes == 8 * 1024 * 1024
        gone = Attachment(id="x", name="x", token=json.dumps({"url": "mxc://localhost/nothere"}))
        with pytest.raises(ChatNotFound):
            async with channel.open_attachment(gone):
                pass


async def test_a_stream_grows_by_edits_of_one_message(synapse: Synapse, tmp_path: Path) -> None:
    async with people(synapse) as peer, running(peer, tmp_path) as (channel, _):
        stream = channel.open_stream(peer.address(thread="t1"))
        await stream.update("some **bo")
        result = await stream.finish(OutMessage(text="some **bold** text"), idempotency_key="dl_s")
        (event_id,) = result.ids
        events = await peer.ann.messages(peer.rooms["one"])
        first = next(one for one in events if one["event_id"] == event_id)
        assert first["content"]["m.relates_to"]["rel_type"] == "m.thread"
        last = [one["content"] for one in events if one["content"].get("m.relates_to", {}).get("event_id") == event_id]
        assert last[-1]["m.new_content"]["body"] == "some **bold** text"
        reply = channel.open_stream(peer.address(), reply_to=MessageRef(peer.address(), (event_id,)))
        await reply.update("an answer")
        (answer_id,) = (await reply.finish(OutMessage(text="an answer"), idempotency_key="dl_r")).ids
        events = await peer.ann.messages(peer.rooms["one"])
        answer = next(one for one in events if one["event_id"] == answer_id)
        assert answer["content"]["m.relates_to"]["m.in_reply_to"] == {"event_id": event_id}


async def test_an_encrypted_room_is_refused_where_encryption_is_off(synapse: Synapse, tmp_path: Path) -> None:
    """And what is written there is not taken for text."""
    async with people(synapse, fresh=True) as peer, running(peer, tmp_path, invites="*") as (channel, context):
        state = {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
        room = await peer.ann.room(invite=(peer.bot.id,), direct=True, initial_state=[state])
        await context.until(lambda: _in(context, room), "it to join")
        with pytest.raises(SendNotAllowed, match="encrypted") as caught:
            await channel.send(Address("matrix", peer.instance, room), OutMessage(text="x"), idempotency_key="dl_e")
        assert "encryption = true" in str(caught.value.fix)
