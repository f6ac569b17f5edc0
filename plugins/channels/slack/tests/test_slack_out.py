"""What the agent says, as people in Slack see it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import pytest
import pytest_asyncio
from jackfield.api import ActionReply
from jackfield.errors import (
    Ambiguous,
    AuthFailed,
    BadContent,
    ChannelError,
    ChatNotFound,
    RateLimited,
    SendNotAllowed,
    TooLarge,
    Transient,
    Unsupported,
    WindowClosed,
)
from jackfield.models import (
    Address,
    Card,
    CardField,
    CardLink,
    Choice,
    MessageRef,
    OutFile,
    OutMessage,
    Person,
    Prompt,
    StreamKind,
    Support,
)
from jackfield.testing.waiting import soon
from jackfield_channel_kit.testing.slack import Shown
from jackfield_channel_kit.testing.slack_methods import problem_of
from jackfield_channel_slack.api import meaning
from jackfield_channel_slack.blocks import blocks, summary
from jackfield_channel_slack.channel import SlackChannel
from jackfield_channel_slack.emoji import character, name_of
from jackfield_channel_slack.outgoing import LIMIT, Markup, parts_of, split
from slack_peer import Workspace, read

GROUP = "C000GROUP"
THREAD = "1700000000.000001"


@pytest_asyncio.fixture
async def peer() -> AsyncGenerator[Workspace, None]:
    one = Workspace("work")
    await one.open()
    yield one
    await one.close()


async def see(peer: Workspace, kind: str) -> Shown:
    while (shown := await soon(peer.fake.shown.get(), f"a {kind}")).kind != kind:
        pass
    return shown


async def sent(channel: SlackChannel, address: Address, message: OutMessage | str) -> tuple[str, ...]:
    message = OutMessage(text=message) if isinstance(message, str) else message
    return (await channel.send(address, message, idempotency_key="dl_1")).ids


async def test_text_goes_as_markdown_that_calls_nobody(peer: Workspace, tmp_path: Path) -> None:
    """C033, C035."""
    async with peer.running(tmp_path) as (channel, _):
        await sent(
            channel, peer.address(), "**hi** <!channel> `<!here>` <@U00000ANN>\n\n| a | b |\n|---|---|\n| 1 | 2 |"
        )
        message = (await see(peer, "message")).message
        text = message["markdown_text"]
        assert text.startswith("**hi**") and "a | b" in text and "```" in text
        assert not [token for token in ("<!channel", "<!here", "<@U") if token in text]


async def test_a_workspace_of_mrkdwn_gets_mrkdwn(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path, markup="mrkdwn") as (channel, _):
        (ts,) = await sent(channel, peer.address(), "**hi** [x](https://example.org) & <b>")
        message = (await see(peer, "message")).message
        assert message["text"] == "*hi* <https://example.org|x> &amp; &lt;b&gt;"
        await channel.edit(MessageRef(peer.address(), (ts,)), OutMessage(text="_no_"))
        assert (await see(peer, "update")).message["text"] == "_no_"


async def test_markdown_that_slack_refuses_is_sent_as_mrkdwn_and_then_plain(peer: Workspace, tmp_path: Path) -> None:
    """C037, C039: a refused markup loses nothing."""
    async with peer.running(tmp_path) as (channel, _):
        refusal = {"ok": False, "error": "invalid_blocks"}
        peer.fake.fail_next(200, refusal, method="chat.postMessage")
        (ts,) = await sent(channel, peer.address(), "**hi**")
        assert (await see(peer, "message")).message["text"] == "*hi*"
        peer.fake.fail_next(200, refusal, method="chat.update")
        await channel.edit(MessageRef(peer.address(), (ts,)), OutMessage(text="**ho**"))
        assert (await see(peer, "update")).message["text"] == "*ho*"
        await sent(channel, peer.address(), OutMessage(text="a < b *c*", plain=True))
        message = (await see(peer, "message")).message
        assert message["text"].startswith("a &lt; b") and message["markdown_text"] is None


async def test_a_long_text_is_split_and_its_edit_moves_the_ends(peer: Workspace, tmp_path: Path) -> None:
    """C031, channels.md R8: parts are edited, added and taken away."""
    async with peer.running(tmp_path) as (channel, _):
        text = "```py\n" + "\n".join(f"line {number:05}" for number in range(2500)) + "\n```"
        parts = channel.split(peer.address(), OutMessage(text=text))
        assert len(parts) == 3
        ids = [one for part in parts for one in await sent(channel, peer.address(), part)]
        for _ in ids:
            message = (await see(peer, "message")).message
            assert message["markdown_text"].startswith("```py\n") and len(message["markdown_text"]) <= LIMIT
        ref = MessageRef(peer.address(), tuple(ids))
        shorter = await channel.edit(ref, OutMessage(text="only this"))
        assert shorter.ids == (ids[0],)
        assert [one["ts"] for one in peer.fake.messages["D00000ONE"]] == [ids[0]]
        longer = await channel.edit(MessageRef(peer.address(), shorter.ids), OutMessage(text="word " * 3000))
        assert len(longer.ids) == 2 and longer.ids[0] == ids[0]


@pytest.mark.parametrize("markup", ["markdown", "mrkdwn", "plain"])
@pytest.mark.parametrize("text", ["**x** & y < z\n" * 1000, "**ab** " * 3000, "&" * 20_000, "🎩" * 9000, "ab🎈" * 5000])
def test_no_part_is_longer_than_slack_takes_after_escaping(markup: Markup, text: str) -> None:
    """C025, C027: in UTF-16 units, of what is really sent."""
    parts = parts_of(text, markup)
    longest = 40_000 if markup == "plain" else LIMIT
    assert len(parts) > 1 and all(len(part.encode("utf-16-le")) / 2 <= longest for _, part in parts)


def test_a_split_keeps_text_files_and_question_in_order() -> None:
    choices = (Choice("y", "Yes"),)
    prompt = Prompt(id="qst_1", title="T", question="Q?", choices=choices)
    files = tuple(OutFile(f"{number}.txt", f"/tmp/{number}", 1) for number in range(12))
    parts = split(OutMessage(text="word " * 4000, files=files, prompt=prompt), "markdown")
    assert [(bool(part.text), len(part.files), part.prompt is not None) for part in parts] == [
        (True, 0, False),
        (True, 0, False),
        (False, 10, False),
        (False, 2, False),
        (False, 0, True),
    ]
    (whole,) = split(OutMessage(text="short", prompt=prompt), "markdown")
    assert whole.text == "short" and whole.prompt is prompt


async def test_files_come_with_their_text_and_the_token_stays_home(peer: Workspace, tmp_path: Path) -> None:
    """C069, C075; the address of an upload is another's, and gets no bearer."""
    async with peer.running(tmp_path) as (channel, _):
        peer.fake.share_delay = 1
        path = tmp_path / "b"
        path.write_bytes(b"123")
        files = (OutFile("Bücher 書.txt", str(path), 3), OutFile("b.txt", str(path), 3))
        ids = await sent(channel, peer.address("group", "t1"), OutMessage(text="**here**", files=files))
        message = (await see(peer, "message")).message
        assert ids == (message["ts"],) and message["thread_ts"] == THREAD and message["text"] == "*here*"
        assert [one["name"] for one in message["files"]] == ["Bücher 書.txt", "b.txt"]
        uploads = [one for one in peer.fake.requests if one.path.startswith("/upload/")]
        assert [one.body for one in uploads] == [b"123", b"123"]
        await channel.delete(MessageRef(peer.address("group"), ids))
        assert (await see(peer, "delete")).ts == ids[0]


