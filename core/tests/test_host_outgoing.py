"""What is done to a message before it is recorded: permission, hooks, files, degrading, cutting."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from delivery_kit import CAPABLE, Bench, open_bench
from hypothesis import given
from hypothesis import strategies as st
from jackfield.api import OutboundPart, OutboundVerdict, SendPath, hookimpl
from jackfield.host.degrade import card_text, degrade, prompt_text
from jackfield.host.parts import message_parts
from jackfield.host.questions import match_text_answer
from jackfield.host.secrets.masking import masked
from jackfield.models import (
    Address,
    Capabilities,
    Card,
    CardField,
    CardLink,
    Choice,
    DeliveryState,
    EditContent,
    MessageContent,
    OutFile,
    OutMessage,
    Prompt,
    ReactionContent,
    Support,
    loads,
)
from jackfield.redaction import REDACTOR

HERE = Address("fake", "fake", "c-1")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path / "home") as made:
        yield made


class Appends:
    @hookimpl
    async def compose_outbound(self, part: OutboundPart, text: str) -> str:
        return text + "!"


class Raises:
    @hookimpl
    async def compose_outbound(self, part: OutboundPart, text: str) -> str:
        raise ValueError("broken")


class Shouts:
    @hookimpl
    async def compose_outbound(self, part: OutboundPart, text: str) -> str:
        return text.upper()


class BrokenGuard:
    @hookimpl
    async def intercept_outbound(self, part: OutboundPart) -> OutboundVerdict | None:
        raise ValueError("broken")


class HangingGuard:
    @hookimpl
    async def intercept_outbound(self, part: OutboundPart) -> OutboundVerdict | None:
        await asyncio.Event().wait()
        return None


class Sees:
    """Replaces foo by bar, and remembers each message that it was asked about."""

    def __init__(self) -> None:
        self.paths: list[SendPath] = []

    @hookimpl
    async def intercept_outbound(self, part: OutboundPart) -> OutboundVerdict | None:
        self.paths.append(part.path)
        return None

    @hookimpl
    async def compose_outbound(self, part: OutboundPart, text: str) -> str:
        return text.replace("foo", "bar")


async def test_a_broken_composing_hook_is_passed_over_and_counted(bench: Bench) -> None:
    """C187."""
    bench.plugins.use(("a", Appends()), ("b", Raises()), ("c", Shouts()))
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    await bench.post(session, chat, "ok")
    await bench.quiet()
    assert bench.channel.texts == ["OK!"]
    assert bench.plugins.dispatcher.failures == {("b", "compose_outbound"): 1}


@pytest.mark.parametrize("guard", [BrokenGuard(), HangingGuard()])
async def test_a_guard_that_fails_or_hangs_blocks_the_message_with_its_reason(bench: Bench, guard: object) -> None:
    """C187."""
    bench.plugins.use(("guard", guard))
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    await bench.post(session, chat, "secret")
    await bench.quiet()
    assert await bench.states(session) == [(DeliveryState.BLOCKED, "GuardFailed")]
    assert bench.channel.calls == [] and len(bench.failures) == 1


async def test_every_way_out_passes_the_hooks_exactly_once(bench: Bench) -> None:
    """C189."""
    hooks = Sees()
    bench.plugins.use(("sees", hooks))
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    prompt = Prompt("qst_1", "foo?", "is it foo", (Choice("1", "foo"), Choice("2", "no")))
    file = bench.row(session, chat, MessageContent(text="foo file", files=("f.txt",)))
    bench.hub.folder_of(session).store_outbox(file.id, "f.txt", b"x")
    await bench.record(
        session,
        bench.row(session, chat, "foo answer", draft_block=0),
        bench.row(session, chat, "foo tool"),
        bench.row(session, chat, MessageContent(card=Card(title="foo", text="foo card"))),
        file,
        bench.row(session, chat, MessageContent(prompt=prompt)),
        bench.row(session, chat, MessageContent(text="foo command", command=True)),
        bench.row(session, chat, EditContent(target_seq=1, text="foo edit")),
        bench.row(session, chat, ReactionContent(target_seq=1, emoji="👍")),
        bench.row(session, chat, "foo " * 100),
    )
    await bench.quiet()
    await bench.delivery.send_direct(chat, OutMessage(text="foo notice"), path=SendPath.NOTICE)
    paths = [SendPath.ANSWER, SendPath.TOOL, SendPath.CARD, SendPath.FILE, SendPath.QUESTION, SendPath.COMMAND]
    assert hooks.paths == [*paths, SendPath.EDIT, SendPath.REACTION, SendPath.TOOL, SendPath.NOTICE]
    assert set(hooks.paths) == set(SendPath)
    assert not any("foo" in repr(call.message) for call in bench.channel.arrived)


async def test_only_the_conversation_and_granted_destinations_are_reached(bench: Bench) -> None:
    """C147."""
    chat, granted = await bench.chat("c-1"), await bench.chat("ops")
    stranger = await bench.chat("+15550100", wired=False)
    session = await bench.session(chat)
    for address in (chat, granted, stranger, Address("fake", "fake", "unknown")):
        await bench.post(session, address, "summary")
    await bench.quiet()
    assert [call.address.platform_id for call in bench.channel.arrived] == ["c-1", "ops"]
    assert [reason for _, reason in await bench.states(session)] == [None, None] + ["DestinationNotAllowed"] * 2
    assert len(bench.failures) == 2


async def test_what_is_addressed_to_another_agent_is_not_shown_to_the_conversation(bench: Bench) -> None:
    """A forged row may name an agent; that is no address, and no permission."""
    session = await bench.session(await bench.chat("c-1"))
    await bench.post(session, None, "between us", agent_group_id=bench.group.id)
    await bench.quiet()
    assert bench.channel.arrived == []
    assert await bench.states(session) == [(DeliveryState.BLOCKED, "DestinationNotAllowed")]


async def test_an_unwired_session_may_still_answer_its_own_chat(bench: Bench) -> None:
    chat = await bench.chat("c-1", wired=False)
    session = await bench.session(chat)
    await bench.post(session, None, "hello")
    await bench.quiet()
    assert bench.channel.arrived[0].address == chat


async def test_bad_files_are_named_and_good_ones_leave(bench: Bench, tmp_path: Path) -> None:
    """C075."""
    secret = tmp_path / "master.key"
    secret.write_text("key")
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    row = bench.row(session, chat, MessageContent(text="here", files=("a.txt", "link", "../x", "gone", "a.txt")))
    folder = bench.hub.folder_of(session)
    folder.store_outbox(row.id, "a.txt", b"good")
    os.symlink(secret, folder.outbox / row.id / "link")
    await bench.record(session, row)
    (file,) = [file for part in await bench.parts(session) for file in _message(part.content).files]
    (folder.outbox / row.id / "a.txt").unlink()
    os.symlink(secret, folder.outbox / row.id / "a.txt")
    assert Path(file.path).read_bytes() == b"good", "what was checked is what is sent"
    await bench.quiet()
    assert [call.text for call in bench.channel.arrived] == ["here", ""]
    ((one, two, three),) = bench.degraded
    assert "link" in one and "../x" in two and "gone" in three
    assert secret.read_text() == "key" and not Path(file.path).exists()


async def test_a_message_of_bad_files_only_fails(bench: Bench) -> None:
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    await bench.post(session, chat, MessageContent(files=("../../etc/passwd",)), "", MessageContent(text=" \n"))
    await bench.quiet()
    assert [reason for _, reason in await bench.states(session)] == ["UnsafePath", "EmptyMessage", "EmptyMessage"]


async def test_a_huge_text_becomes_a_file_and_its_opening(bench: Bench) -> None:
    """C219."""
    bench.channel.can = replace(CAPABLE, text_limit=4096)
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    text = "שלום " * 50_000
    parts = await bench.record(session, bench.row(session, chat, text))
    assert len(parts) == 2
    file = _message(parts[1].content).files[0]
    assert Path(file.path).read_text() == text and file.name == "message.md"
    await bench.quiet()
    assert bench.channel.texts[0].startswith("שלום") and len(bench.channel.texts[0]) < 2300


async def test_a_huge_text_for_a_chat_without_files_is_cut_and_the_agent_is_told(bench: Bench) -> None:
    """C219."""
    bench.channel.can = replace(CAPABLE, text_limit=4096, files=Support.NONE)
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    await bench.post(session, chat, "x" * 300_000)
    await bench.quiet()
    assert len(bench.channel.arrived) == 1 and bench.degraded == [("only the opening of the long text was sent",)]


async def test_what_a_chat_lacks_is_replaced_dropped_or_named(bench: Bench) -> None:
    bench.channel.can = Capabilities(text_limit=500, emoji=("👍",))
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    await bench.post(
        session,
        chat,
        "one",
        EditContent(target_seq=1, text="two"),
        ReactionContent(target_seq=1, emoji="👍"),
        MessageContent(card=Card(title="T", fields=(CardField("a", "b"),), links=(CardLink("l", "https://x"),))),
    )
    await bench.quiet()
    assert bench.channel.texts == ["one", "*(edited)* two", "**T**\n\n**a**: b\n\n[l](https://x)"]
    states = await bench.states(session)
    assert states[2] == (DeliveryState.DROPPED, "Unsupported")
    assert bench.degraded == [("the edit was sent as a new message",)]


async def test_a_name_of_an_emoji_is_the_channel_s_to_know(bench: Bench) -> None:
    """C060, C062: only a character that the chat does not have is refused before the channel is asked."""
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    bench.channel.can = replace(CAPABLE, emoji=("👍", "❤"))
    written = ("❤\ufe0f", "👍🏽", "thumbs_up", "+1", "100", "🦄")
    await bench.post(session, chat, "one", *(ReactionContent(target_seq=1, emoji=emoji) for emoji in written))
    await bench.quiet()
    assert [reason for _, reason in await bench.states(session)][1:] == [None] * 5 + ["Unsupported"]


def _message(content: str) -> OutMessage:

    message = loads(OutMessage, content)
    return message


# ---- degrading, pure


def test_a_chat_without_buttons_gets_a_numbered_list() -> None:
    prompt = Prompt("q", "Lunch", "What shall it be?", (Choice("p", "Pizza"), Choice("s", "Soup")))
    found = degrade(OutMessage(prompt=prompt), Capabilities())
    assert found.lost == ("buttons",) and found.message.prompt is None
    assert found.message.text == "**Lunch**\n\nWhat shall it be?\n\n1. Pizza\n2. Soup\n\n*Answer with a number.*"


def test_too_many_too_long_and_equal_labels_are_handled() -> None:
    """C159."""
    many = Prompt("q", "t", "q?", tuple(Choice(str(number), "x" * 120) for number in range(30)))
    can = Capabilities(prompt=Support.NATIVE, prompt_max_choices=25, prompt_label_limit=80)
    assert degrade(OutMessage(prompt=many), can).lost == ("buttons",)
    few = replace(many, choices=many.choices[:2])
    found = degrade(OutMessage(prompt=few), can)
    assert found.lost == ("labels",) and found.message.prompt is not None
    assert [choice.label for choice in found.message.prompt.choices] == ["1", "2"]
    assert "1. " + "x" * 120 in found.message.prompt.question
    equal = Prompt("q", "t", "q?", (Choice("a", "Yes"), Choice("b", "Yes")))
    shown = degrade(OutMessage(prompt=equal), can).message.prompt
    assert shown is not None and [choice.label for choice in shown.choices] == ["Yes", "Yes (2)"]


def test_a_table_becomes_a_fenced_block_where_there_are_none() -> None:
    table = "| a | b |\n|---|---|\n| 1 | 2 |"
    text = f"See:\n{table}\nafter | that\n\n```\n{table}\n```"
    found = degrade(OutMessage(text=text), Capabilities())
    assert found.message.text == f"See:\n```\n{table}\nafter | that\n```\n\n```\n{table}\n```"
    assert degrade(OutMessage(text=text), CAPABLE).message.text == text


def test_files_that_a_chat_does_not_take_are_named_in_the_text() -> None:
    files = (OutFile("a.txt", "/a", 10), OutFile("big.bin", "/b", 1000))
    found = degrade(OutMessage(text="hi", files=files), replace(CAPABLE, file_max_bytes=100))
    assert found.message.files == files[:1] and found.lost == ("files",)
    assert "`big.bin`" in found.message.text and "a.txt" not in found.message.text


def test_a_card_uses_the_text_that_its_author_gave() -> None:
    assert card_text(Card(title="t", fallback_text="words")) == "words"
    assert "own words" in prompt_text(Prompt("q", "t", "q?", (), allow_text=True))


def test_a_short_text_and_its_file_are_one_message_where_captions_are_allowed() -> None:
    files = tuple(OutFile(f"{number}.txt", f"/{number}", 1) for number in range(3))
    can = replace(CAPABLE, caption_limit=100, file_max_count=2)
    parts = message_parts(OutMessage(text="hi", files=files, card=Card(title="c")), HERE, None, can)
    assert [(part.text, len(part.files), part.card is not None) for part in parts] == [
        ("hi", 2, False),
        ("", 1, False),
        ("", 0, True),
    ]


@given(
    st.builds(
        OutMessage,
        text=st.text(alphabet="ab |-\n`", max_size=60),
        files=st.lists(st.builds(OutFile, st.just("f"), st.just("/f"), st.integers(0, 50)), max_size=3).map(tuple),
        prompt=st.none()
        | st.builds(
            Prompt,
            id=st.just("q"),
            title=st.text(max_size=5),
            question=st.text(max_size=5),
            choices=st.lists(st.builds(Choice, st.text(max_size=4), st.text(max_size=9)), max_size=4).map(tuple),
        ),
        card=st.none() | st.builds(Card, title=st.text(max_size=5)),
    ),
    st.builds(
        Capabilities,
        tables=st.sampled_from(Support),
        files=st.sampled_from(Support),
        prompt=st.sampled_from(Support),
        cards=st.sampled_from(Support),
        prompt_max_choices=st.integers(0, 3),
        prompt_label_limit=st.none() | st.integers(1, 8),
        file_max_bytes=st.none() | st.integers(0, 50),
        text_limit=st.none() | st.integers(50, 80),
    ),
)
def test_degrading_twice_changes_nothing_more(message: OutMessage, can: Capabilities) -> None:
    once = degrade(message, can).message
    assert degrade(once, can).message == once
    for part in message_parts(once, HERE, None, can):
        assert not (can.prompt is Support.NONE and part.prompt) and not (can.cards is Support.NONE and part.card)
        assert can.files is not Support.NONE or not part.files
        assert can.text_limit is None or len(part.text) <= can.text_limit


@pytest.mark.parametrize(
    ("labels", "limit", "shown"),
    [
        (("2", "2", "2 (2)"), None, ["2", "2 (2)", "2 (2) (2)"]),
        (("yes", "yes"), 5, ["1", "2"]),
        (("no", "no"), 6, ["no", "no (2)"]),
    ],
)
def test_no_two_buttons_look_the_same(labels: tuple[str, ...], limit: int | None, shown: list[str]) -> None:
    """C159."""
    choices = tuple(Choice(f"v{place}", label) for place, label in enumerate(labels))
    can = Capabilities(prompt=Support.NATIVE, prompt_max_choices=9, prompt_label_limit=limit)
    prompt = degrade(OutMessage(prompt=Prompt("q", "Which?", "Which?", choices)), can).message.prompt
    assert prompt is not None and [choice.label for choice in prompt.choices] == shown


SAID: dict[str, str | None] = {
    **dict.fromkeys(("1", "PIZZA", "p"), "p"),
    **dict.fromkeys(("2.", "(2)", " soup ", "s"), "s"),
    **dict.fromkeys(("3", "0", "12", "1 2", "pizza please", "")),
}


@pytest.mark.parametrize(("said", "meant"), SAID.items())
def test_a_typed_answer_is_a_number_a_label_or_a_value(said: str, meant: str | None) -> None:
    prompt = Prompt("q", "Lunch", "?", (Choice("p", "Pizza"), Choice("s", "Soup")))
    assert match_text_answer(prompt, said) == meant


def test_a_label_that_two_choices_share_means_neither() -> None:
    """C159."""
    prompt = Prompt("q", "t", "?", (Choice("a", "Yes"), Choice("b", "yes")))
    assert match_text_answer(prompt, "yes") is None and match_text_answer(prompt, "2") == "b"


async def test_a_secret_in_a_files_name_or_a_pictures_address_is_not_sent(bench: Bench) -> None:
    REDACTOR.register("canary-of-names")
    here = await bench.chat("c-1")
    session = await bench.session(here)
    card = Card(title="t", image_url="https://far.example/?k=canary-of-names")
    row = bench.row(session, here, MessageContent(text="", files=("canary-of-names.txt",)))
    bench.hub.folder_of(session).store_outbox(row.id, "canary-of-names.txt", b"x")
    (part,) = await bench.record(session, row)
    (file,) = loads(OutMessage, part.content).files
    assert (file.name, Path(file.path).read_bytes()) == ("[secret].txt", b"x")
    assert masked(OutMessage(card=card)).card == replace(card, image_url="https://far.example/?k=[secret]")
