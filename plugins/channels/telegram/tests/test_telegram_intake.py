"""Updates are stored before they are confirmed, whatever happens in between."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from hypothesis import given
from hypothesis import strategies as st
from jackfield.clock import UnixMs
from jackfield.errors import ConfigError, JackfieldError
from jackfield.models import ChannelState, MessageReceived
from jackfield.testing import ChannelMemory
from jackfield_channel_kit.testing.telegram import TelegramFake
from jackfield_channel_telegram.intake import CURSOR, QUIET_MS, Place
from running import GROUP, running

CHILD = Path(__file__).parent / "pollster.py"


async def test_an_update_that_was_not_stored_comes_again_after_a_crash(tmp_path: Path) -> None:
    """spec 1.5: killed before the commit."""
    memory = ChannelMemory()
    async with TelegramFake() as fake:
        async with running(fake, tmp_path, memory=memory) as line:
            with line.context.held():
                await fake.say("not yet")
                await line.context.until(lambda: line.context.waiting == 1, "accept to be called")
                await line.channel.stop()
        assert not memory.texts and len(fake.updates) == 1
        async with running(fake, tmp_path, memory=memory) as line:
            await line.until_texts("not yet")


async def test_a_crash_between_storing_and_confirming_doubles_nothing(tmp_path: Path) -> None:
    """spec 1.5: the cursor is stored with the event, so the next life begins behind it."""
    memory = ChannelMemory()
    async with TelegramFake() as fake:
        async with running(fake, tmp_path, memory=memory) as line:
            await fake.until_sent("getUpdates")
            fake.hang(method="getUpdates", times=5)  # whatever would confirm is never done
            await fake.say("once")
            await line.until_texts("once")
            await fake.until_sent("getUpdates", 2)
        assert len(fake.updates) == 1, "it was confirmed"
        fake.release()
        fake._troubles.clear()
        await fake.say("after")
        async with running(fake, tmp_path, memory=memory) as line:
            await line.until_texts("once", "after")
            assert [one.text for one in line.context.offered if isinstance(one, MessageReceived)] == ["after"]


async def test_killing_the_process_again_and_again_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """spec 1.5: SIGKILL while messages stream in; what is on disk is each message once, offered once."""
    notes = tmp_path / "notes.jsonl"
    total = 40
    async with TelegramFake() as fake:
        for number in range(total):
            await fake.say(f"message {number}")

        def stored() -> list[str]:
            lines = notes.read_text().splitlines() if notes.exists() else []
            return [json.loads(line)["text"] for line in lines if line.endswith("}")]

        for goal in (3, 7, 12, 21, 30, total):
            process = await asyncio.create_subprocess_exec(
                sys.executable, str(CHILD), fake.url, fake.token, str(notes), stdout=asyncio.subprocess.DEVNULL
            )
            try:
                async with asyncio.timeout(60):
                    while len(stored()) < goal and process.returncode is None:
                        await asyncio.sleep(0.005)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
                await process.wait()
            assert len(stored()) >= goal
        assert stored() == [f"message {number}" for number in range(total)]


async def test_an_album_is_one_message_and_holds_the_offset_back(tmp_path: Path) -> None:
    """spec 3.1: its updates come one by one, also over several polls; others' messages don't wait for it."""
    memory = ChannelMemory()
    async with TelegramFake() as fake, running(fake, tmp_path, memory=memory, album_seconds=0.6) as line:
        first = (await fake.album(["a.png", "b.png"], caption="look"))[0]
        await fake.say("me first", chat=12, sender=12)
        await line.until_texts("me first")
        held = Place.parse(memory.cursors[CURSOR])
        assert held.above, "the offset ran past an album that is not stored"
        assert fake.confirmed < 1000
        await fake.album(["c.png"], group="album1")
        await line.until_texts("me first", "look")
        (event,) = [one for one in line.context.events if isinstance(one, MessageReceived) and one.attachments]
        assert [one.name for one in event.attachments] == ["a.png", "b.png", "c.png"]
        assert event.ref.ids[0] == str(first)
        await fake.until(lambda: fake.confirmed == 1003, "all to be confirmed")


async def test_a_crash_while_an_album_settles_loses_and_doubles_nothing(tmp_path: Path) -> None:
    memory = ChannelMemory()
    async with TelegramFake() as fake:
        async with running(fake, tmp_path, memory=memory, album_seconds=10.0) as line:
            await fake.album(["a.png", "b.png"], caption="look")
            await fake.say("me first", chat=12, sender=12)
            await line.until_texts("me first")
        async with running(fake, tmp_path, memory=memory) as line:
            await line.until_texts("me first", "look")
            offered = [one.text for one in line.context.offered if isinstance(one, MessageReceived)]
            assert offered == ["look"], "what was stored before the crash was offered again"


async def test_another_poller_is_told_clearly_and_sending_goes_on(tmp_path: Path) -> None:
    """C236: with back-off, a state that says what is wrong, and an end."""
    body = {
        "ok": False,
        "error_code": 409,
        "description": "Conflict: terminated by other getUpdates request; make sure that only one bot runs",
    }
    async with TelegramFake() as fake:
        fake.fail_next(409, body, method="getUpdates", times=2)
        async with running(fake, tmp_path, state=ChannelState.DEGRADED) as line:
            await line.context.until(lambda: "2 times" in line.context.statuses[-1].detail, "the second try")
            assert "another program polls with this bot's token" in line.context.statuses[-1].detail
            await line.until_state(ChannelState.READY)
            await fake.say("back")
            await line.until_texts("back")


async def test_a_webhook_of_another_program_is_told(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        await fake.until_sent("getUpdates")
        fake.webhook["url"] = "https://other.example/hook"
        await fake.say("wake the poll")
        await line.until_state(ChannelState.DEGRADED)
        assert "another program set a webhook" in line.context.statuses[-1].detail


async def test_a_webhook_that_is_left_over_is_removed_and_nothing_dropped(tmp_path: Path) -> None:
    async with TelegramFake() as fake:
        fake.webhook["url"] = "https://old.example/hook"
        await fake.say("while it was set")
        async with running(fake, tmp_path) as line:
            await line.until_texts("while it was set")


async def test_a_revoked_token_is_told_once_and_ends_the_polls(tmp_path: Path) -> None:
    """C234."""
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        await fake.until_sent("getUpdates")
        fake.revoked = True
        await fake.say("wake the poll")
        await line.until_state(ChannelState.AUTH_FAILED)
        asked = len(fake.requests)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(fake.until(lambda: len(fake.requests) > asked), 1.5)
        assert [one.state for one in line.context.statuses].count(ChannelState.AUTH_FAILED) == 1


async def test_what_is_no_token_at_all_is_told_as_one(tmp_path: Path) -> None:
    async with TelegramFake() as fake:
        fake.unknown_methods = {"getMe"}  # what Telegram answers to a malformed token
        async with running(fake, tmp_path, state=ChannelState.AUTH_FAILED) as line:
            assert "no bot's token" in line.context.statuses[-1].detail


async def test_it_comes_back_when_the_server_does(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        await fake.until_sent("getUpdates")
        fake.fail_next(502, "Bad Gateway", method="*", times=2)
        await fake.say("after the outage")
        await line.until_texts("after the outage")


async def test_a_full_disk_is_told_and_the_message_comes_again(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        line.context.fail(JackfieldError("the disk is full"))
        await fake.say("kept")
        await line.until_state(ChannelState.DEGRADED)
        assert "the disk is full" in line.context.statuses[-1].detail
        line.context.mend()
        await line.until_texts("kept")
        await line.until_state(ChannelState.READY)


async def test_an_update_that_nobody_can_read_does_not_stop_the_others(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        await fake.push("message", {"message_id": 1, "chat": "nonsense"})
        await fake.push("message", ["no", "message"])
        await fake.say("fine")
        await line.until_texts("fine")


async def test_two_instances_with_one_token_are_refused(tmp_path: Path) -> None:
    """C236: they would rob each other of messages."""
    async with TelegramFake() as fake:
        async with running(fake, tmp_path):
            with pytest.raises(ConfigError, match="channel tg runs with the same token"):
                async with running(fake, tmp_path, instance="other"):
                    pass
        async with running(fake, tmp_path, instance="other"):
            pass


async def test_a_missing_secret_is_named(tmp_path: Path) -> None:
    async with TelegramFake() as fake:
        with pytest.raises(ConfigError, match="no secret 'nowhere'"):
            async with running(fake, tmp_path, token="nowhere"):
                pass


async def test_reactions_and_memberships_are_asked_for(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        message = await fake.say("hi", chat=GROUP)
        await fake.react(GROUP, message["message_id"], [], ["👍"])
        await fake.admit(GROUP, "kicked", "member")
        await line.context.until(lambda: len(line.context.events) == 3, "message, reaction and removal")
        asked = fake.sent("getUpdates")[0].json()
        assert {"message_reaction", "my_chat_member", "callback_query"} <= set(asked["allowed_updates"])


@given(st.lists(st.integers(1, 30), min_size=1, unique=True), st.data())
def test_the_place_never_passes_what_is_open_and_forgets_nothing(ids: list[int], data: st.DataObject) -> None:
    """Taken in any order: the offset stays at or below the first open update, and all that is taken is known."""
    place, now = Place(), UnixMs(1_700_000_000_000)
    taken: list[int] = []
    for number in data.draw(st.permutations(ids)):
        taken.append(number)
        still_open = [one for one in ids if one not in taken]
        place = Place.parse(str(place.after([number], still_open, now)))
        offset = place.offset(now) or 0
        assert all(one >= offset for one in still_open), "an open update would be confirmed"
        assert all(one < offset or place.knows(one) for one in taken), "a taken one would be taken again"
    assert place.offset(now) == max(ids) + 1 and not place.above


def test_after_a_quiet_week_the_offset_is_given_up() -> None:
    """Telegram counts from elsewhere then, and a stale offset would hide or drop what comes."""
    now = UnixMs(1_700_000_000_000)
    place = Place(500, now)
    assert place.offset(now) == 501
    assert place.offset(UnixMs(now + QUIET_MS)) is None
    assert place.after([7], [], UnixMs(now + QUIET_MS)).offset(UnixMs(now + QUIET_MS)) == 8


@pytest.mark.parametrize("text", [None, "", "x", "1", "1 y", "1 2 3,z"])
def test_an_unreadable_place_is_the_beginning(text: str | None) -> None:
    assert Place.parse(text).offset(UnixMs(0)) is None