async def test_a_file_that_is_slow_to_appear_has_its_own_id(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path) as (channel, _):
        peer.fake.share_delay = 100
        path = tmp_path / "b"
        path.write_bytes(b"123")
        (file_id,) = await sent(channel, peer.address("group"), OutMessage(files=(OutFile("b.txt", str(path), 3),)))
        ref = MessageRef(peer.address("group"), (file_id,))
        assert file_id in peer.fake.files
        with pytest.raises(ChatNotFound):
            await channel.edit(ref, OutMessage(text="x"))
        await channel.delete(ref)
        assert file_id not in peer.fake.files


async def test_a_file_that_can_not_be_read_is_final(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path) as (channel, _):
        empty = tmp_path / "empty"
        empty.touch()
        grown = tmp_path / "grown"
        grown.write_bytes(b"1234")
        for path, error in ((tmp_path / "gone", SendNotAllowed), (empty, SendNotAllowed), (grown, TooLarge)):
            with pytest.raises(error):
                await sent(channel, peer.address(), OutMessage(files=(OutFile("f", str(path), 3),)))
        assert not peer.fake.messages


async def test_a_question_ends_as_its_answer_and_others_are_told_alone(peer: Workspace, tmp_path: Path) -> None:
    """C153: a click in vain changes nothing; the clicker learns why."""
    async with peer.running(tmp_path) as (channel, context):
        choices = (
            Choice("y", "Yes", style="primary"),
            Choice("n", "No", style="danger"),
            Choice("m", "M", style="odd"),
        )
        prompt = Prompt(id="qst_1", title="Deploy", question="Shall **I**?", choices=choices)
        address = peer.address("group", "t1")
        (ts,) = await sent(channel, address, OutMessage(prompt=prompt))
        message = (await see(peer, "message")).message
        buttons = peer.buttons(ts)
        assert [one.get("style") for one in buttons] == ["primary", "danger", None]
        assert "Deploy" in message["text"] and message["thread_ts"] == THREAD
        await soon(peer.fake.press(peer.fake.pressed(GROUP, ts, buttons[0]["value"])).acknowledged.wait(), "it")
        (click,) = context.events
        assert click.address == address and click.source == MessageRef(address, (ts,))
        await channel.answer(click.responder, click.source, ActionReply(text="Not you.", accepted=False))
        hidden = (await see(peer, "ephemeral")).message
        assert (hidden["for"], hidden["text"], hidden["thread_ts"]) == ("U00000ANN", "Not you.", THREAD)
        await channel.answer(click.responder, click.source, ActionReply(text="**Yes**, by Ann.", accepted=True))
        final = (await see(peer, "update")).message
        assert read(final) == "Yes, by Ann." and not peer.buttons(ts)
        shown = [json.dumps(context.memory.texts), click.responder]
        assert not [text for text in shown if "/response/" in text], "a response_url is a credential"


