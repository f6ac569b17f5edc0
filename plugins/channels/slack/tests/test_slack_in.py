"""What people do in Slack, as the core is told it."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import pytest
import pytest_asyncio
from jackfield.errors import ConfigError, JackfieldError, SendNotAllowed, TooLarge
from jackfield.models import (
    ActionInvoked,
    Addressed,
    Attachment,
    AttachmentKind,
    ChannelState,
    Choice,
    ConversationChange,
    ConversationChanged,
    ConversationKind,
    MessageDeleted,
    MessageEdited,
    MessageReceived,
    OutMessage,
    Prompt,
    ReactionChanged,
)
from jackfield.testing import ChannelRecorder, Said
from jackfield.testing.waiting import soon
from jackfield_channel_kit.prompt import PromptBook
from jackfield_channel_kit.testing.slack import Envelope, SlackFake
from jackfield_channel_slack.channel import SlackChannel
from jackfield_channel_slack.downloads import takes_token
from jackfield_channel_slack.plugin import create
from slack_peer import EventsWorkspace, Workspace, request_of

GROUP, DIRECT = "C000GROUP", "D00000ONE"


@pytest_asyncio.fixture
async def peer() -> AsyncGenerator[Workspace, None]:
    one = Workspace("work")
    await one.open()
    yield one
    await one.close()


@pytest_asyncio.fixture
async def callers() -> AsyncGenerator[EventsWorkspace, None]:
    one = EventsWorkspace("work")
    await one.open()
    yield one
    await one.close()


async def told(fake: SlackFake, context: ChannelRecorder, event: dict[str, Any]) -> list[Any]:
    """Tell an event and wait until it is acknowledged; what is stored now."""
    await soon(fake.tell(event).acknowledged.wait(), "the acknowledgement")
    return context.events


async def test_a_mention_comes_twice_and_is_one_message_in_a_thread_of_its_own(peer: Workspace, tmp_path: Path) -> None:
    """C056."""
    async with peer.running(tmp_path) as (_, context):
        fake = peer.fake
        ts = fake.new_ts()
        text = f"<@{fake.bot_user}>, look at <@U00000ANN> &amp; <#C1|lab>: *now*"
        for kind in ("app_mention", "message", "message"):
            await told(fake, context, fake.say(text, channel=GROUP, ts=ts, kind=kind))
        (event,) = context.events
        assert isinstance(event, MessageReceived)
        assert event.text == "look at @Ann & #lab: **now**"
        assert (event.addressed, event.is_group, event.kind) == (Addressed.MENTION, True, ConversationKind.CHANNEL)
        assert event.address.thread_id == ts and event.ref.ids == (ts,) and event.conversation_name == "general"
        assert event.sender.display_name == "Ann" and event.sender.handle == f"{fake.team}.U00000ANN"
        assert f"{fake.team}.{fake.bot_user}" in event.mentions


async def test_without_thread_replies_a_mention_is_answered_in_the_channel(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path, thread_replies=False) as (_, context):
        event = peer.fake.say(f"<@{peer.fake.bot_user}> hi", channel=GROUP)
        (received,) = await told(peer.fake, context, event)
        assert received.address.thread_id is None and received.text == "hi"


async def test_an_answer_below_the_bot_s_message_addresses_it(peer: Workspace, tmp_path: Path) -> None:
    """C050: the thread is a part of the address."""
    async with peer.running(tmp_path) as (channel, context):
        sent = await channel.send(peer.address("group"), OutMessage(text="hello"), idempotency_key="dl_1")
        (root,) = sent.ids
        (received,) = await told(peer.fake, context, peer.fake.say("thanks", channel=GROUP, thread=root))
        assert received.addressed is Addressed.REPLY and received.address.thread_id == root
        assert received.reply_to is not None and received.reply_to.platform_id == root


async def test_another_bot_s_answer_below_ours_is_no_call(peer: Workspace, tmp_path: Path) -> None:
    """C228, C230: nor is what we wrote, in any form in which Slack tells of it."""
    async with peer.running(tmp_path) as (channel, context):
        fake = peer.fake
        sent = await channel.send(peer.address("group"), OutMessage(text="hello"), idempotency_key="dl_1")
        (root,) = sent.ids
        said = fake.say("beep", channel=GROUP, thread=root, user=None, bot_id="B0CI", subtype="bot_message")
        (received,) = await told(fake, context, said)
        assert received.sender.is_bot and received.addressed is Addressed.NONE
        own = dict(fake.find(GROUP, root) or {})
        base = {"type": "message", "channel": GROUP, "event_ts": fake.new_ts()}
        await told(fake, context, {**base, **own})
        await told(fake, context, {**base, **own, "user": None, "bot_id": fake.bot_id, "ts": fake.new_ts()})
        changed = {**base, "subtype": "message_changed", "ts": fake.new_ts(), "previous_message": own}
        await told(fake, context, {**changed, "message": {**own, "text": "hello again"}})
        item = {"type": "message", "channel": GROUP, "ts": root}
        reaction = {"type": "reaction_added", "user": fake.bot_user, "reaction": "eyes", "item": item}
        await told(fake, context, {**reaction, "event_ts": fake.new_ts()})
        assert context.events == [received]


async def test_what_tells_of_the_conversation_itself_is_no_message(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path) as (_, context):
        fake = peer.fake
        for subtype in ("channel_join", "channel_topic", "message_replied", "pinned_item"):
            await told(fake, context, fake.say("Ann joined", channel=GROUP, subtype=subtype))
        assert not context.offered


async def test_edits_are_told_and_previews_of_links_are_not(peer: Workspace, tmp_path: Path) -> None:
    """C056."""
    async with peer.running(tmp_path) as (_, context):
        await peer.write(said := Said(text="see https://example.org"))
        await context.until(lambda: len(context.events) == 1, "the message")
        ts = peer.times[said.id]
        before = dict(peer.fake.find(DIRECT, ts) or {})
        unfurled = {**before, "attachments": [{"title": "Example", "text": "a page"}]}
        event = {"type": "message", "subtype": "message_changed", "channel": DIRECT, "ts": peer.fake.new_ts()}
        await told(peer.fake, context, {**event, "message": unfurled, "previous_message": before})
        assert len(context.events) == 1
        await peer.edit(said, "see example.org")
        await context.until(lambda: len(context.events) == 2, "the edit")
        edit = context.events[1]
        assert isinstance(edit, MessageEdited) and edit.text == "see example.org" and edit.ref.ids == (ts,)
        await peer.edit(said, "once more")
        await context.until(lambda: len(context.events) == 3, "the second edit")


async def test_a_deleted_message_is_told_also_when_a_tombstone_stays(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path) as (_, context):
        fake = peer.fake
        one, two = fake.say("one", channel=DIRECT), fake.say("two", channel=DIRECT)
        gone = {"type": "message", "subtype": "message_deleted", "channel": DIRECT, "deleted_ts": one["ts"]}
        await told(fake, context, {**gone, "ts": fake.new_ts(), "previous_message": one})
        stone = {**two, "subtype": "tombstone", "text": "This message was deleted."}
        changed = {"type": "message", "subtype": "message_changed", "channel": DIRECT, "ts": fake.new_ts()}
        events = await told(fake, context, {**changed, "message": stone, "previous_message": two})
        assert [event.ref.ids for event in events if isinstance(event, MessageDeleted)] == [(one["ts"],), (two["ts"],)]


async def test_reactions_of_several_people_are_several(peer: Workspace, tmp_path: Path) -> None:
    """C060, C064."""
    async with peer.running(tmp_path) as (_, context):
        fake = peer.fake
        for number, (user, name) in enumerate(
            [("U00000ANN", "+1"), ("U00000BOB", "+1"), ("U00000ANN", "party_parrot")]
        ):
            item = {"type": "message", "channel": GROUP, "ts": "1700000000.000009"}
            event = {"type": "reaction_added", "user": user, "reaction": name, "item": item}
            await told(fake, context, {**event, "event_ts": f"1700000001.00000{number}"})
        found = [event for event in context.events if isinstance(event, ReactionChanged)]
        assert [one.emoji for one in found] == ["👍", "👍", ":party_parrot:"] and all(one.added for one in found)
        assert found[0].occurred_at == 1_700_000_001_000


async def test_the_bot_is_invited_and_a_channel_renamed(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path) as (_, context):
        fake = peer.fake
        joined = {"type": "member_joined_channel", "user": fake.bot_user, "channel": GROUP, "event_ts": "1700000001.1"}
        await told(fake, context, joined)
        await told(fake, context, {**joined, "user": "U00000ANN"})
        renamed = {"type": "channel_rename", "channel": {"id": GROUP, "name": "lab"}, "event_ts": "1700000002.1"}
        events = [one for one in await told(fake, context, renamed) if isinstance(one, ConversationChanged)]
        assert [(one.change, one.name) for one in events] == [
            (ConversationChange.ADDED, None),
            (ConversationChange.RENAMED, "lab"),
        ]


async def test_an_app_s_message_is_read_from_its_attachments(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path) as (_, context):
        card = [{"title": "Build 7", "text": "failed in `main`", "fallback": "x"}]
        event = peer.fake.say("", channel=GROUP, user=None, bot_id="B0CI", username="CI", attachments=card,
                              subtype="bot_message")  # fmt: skip
        (received,) = await told(peer.fake, context, event)
        assert "Build 7" in received.text and "failed in `main`" in received.text
        assert received.sender.is_bot and received.sender.display_name == "CI"


async def test_events_of_another_workspace_are_left_out(peer: Workspace, tmp_path: Path) -> None:
    """An app that is installed twice gets the events of both workspaces."""
    async with peer.running(tmp_path) as (_, context):
        fake = peer.fake
        envelope = fake.tell(fake.say("ours", channel=DIRECT))
        await soon(envelope.acknowledged.wait(), "the acknowledgement")
        other = fake.callback(fake.say("theirs", channel=DIRECT))
        other["authorizations"][0]["team_id"] = "T9999"
        await soon(fake.put(Envelope("events_api", other)).acknowledged.wait(), "the acknowledgement")
        assert [event.text for event in context.events if isinstance(event, MessageReceived)] == ["ours"]


async def test_in_an_enterprise_a_person_is_the_same_in_each_workspace(tmp_path: Path) -> None:
    peer = Workspace("grid", enterprise="E77")
    await peer.open()
    try:
        async with peer.running(tmp_path) as (_, context):
            (received,) = await told(peer.fake, context, peer.fake.say("hi", channel=DIRECT))
            assert received.sender.handle == "E77.U00000ANN"
    finally:
        await peer.close()


async def test_slow_names_do_not_delay_the_acknowledgement(peer: Workspace, tmp_path: Path) -> None:
    """An event waits a second for a name, not for ever."""
    async with peer.running(tmp_path) as (_, context):
        peer.fake.hang(method="users.info", times=3)
        (received,) = await told(peer.fake, context, peer.fake.say("hi", channel=DIRECT, user="U0SLOW"))
        assert received.sender.display_name is None


async def test_order_in_a_conversation_is_kept_and_others_do_not_wait(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path) as (_, context):
        fake = peer.fake
        await told(fake, context, fake.say("Ann is known now", channel=DIRECT))
        fake.hang(method="users.info", times=3)
        slow = fake.tell(fake.say("first", channel=GROUP, user="U0SLOW"))
        after = fake.tell(fake.say("second", channel=GROUP))
        await soon(fake.tell(fake.say("elsewhere", channel=DIRECT)).acknowledged.wait(), "the other conversation")
        assert not slow.acknowledged.is_set()
        await soon(after.acknowledged.wait(), "the second")
        assert [event.text for event in context.events if event.address.platform_id == GROUP] == ["first", "second"]


# ---- clicks


def question() -> OutMessage:
    choices = (Choice("deploy", "Yes"), Choice("stop", "No"))
    return OutMessage(prompt=Prompt(id="qst_1", title="Deploy", question="Shall I?", choices=choices))


async def test_a_click_is_acknowledged_in_time_under_a_slow_core(peer: Workspace, tmp_path: Path) -> None:
    """C157: Slack shows a failure after 3 s; the click is stored when the core is ready."""
    async with peer.running(tmp_path) as (channel, context):
        (ts,) = (await channel.send(peer.address("group"), question(), idempotency_key="dl_1")).ids
        with context.held():
            envelope = peer.fake.press(peer.fake.pressed(GROUP, ts, "p:qst_1:0"))
            before = time.monotonic()
            await soon(envelope.acknowledged.wait(), "the acknowledgement")
            assert time.monotonic() - before < 3.0
            assert not context.events
        await context.until(lambda: len(context.events) == 1, "the click")
        (click,) = context.events
        assert isinstance(click, ActionInvoked) and (click.value, click.prompt_id) == ("deploy", "qst_1")


async def test_a_click_that_can_not_be_stored_is_not_acknowledged(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path) as (channel, context):
        (ts,) = (await channel.send(peer.address("group"), question(), idempotency_key="dl_1")).ids
        context.fail(JackfieldError("the disk is full"))
        envelope = peer.fake.press(peer.fake.pressed(GROUP, ts, "p:qst_1:0"))
        await context.until(lambda: context.refused > 0, "accept")
        context.mend()
        after = peer.fake.tell(peer.fake.say("next", channel=GROUP))
        await soon(after.acknowledged.wait(), "the next")
        assert not envelope.acknowledged.is_set()


async def test_buttons_that_are_not_ours_are_acknowledged_and_left_out(peer: Workspace, tmp_path: Path) -> None:
    """C155: what a button says counts only in the form that we gave it."""
    async with peer.running(tmp_path) as (_, context):
        for value in (
            "link:0",
            "",
            "p::1",
            "yes",
            "p:qst_1:9999999999999999999999999999999999999999999999999999999999",
        ):
            payload = peer.fake.pressed(GROUP, "1700000000.000009", value)
            await soon(peer.fake.press(payload).acknowledged.wait(), f"the acknowledgement of {value!r}")
        assert not context.offered


async def test_after_a_restart_a_click_tells_the_index(peer: Workspace, tmp_path: Path) -> None:
    """C159."""
    async with peer.running(tmp_path / "a") as (channel, _):
        (ts,) = (await channel.send(peer.address("group"), question(), idempotency_key="dl_1")).ids
    async with peer.running(tmp_path / "b") as (_, context):
        await soon(peer.fake.press(peer.fake.pressed(GROUP, ts, "p:qst_1:1")).acknowledged.wait(), "it")
        (click,) = context.events
        assert isinstance(click, ActionInvoked) and click.value == PromptBook().value("qst_1", 1)


# ---- after an absence


async def test_what_was_written_meanwhile_is_fetched_in_order_with_its_threads(peer: Workspace, tmp_path: Path) -> None:
    """C236: Slack repeats for five minutes only."""
    fake = peer.fake
    async with peer.running(tmp_path / "a") as (_, context):
        root = fake.say("before", channel=GROUP)
        await told(fake, context, root)
        memory = context.memory
    fake.say("one", channel=GROUP)
    fake.say("two, in the thread", channel=GROUP, thread=root["ts"])
    fake.say("ours", channel=GROUP, user=fake.bot_user, bot_id=fake.bot_id)
    fake.say("joined", channel=GROUP, subtype="channel_join")
    mention = fake.say(f"<@{fake.bot_user}> three", channel=GROUP)
    fake.say("never seen there", channel="C000OTHER")
    last = fake.say("four", channel=GROUP)
    async with peer.running(tmp_path / "b", memory) as (_, context):
        await told(fake, context, last)  # and Slack repeats one
        texts = [event.text for event in context.events if isinstance(event, MessageReceived)]
        assert texts == ["before", "one", "two, in the thread", "three", "four"]
        missed = {event.text: event for event in context.events if isinstance(event, MessageReceived)}
        assert missed["two, in the thread"].address.thread_id == root["ts"] and missed["one"].backfill
        assert missed["three"].addressed is Addressed.MENTION
        assert missed["three"].address.thread_id == mention["ts"]
        assert [getattr(event, "text", "") for event in context.offered].count("before") == 0
        assert memory.cursors[f"seen:{GROUP}"] == last["ts"]
        assert not [one for one in fake.sent("conversations.history") if one.query["channel"] == "C000OTHER"]


async def test_a_history_that_is_refused_keeps_nobody_from_listening(peer: Workspace, tmp_path: Path) -> None:
    fake = peer.fake
    async with peer.running(tmp_path / "a") as (_, context):
        await told(fake, context, fake.say("before", channel=GROUP))
        memory = context.memory
    for method in ("users.conversations", "conversations.history"):
        fake.fail_next(200, {"ok": False, "error": "missing_scope"}, method=method)
        async with peer.running(tmp_path / method, memory) as (_, context):
            await told(fake, context, fake.say(f"after {method}", channel=DIRECT))
            assert context.state is ChannelState.READY


# ---- the Events API


async def test_a_retry_is_taken_for_it_may_be_the_only_copy(callers: EventsWorkspace, tmp_path: Path) -> None:
    async with callers.running(tmp_path) as (_, context):
        event = callers.fake.say("hello", channel=DIRECT)
        assert await callers.post(callers.fake.callback(event), retry=2) == 200
        assert await callers.post(callers.fake.callback(event), retry=3) == 200
        (received,) = context.events
        assert isinstance(received, MessageReceived) and received.redelivered


async def test_a_signing_secret_is_replaced_without_a_gap(callers: EventsWorkspace, tmp_path: Path) -> None:
    """Both the old and the new one may have signed."""
    fake = callers.fake
    async with callers.running(tmp_path, signing_secret=("bot", "signing")) as (_, context):
        for secret in (fake.bot_token, fake.signing_secret):
            event = fake.callback(fake.say(f"by {secret}", channel=DIRECT))
            assert await callers.post(event, secret=secret) == 200
        assert len(context.events) == 2


async def test_signatures_are_checked_over_the_raw_body(callers: EventsWorkspace, tmp_path: Path) -> None:
    """C220."""
    fake = callers.fake
    async with callers.running(tmp_path) as (channel, context):
        (route,) = channel.http_routes()
        payload = fake.callback(fake.say("hello", channel=DIRECT))
        good = fake.signed(payload)
        now = time.time()
        for status, request in (
            (401, request_of(fake.signed(payload, secret="wrong"))),
            (401, request_of(fake.signed(payload, at=now - 400))),
            (401, request_of(fake.signed(payload, at=now + 400))),
            (401, request_of(type(good)(good.body + b" ", good.headers))),
            (200, request_of(good)),
            (200, request_of(good)),  # a replay in time: known already
        ):
            assert (await route.handle(request)).status == status
        assert len(context.events) == 1


async def test_the_url_is_verified_with_the_challenge(callers: EventsWorkspace, tmp_path: Path) -> None:
    async with callers.running(tmp_path) as (channel, context):
        (route,) = channel.http_routes()
        answer = await route.handle(
            request_of(callers.fake.signed({"type": "url_verification", "challenge": "3eZbrw1a"}))
        )
        assert (answer.status, answer.body) == (200, b"3eZbrw1a")
        stranger = callers.fake.signed({"type": "url_verification", "challenge": "x"}, secret="wrong")
        assert (await route.handle(request_of(stranger))).status == 401
        assert not context.offered


async def test_signed_nonsense_is_refused(callers: EventsWorkspace, tmp_path: Path) -> None:
    async with callers.running(tmp_path) as (_, context):
        assert await callers.post([1, 2]) == 400  # type: ignore[arg-type]  # no object on purpose
        assert await callers.post({"type": "event_callback", "event": "x"}) == 200
        assert await callers.post({"type": "event_callback", "event": {"type": "message", "channel": 5}}) == 200
        assert not context.offered


async def test_requests_before_slack_was_reached_are_to_come_again(callers: EventsWorkspace, tmp_path: Path) -> None:
    """Who cannot tell its own messages takes none."""
    callers.fake.fail_next(503, {}, method="auth.test", times=1000)
    async with callers.running(tmp_path, connected=False) as (_, context):
        assert context.state is ChannelState.RECONNECTING
        assert await callers.post(callers.fake.callback(callers.fake.say("hi", channel=DIRECT))) == 503


# ---- files


async def test_only_slack_gets_the_token() -> None:
    """The bearer never goes to another host."""
    api = "https://slack.com/api"
    for url in ("https://files.slack.com/a", "https://slack.com/x", "https://a.slack-files.com/x"):
        assert takes_token(url, api)
    for url in (
        "http://files.slack.com/a",
        "https://slack.com.evil.example/a",
        "https://evilslack.com/",
        "https://x.y/",
    ):
        assert not takes_token(url, api)


async def opened(channel: SlackChannel, attachment: Attachment) -> bytes:
    async with channel.open_attachment(attachment) as parts:
        return b"".join([part async for part in parts])


async def test_a_file_that_may_not_be_read_is_no_web_page(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path) as (channel, _):
        file = peer.fake.add_file(
            "a.pdf", b"<!DOCTYPE html><html><body>Sign in</body></html>", mimetype="application/pdf"
        )
        with pytest.raises(SendNotAllowed, match="log in"):
            await opened(channel, Attachment(id=file["id"], name="a.pdf", token=file["id"]))


async def test_a_file_elsewhere_is_fetched_without_the_token_and_from_public_places_only(
    peer: Workspace, tmp_path: Path
) -> None:
    other = SlackFake()
    await other.start()
    try:
        async with peer.running(tmp_path) as (channel, _):
            file = peer.fake.add_file("doc", b"", is_external=True)
            file["url_private_download"] = f"{other.url}/files/x/doc"
            with pytest.raises(SendNotAllowed):
                await opened(channel, Attachment(id=file["id"], name="doc", token=file["id"]))
            assert not other.requests
    finally:
        await other.stop()


async def test_a_file_over_the_limit_is_not_fetched(peer: Workspace, tmp_path: Path) -> None:
    """C071: neither when Slack says its size nor when it says a smaller one."""
    async with peer.running(tmp_path, file_max_bytes=100) as (channel, context):
        file = peer.fake.add_file("big", b"x" * 1000, mimetype="audio/mp4", subtype="slack_audio")
        event = peer.fake.say("listen", channel=DIRECT, files=[file], subtype="file_share")
        (received,) = await told(peer.fake, context, event)
        (attachment,) = received.attachments
        assert (attachment.kind, attachment.size) == (AttachmentKind.VOICE, 1000)
        for said in (1000, 10, None):
            file["size"] = said
            with pytest.raises(TooLarge):
                await opened(channel, attachment)
        assert len(peer.fake.sent("big")) == 2


async def test_a_missing_secret_is_named(peer: Workspace, tmp_path: Path) -> None:
    channel = create("work", {**peer.settings, "bot_token": "nowhere"})
    context = ChannelRecorder("slack", "work", tmp_path, secrets=peer.secrets)
    with pytest.raises(ConfigError, match="nowhere"):
        await channel.start(context)
    health = await channel.check(context)
    assert not health.ok and "nowhere" in health.detail


@pytest.mark.parametrize(
    ("spoil", "word"), [("revoked", "token_revoked"), ("scope", "files:read"), ("app", "invalid_auth")]
)
async def test_a_check_says_what_is_wrong_and_how_to_mend_it(
    peer: Workspace, tmp_path: Path, spoil: str, word: str
) -> None:
    channel = create("work", dict(peer.settings))
    context = ChannelRecorder("slack", "work", tmp_path, secrets=peer.secrets)
    assert (await channel.check(context)).ok
    if spoil == "revoked":
        peer.fake.revoked = True
    elif spoil == "scope":
        peer.fake.scopes.remove("files:read")
    else:
        peer.fake.app_token = "xapp-other"
    health = await channel.check(context)
    assert not health.ok and word in health.detail and health.fix
    assert not peer.fake.sockets