async def test_a_question_for_one_person_is_answered_for_that_one(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path) as (channel, context):
        handle = f"{peer.fake.team}.U00000ANN"
        prompt = Prompt(id="qst_1", title="", question="Well?", choices=(Choice("y", "Yes"),))
        (ts,) = await sent(channel, peer.address("group"), OutMessage(prompt=prompt, ephemeral_for=Person(handle)))
        assert (await see(peer, "ephemeral")).message["for"] == "U00000ANN"
        pressed = peer.fake.pressed(GROUP, ts, peer.buttons(ts)[0]["value"], hidden=True)
        await soon(peer.fake.press(pressed).acknowledged.wait(), "it")
        (click,) = context.events
        await channel.answer(click.responder, click.source, ActionReply(text="Good.", accepted=True))
        answer = (await see(peer, "response")).message
        assert answer["text"] == "Good." and answer["replace_original"]


async def test_a_private_word_in_a_direct_message_is_a_plain_one(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path) as (channel, _):
        await sent(channel, peer.address(), OutMessage(text="psst", ephemeral_for=Person("T.U00000ANN")))
        assert read((await see(peer, "message")).message) == "psst"


def test_a_card_keeps_the_limits_of_block_kit() -> None:
    fields = tuple(CardField(f"name {number}", "value " * 1000) for number in range(25))
    card = Card(
        title="**Title**",
        text="long " * 2000,
        fields=fields,
        image_url="https://example.org/a.png",
        links=(CardLink("open", "https://example.org"), CardLink("bad", "javascript:alert(1)")),
    )
    made = blocks(OutMessage(card=card))
    assert problem_of(made) is None and made[0]["text"]["text"] == "Title"
    assert [one["url"] for one in made[-1]["elements"]] == ["https://example.org"]
    assert len(summary(OutMessage(card=card))) <= 3000
    many = tuple(CardField(f"name {number}", "v") for number in range(900))
    prompt = Prompt(id="qst_1", title="T", question="Q", choices=(Choice("y", "Yes" * 50),))
    full = blocks(OutMessage(card=Card(title="t", fields=many), prompt=prompt))
    assert problem_of(full) is None and full[-1]["type"] == "actions"


REACTIONS = (
    ("❤️", "heart"),
    ("❤", "heart"),
    ("☃️", "snowman"),
    ("✍️", "writing_hand"),
    ("1️⃣", "one"),
    ("👍🏽", "+1::skin-tone-4"),
    ("👍", "+1"),
    ("thumbs_up", "+1"),
    ("+1", "+1"),
    (":+1:", "+1"),
    ("white_check_mark", "white_check_mark"),
    ("✅", "white_check_mark"),
    (":party_parrot:", "party_parrot"),
)


async def test_reactions_by_character_and_by_name(peer: Workspace, tmp_path: Path) -> None:
    """C060, C062."""
    async with peer.running(tmp_path) as (channel, _):
        (ts,) = await sent(channel, peer.address(), "hi")
        ref = MessageRef(peer.address(), (ts,))
        for emoji, name in REACTIONS:
            await channel.react(ref, emoji)
            await channel.react(ref, emoji)
            assert (await see(peer, "reaction")).message["name"] == name
            await channel.react(ref, emoji, False)
            await channel.react(ref, emoji, False)
            assert not (await see(peer, "reaction")).message["on"]
        for unknown in ("🫠", "not_an_emoji"):
            with pytest.raises(Unsupported) as caught:
                await channel.react(ref, unknown)
            assert caught.value.fix is not None and "thumbsup" in caught.value.fix
        assert character("+1::skin-tone-4") == "👍" and name_of("thumbsup") == "+1"


async def test_a_status_stands_in_for_typing_in_threads(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path) as (channel, _):
        assert channel.capabilities(peer.address()).typing is Support.NONE
        address = peer.address("group", "t1")
        assert channel.capabilities(address).typing is not Support.NONE
        await channel.typing(address)
        assert (await see(peer, "status")).message["status"]
        await channel.typing(address, False)
        assert (await see(peer, "status")).message["status"] == ""


async def test_a_direct_message_is_opened(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path) as (channel, _):
        address = await channel.open_dm(Person(f"{peer.fake.team}.U00000ANN"))
        assert address == Address("slack", "work", "D00000ANN")
        with pytest.raises(ChatNotFound):
            await channel.open_dm(Person("T.U0NOBODY"))


async def test_history_of_a_thread_holds_our_own(peer: Workspace, tmp_path: Path) -> None:
    """C081: an answer whose arrival is in doubt is looked up there."""
    async with peer.running(tmp_path) as (channel, _):
        fake = peer.fake
        fake.say("root", channel=GROUP, ts=THREAD)
        fake.say("elsewhere", channel=GROUP)
        fake.drop_after_send(method="chat.postMessage")
        address = peer.address("group", "t1")
        with pytest.raises(Ambiguous):
            await sent(channel, address, "**an** answer")
        found = await channel.history(address)
        assert [one.sender.is_self for one in found] == [False, True] and "answer" in found[1].text
        assert [one.text for one in await channel.history(peer.address("group"), after=THREAD)] == ["elsewhere"]


# ---- streams


async def grown(peer: Workspace, channel: SlackChannel, address: Address, *texts: str) -> Any:
    stream = channel.open_stream(address)
    for text in texts:
        vars(stream)["_not_before"] = 0.0
        await stream.update(text)
    return stream


async def test_in_a_thread_slack_streams(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path) as (channel, context):
        fake = peer.fake
        ask = fake.say(f"<@{fake.bot_user}> go", channel=GROUP)
        await soon(fake.tell(ask).acknowledged.wait(), "the question")
        address = context.events[0].address
        assert channel.capabilities(address).stream is StreamKind.NATIVE
        stream = await grown(peer, channel, address, "Hel", "Hello @here **wor", "Hello @here **world**, how")
        result = await stream.finish(OutMessage(text="Hello @here **world**, how are you?"), idempotency_key="dl_1")
        (started,) = fake.sent("chat.startStream")
        assert started.json()["recipient_user_id"] == "U00000ANN" and started.json()["recipient_team_id"] == fake.team
        message = fake.find(GROUP, result.ids[0])
        assert message is not None and "streaming" not in message
        assert message["markdown_text"] == "Hello @\u200bhere **world**, how are you?"
        assert not fake.sent("chat.update") and len(fake.sent("chat.appendStream")) == 1


@pytest.mark.parametrize("final", ["Something else.", "One two three\n\n| a | b |\n|---|---|\n| 1 | 2 |"])
async def test_a_final_text_that_goes_on_otherwise_replaces_the_stream(
    peer: Workspace, tmp_path: Path, final: str
) -> None:
    async with peer.running(tmp_path) as (channel, _):
        peer.fake.say("q", channel="D00000ONE", ts=THREAD)
        stream = await grown(peer, channel, peer.address(thread="t1"), "One two ", "One two three ")
        result = await stream.finish(OutMessage(text=final), idempotency_key="dl_1")
        message = peer.fake.find("D00000ONE", result.ids[0])
        assert message is not None and "|---|" not in message["markdown_text"]
        assert message["markdown_text"].startswith(final[:9]) and len(peer.fake.messages["D00000ONE"]) == 2


async def test_a_stream_that_slack_ended_is_brought_to_its_end(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path) as (channel, _):
        address = peer.address(thread="t1")
        stream = await grown(peer, channel, address, "One two ")
        message = peer.fake.messages["D00000ONE"][-1]
        del message["streaming"]
        vars(stream)["_not_before"] = 0.0
        await stream.update("One two three four ")
        result = await stream.finish(OutMessage(text="One two three four."), idempotency_key="dl_1")
        assert result.ids == (message["ts"],) and message["markdown_text"] == "One two three four."


async def test_where_slack_does_not_stream_it_edits(peer: Workspace, tmp_path: Path) -> None:
    """Also for whom nobody knows that the stream would be for."""
    async with peer.running(tmp_path) as (channel, _):
        stream = await grown(peer, channel, peer.address("group", "t1"), "One two ")
        assert read((await see(peer, "message")).message) == "One two"
        path = tmp_path / "f"
        path.write_bytes(b"1")
        message = OutMessage(text="One two three", files=(OutFile("f", str(path), 1),))
        result = await stream.finish(message, idempotency_key="dl_1")
        assert read((await see(peer, "update")).message) == "One two three"
        assert len(result.ids) == 2 and (await see(peer, "message")).message["files"]


async def test_an_aborted_stream_leaves_nothing(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path) as (channel, _):
        stream = await grown(peer, channel, peer.address(thread="t1"), "One two ")
        await stream.abort()
        assert not peer.fake.messages["D00000ONE"]


async def test_a_stream_slows_down_when_slack_says_so(peer: Workspace, tmp_path: Path) -> None:
    """C077."""
    async with peer.running(tmp_path) as (channel, _):
        stream = await grown(peer, channel, peer.address(thread="t1"), "One two ")
        limited = {"ok": False, "error": "ratelimited"}
        peer.fake.fail_next(429, limited, {"retry-after": "1"}, method="chat.appendStream")
        vars(stream)["_not_before"] = 0.0
        await stream.update("One two three ")
        result = await stream.finish(OutMessage(text="One two three four."), idempotency_key="dl_1")
        message = peer.fake.find("D00000ONE", result.ids[0])
        assert message is not None and message["markdown_text"] == "One two three four."


# ---- refusals


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("channel_not_found", ChatNotFound),
        ("message_not_found", ChatNotFound),
        ("not_in_channel", SendNotAllowed),
        ("is_archived", SendNotAllowed),
        ("restricted_action", SendNotAllowed),
        ("restricted_action_read_only_channel", SendNotAllowed),
        ("missing_scope", SendNotAllowed),
        ("something_new", SendNotAllowed),
        ("msg_too_long", TooLarge),
        ("invalid_blocks", BadContent),
        ("edit_window_closed", WindowClosed),
        ("ratelimited", RateLimited),
        ("invalid_auth", AuthFailed),
        ("token_revoked", AuthFailed),
        ("account_inactive", AuthFailed),
        ("service_unavailable", Transient),
        ("fatal_error", Ambiguous),
    ],
)
def test_each_refusal_has_its_class(code: str, kind: type[ChannelError]) -> None:
    """C077, C081, C234."""
    assert type(meaning(code, code)) is kind


async def test_a_refusal_in_a_200_waits_as_its_header_says(peer: Workspace, tmp_path: Path) -> None:
    """C077."""
    async with peer.running(tmp_path) as (channel, _):
        said = {"ok": False, "error": "ratelimited"}
        peer.fake.fail_next(200, said, {"retry-after": "37"}, method="chat.postMessage")
        with pytest.raises(RateLimited) as caught:
            await sent(channel, peer.address(), "hi")
        assert caught.value.retry_after == 37


async def test_errors_name_what_slack_says_and_no_token(peer: Workspace, tmp_path: Path) -> None:
    """C133."""
    async with peer.running(tmp_path) as (channel, _):
        said = {"ok": False, "error": "missing_scope", "needed": "chat:write", "errors": [peer.fake.bot_token]}
        peer.fake.fail_next(200, said, method="chat.postMessage")
        with pytest.raises(SendNotAllowed, match="needed: chat:write") as caught:
            await sent(channel, peer.address(), "hi")
        assert peer.fake.bot_token not in str(caught.value) and "slack-manifest" in str(caught.value.fix)


async def test_a_burst_is_spread(peer: Workspace, tmp_path: Path) -> None:
    """C083: five at once, then one a second; the rest waits with the core."""
    async with peer.running(tmp_path) as (channel, _):
        before = time.monotonic()
        for number in range(6):
            await sent(channel, peer.address(), f"{number}")
        assert time.monotonic() - before > 3.0
        assert [read(one) for one in peer.fake.messages["D00000ONE"]] == [str(number) for number in range(6)]


async def test_two_workspaces_side_by_side(peer: Workspace, tmp_path: Path) -> None:
    other = Workspace("home")
    await other.open()
    try:
        async with peer.running(tmp_path / "a") as (one, first), other.running(tmp_path / "b") as (two, second):
            await sent(one, peer.address(), "to work")
            await sent(two, other.address(), "to home")
            assert [read(message) for message in peer.fake.messages["D00000ONE"]] == ["to work"]
            assert [read(message) for message in other.fake.messages["D00000ONE"]] == ["to home"]
            for workspace in (peer, other):
                event = workspace.fake.say("hi", channel="D00000ONE")
                await soon(workspace.fake.tell(event).acknowledged.wait(), "it")
            handles = [context.events[0].sender.handle for context in (first, second)]
            assert handles[0] != handles[1], "ids of people are unique in their workspace only"
    finally:
        await other.close()
