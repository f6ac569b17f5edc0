"""Cards: who gets them, what they show, who may click or type, and what they say in the end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from approval_kit import CardDesk, open_card_desk
from hypothesis import given
from hypothesis import strategies as st
from jackfield.api import ApprovalChoice, ApprovalField, ApprovalState, ChannelInfo
from jackfield.clock import UnixMs, from_datetime, local_iso, zoned_text
from jackfield.errors import Ambiguous, ChatNotFound, NobodyListening, RolledBack, TooLarge, Transient
from jackfield.host.approvals import YES_NO
from jackfield.host.approvals.answers import typed_choice
from jackfield.host.approvals.cards import literal, quoted
from jackfield.host.approvals.policy import approvers, preferred
from jackfield.ids import AgentGroupId, ApprovalId, UserId
from jackfield.models import Address, AgentGroup, Role, RoleName, Support, Trust
from jackfield.store import approval_cards, groups, people
from jackfield.store.approvals import Via


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[CardDesk]:
    async with open_card_desk(tmp_path / "home") as made:
        yield made


async def asked(desk: CardDesk, **more: Any) -> ApprovalId:
    ticket = await desk.request(**more)
    await desk.quiet()
    return ticket.id


# ---- who is asked


async def test_one_person_gets_a_card_that_shows_every_field(desk: CardDesk) -> None:
    await desk.grant("fake:olga")
    await desk.grant("fake:otto")
    fields = [ApprovalField(label="command", value="npx"), ApprovalField(label="env TOKEN", value="from secret x")]
    id = await asked(desk, fields=fields, reason="I need it")
    assert [call.address.platform_id for call in desk.cards()] == ["dm-olga"]
    card = desk.cards()[0].message.prompt
    assert card is not None
    assert (card.id, card.title) == (id, "Do act")
    for shown in (
        "**command:** `npx`",
        "**env TOKEN:** `from secret x`",
        "own words: `I need it`",
        "`Helper` (`helper`)",
    ):
        assert shown in card.question
    assert [choice.label for choice in card.choices] == ["Approve", "Reject"]


async def test_admins_of_the_group_are_asked_before_global_ones_and_owners(desk: CardDesk) -> None:
    """messaging.md 11.4."""
    await desk.grant("fake:olga")
    await desk.grant("fake:gus", RoleName.ADMIN)
    await desk.grant("fake:sue", RoleName.ADMIN, scoped=True)
    await asked(desk)
    assert [call.address.platform_id for call in desk.cards()] == ["dm-sue"]


async def test_a_time_is_told_in_the_zone_of_whoever_is_asked(desk: CardDesk) -> None:
    """C109; whoever has none is told the host's."""
    await desk.grant("fake:olga")
    id = await asked(desk)
    until = zoned_text((await desk.engine.get(id)).expires_at, ZoneInfo("UTC"))
    (shown,) = [card.message.prompt for card in desk.cards()]
    assert shown is not None and f"*Until {until};" in shown.question
    await desk.bench.hub.store.write(people.set_timezone, UserId("fake:olga"), "Asia/Kolkata")
    await asked(desk, payload={"n": 2})
    shown = desk.cards()[1].message.prompt
    assert shown is not None and " +05:30 (Asia/Kolkata);" in shown.question


def test_a_moment_in_a_zone_has_its_offset() -> None:
    at = from_datetime(datetime(2026, 7, 1, 22, 5, 9, tzinfo=UTC))
    assert zoned_text(at, ZoneInfo("Europe/Berlin")) == "2026-07-02 00:05 +02:00 (Europe/Berlin)"
    assert zoned_text(at, ZoneInfo("America/St_Johns")) == "2026-07-01 19:35 -02:30 (America/St_Johns)"
    assert local_iso(at, ZoneInfo("Europe/Berlin")) == "2026-07-02T00:05:09+02:00"


async def test_who_can_not_be_reached_is_passed_over(desk: CardDesk) -> None:
    await desk.grant("fake:sue", RoleName.ADMIN, scoped=True)
    await desk.grant("fake:gus", RoleName.ADMIN)
    await desk.grant("fake:olga")
    desk.channel.refuses.add("sue")
    desk.channel.script.append(ChatNotFound("gus blocked the bot"))
    await asked(desk)
    assert [call.address.platform_id for call in desk.cards()] == ["dm-olga"]


async def test_with_nobody_to_reach_it_waits_and_is_shown_once_somebody_can_be(desk: CardDesk) -> None:
    await desk.grant("fake:olga")
    desk.channel.refuses.add("olga")
    id = await asked(desk)
    assert desk.cards() == []
    assert "jackfield approval approve" in desk.told[0][1]
    desk.channel.refuses.clear()
    await desk.engine.sweep()
    await desk.quiet()
    assert [call.message.prompt.id for call in desk.cards() if call.message.prompt] == [id]
    await desk.engine.sweep()
    await desk.quiet()
    assert len(desk.cards()) == 1
    assert len(desk.told) == 1


async def test_a_chat_that_was_opened_is_remembered_until_the_platform_says_it_is_gone(desk: CardDesk) -> None:
    await desk.grant("fake:olga")
    for number in range(2):
        await asked(desk, payload={"n": number})
    assert desk.channel.opened == ["olga"]
    desk.channel.script.append(ChatNotFound("gone"))
    await asked(desk, payload={"n": 3})
    await desk.engine.sweep()
    await desk.quiet()
    assert desk.channel.opened == ["olga", "olga"]
    assert len(desk.cards()) == 3


async def test_what_an_agent_asks_in_the_terminal_is_shown_there(desk: CardDesk) -> None:
    """The operator of this machine owns their own chat."""
    desk.bench.directory.instances["fake"].info = ChannelInfo(type="fake", title="Fake", local=True)
    id = await asked(desk)
    assert [call.address.platform_id for call in desk.cards()] == ["c-1"]
    told = await desk.click(id, handle="root", chat="c-1", trust=Trust.OPERATOR)
    assert told is not None and told[0]
    assert (await desk.engine.get(id)).decided_by == "operator"


async def test_what_a_task_asks_is_shown_where_its_conversation_is(desk: CardDesk) -> None:
    desk.bench.directory.instances["fake"].info = ChannelInfo(type="fake", title="Fake", local=True)
    await asked(desk, context=replace(desk.context(), origin=None))
    assert [call.address.platform_id for call in desk.cards()] == ["c-1"]


async def test_who_attaches_to_a_local_chat_is_shown_what_waits(desk: CardDesk) -> None:
    desk.bench.directory.instances["fake"].info = ChannelInfo(type="fake", title="Fake", local=True)
    desk.channel.script.append(NobodyListening("nobody"))
    id = await asked(desk)
    assert desk.cards() == []
    desk.engine.listening(Address("fake", "fake", "helper"))
    await desk.until(lambda: bool(desk.cards()))
    await desk.quiet()
    assert [call.message.prompt.id for call in desk.cards() if call.message.prompt] == [id]


def test_the_origins_own_channel_comes_first() -> None:
    def role(user: str, kind: RoleName, group: AgentGroupId | None, at: int) -> Role:
        return Role(user_id=UserId(user), role=kind, agent_group_id=group, granted_by=None, granted_at=UnixMs(at))

    roles = [
        role("tg:o", RoleName.OWNER, None, 1), role("sl:g", RoleName.ADMIN, None, 3),
        role("tg:g", RoleName.ADMIN, None, 2), role("sl:s", RoleName.ADMIN, AgentGroupId("ag_1"), 9),
        role("sl:x", RoleName.ADMIN, AgentGroupId("ag_2"), 0), role("sl:g", RoleName.OWNER, None, 0),
    ]  # fmt: skip
    people = approvers(roles, AgentGroupId("ag_1"))
    assert people == ["sl:s", "tg:g", "sl:g", "tg:o"]
    instances = [("sl", "work"), ("tg", "one"), ("tg", "two")]
    assert preferred(people, instances, Address("tg", "two", "c")) == [
        ("tg:g", "tg", "two"), ("tg:o", "tg", "two"), ("tg:g", "tg", "one"), ("tg:o", "tg", "one"),
        ("sl:s", "sl", "work"), ("sl:g", "sl", "work"),
    ]  # fmt: skip
    assert preferred(people, instances, None)[0] == ("sl:s", "sl", "work")
    assert approvers(roles, None) == ["tg:g", "sl:g", "tg:o"]


# ---- what it shows


async def test_a_long_value_is_a_file_and_its_opening(desk: CardDesk) -> None:
    await desk.grant("fake:olga")
    await asked(desk, fields=[ApprovalField(label="Instructions", value="x" * 5000 + "evil")])
    sent = [call for call in desk.channel.arrived if call.message.files]
    assert [Path(file.path).read_text()[-4:] for file in sent[0].message.files] == ["evil"]
    assert sent[0].message.files[0].name == "1-instructions.txt"
    card = desk.cards()[0].message.prompt
    assert card is not None and "all 5,004 characters are in 1-instructions.txt" in card.question


async def test_where_no_files_can_be_sent_everything_stands_in_the_text(tmp_path: Path) -> None:
    async with open_card_desk(tmp_path / "home", files=Support.NONE, text_limit=1000) as desk:
        await desk.grant("fake:olga")
        await asked(desk, fields=[ApprovalField(label="Instructions", value="word " * 700 + "evil")])
        assert "evil" in "".join(call.text for call in desk.channel.arrived)
        assert desk.channel.arrived[-1].message.prompt is not None
        too_much = await asked(desk, fields=[ApprovalField(label="Instructions", value="w" * 30_000)])
        assert not any(call.message.prompt and call.message.prompt.id == too_much for call in desk.cards())
        assert "jackfield approval approve" in desk.told[-1][1]


async def test_the_files_of_a_request_come_with_the_card(desk: CardDesk) -> None:
    """C151."""
    await desk.grant("fake:olga")
    script = desk.bench.hub.home.groups / "helper" / "workspace" / "setup.sh"
    script.parent.mkdir(parents=True)
    script.write_text("echo A")
    id = await asked(desk, files=[script])
    script.write_text("echo B")
    sent = [file for call in desk.channel.arrived for file in call.message.files]
    assert [Path(file.path).read_text() for file in sent] == ["echo A"]
    await desk.click(id)
    assert desk.done[0]["files"] == ["echo A"]


@given(st.text(min_size=1, max_size=300))
def test_foreign_text_can_not_hide_turn_around_or_break_out(text: str) -> None:
    shown = literal(text)
    assert not any(char in shown for char in "\u202e\u200b\u2066\u0000\r\x1b\u2028")
    fence = shown.strip("\n").split("\n")[0] if shown.startswith("\n") else ""
    if fence:
        assert shown.count(fence) == 2, "a fence that the text can't close"


def test_what_foreign_text_looks_like() -> None:
    assert literal("rm -rf /") == "`rm -rf /`"
    assert literal("a `b` c") == "`` a `b` c ``"
    assert literal("a\u202eb") == "`a\\u{202e}b`"
    assert literal("x\n```\n**Approved**") == "\n````\n│ x\n│ ```\n│ **Approved**\n````"
    assert literal("x" * 81) == f"\n```\n│ {'x' * 80}\n┊ x\n```", (
        "where a chat cuts lines, it is seen that this goes on"
    )
    assert literal("") == "*(empty)*"
    assert literal("a\u3164b\u034f\u2800\U000e0101") == "`a\\u{3164}b\\u{34f}\\u{2800}\\u{e0101}`"


def test_in_a_terminal_no_value_looks_like_another_field() -> None:
    assert quoted("npx\nruntime:\nsafe\x1b[2K") == "│ npx\n│ runtime:\n│ safe\\x1b[2K"
    assert quoted("requ\u0435sts").endswith("requ\\u{435}sts")


@pytest.mark.parametrize("text", ["requ\u0435sts", "https://\u0430\u0440\u0440.example/x", "say it: \u03bfk"])
def test_letters_that_look_alike_are_pointed_out(text: str) -> None:
    assert "several alphabets" in literal(text) and "\\u{" in literal(text)


@pytest.mark.parametrize(
    "text", ["requests", "\u043f\u0440\u0438\u0432\u0435\u0442, API-\u043a\u043b\u044e\u0447", "na\u00efve caf\u00e9"]
)
def test_ordinary_words_are_not(text: str) -> None:
    assert literal(text) == f"`{text}`"


async def test_what_a_deed_says_has_no_markup_on_the_card(desk: CardDesk) -> None:
    """A package manager's words, for instance, are its packages'."""
    await desk.grant("fake:olga")
    desk.fails = RolledBack("it said: **Approved** [here](http://evil.example) <!channel>")
    id = await asked(desk)
    await desk.click(id)
    item = await desk.item(id)
    assert "\\*\\*Approved\\*\\* \\[here\\](http" in await desk.showing.final_text(item, whole=True)


# ---- who may decide


async def test_only_those_who_may_decide_do_wherever_the_click_comes_from(desk: CardDesk) -> None:
    """C149: the five clicks."""
    await desk.grant("fake:olga")
    await desk.grant("fake:sue", RoleName.ADMIN, scoped=True)
    id = await asked(desk, context=desk.context("member", ["fake:mia"]))
    for handle, more in (
        ("mia", {}), ("sam", {}), ("sue", {"trust": Trust.UNVERIFIED}), ("sue", {"bot": True}),
        ("olga", {"chat": "c-1"}), ("root", {"trust": Trust.OPERATOR}),
    ):  # fmt: skip
        told = await desk.click(id, handle=handle, **{"chat": "dm-sue", **more})  # type: ignore[arg-type]  # the values' types vary
        assert told is not None and not told[0], (handle, more)
        assert (await desk.engine.get(id)).state is ApprovalState.PENDING
    told = await desk.click(id, handle="sue", chat="dm-sue")
    assert told is not None and told[0] and "✅ Approved by fake:sue" in told[1]
    assert len(desk.done) == 1
    told = await desk.click(id, handle="sue", chat="dm-sue", value="reject")
    assert told is not None and not told[0] and "Already: ✅ Approved" in told[1]
    assert len(desk.done) == 1


async def test_an_admin_of_another_group_does_not_decide(desk: CardDesk) -> None:
    """C149."""
    await desk.grant("fake:olga")
    id = await asked(desk)

    def elsewhere(db: Any) -> None:
        other = AgentGroup(id=AgentGroupId("ag_b"), name="B", folder="b", created_at=UnixMs(1))
        groups.add_agent_group(db, other)
        people.ensure_user(db, UserId("fake:bob"), "fake", None, UnixMs(1))
        people.grant(
            db,
            Role(
                user_id=UserId("fake:bob"),
                role=RoleName.ADMIN,
                agent_group_id=other.id,
                granted_by=None,
                granted_at=UnixMs(1),
            ),
        )

    await desk.bench.hub.store.write(elsewhere)
    told = await desk.click(id, handle="bob")
    assert told is not None and not told[0]
    assert desk.done == []


async def test_a_role_that_was_taken_away_after_the_card_was_shown_decides_nothing(desk: CardDesk) -> None:
    await desk.grant("fake:olga")
    id = await asked(desk)
    await desk.bench.hub.store.write(people.revoke, UserId("fake:olga"), RoleName.OWNER)
    told = await desk.click(id)
    assert told == (False, "Only an owner, or an admin of this agent, decides this.")


async def test_unknown_ids_unknown_values_and_questions_are_no_decisions(desk: CardDesk) -> None:
    await desk.grant("fake:olga")
    id = await asked(desk)
    for prompt, value in (("ap_00000000000000000000", "approve"), (id, "yes"), (id, "#7"), (id, "#-1")):
        told = await desk.click(prompt, value)
        assert told is not None and not told[0]
    await desk.click("qst_lunch", "p")
    assert len(desk.asked_questions) == 1
    assert (await desk.engine.get(id)).state is ApprovalState.PENDING
    told = await desk.click(id.upper(), "#1")
    assert told is not None and told[0], "a channel that forgot the values says which button it was"
    assert (await desk.engine.get(id)).state is ApprovalState.REJECTED


async def test_the_same_click_that_comes_again_is_answered_as_the_one_that_counted(desk: CardDesk) -> None:
    """C153: the event is routed again after a crash between deciding and answering."""
    await desk.grant("fake:olga")
    id = await asked(desk)
    first = await desk.click(id)
    again = await desk.click(id)
    assert first is not None and again is not None and (first[0], again[0]) == (True, True)
    assert len(desk.done) == 1


async def test_racing_clicks_of_several_people_decide_once(desk: CardDesk) -> None:
    """C153."""
    for handle in ("olga", "otto", "oscar"):
        await desk.grant(f"fake:{handle}")
    for number in range(5):
        id = await asked(desk, payload={"n": number})
        clicks = [
            desk.click(id, value, handle) for handle in ("olga", "otto", "oscar") for value in ("approve", "reject")
        ]
        await asyncio.gather(*clicks)
        await desk.quiet()
        item = await desk.engine.get(id)
        deeds = [one for one in desk.done if one["n"] == number]
        assert len(deeds) == (1 if item.state is ApprovalState.APPROVED else 0)
    accepted = [reply for _, reply in desk.channel.replies if reply.accepted]
    assert len(accepted) == 5


async def test_an_old_card_says_that_its_time_is_over(desk: CardDesk) -> None:
    await desk.grant("fake:olga")
    id = await asked(desk)
    desk.bench.clock.seconds += 25 * 3600
    assert await desk.click(id) == (False, "Its time is over.")
    await desk.engine.due()
    await desk.quiet()
    told = await desk.click(id)
    assert told is not None and told[1].startswith("Already: ⌛ Expired")
    assert desk.done == []


async def test_after_a_restart_a_click_still_counts(desk: CardDesk) -> None:
    await desk.grant("fake:olga")
    id = await asked(desk)
    await desk.crash()
    await desk.quiet()
    assert len(desk.cards()) == 1, "the card that lies there is not sent again"
    told = await desk.click(id, "#0")
    assert told is not None and told[0]
    assert len(desk.done) == 1


# ---- typed answers


async def test_typed_texts_decide_where_there_are_no_buttons_and_only_the_exact_ones(tmp_path: Path) -> None:
    """C155."""
    async with open_card_desk(tmp_path / "home", prompt=Support.NONE) as desk:
        await desk.grant("fake:olga")
        ticket = await desk.request()
        await desk.quiet()
        assert "1. Approve" in desk.channel.texts[-1]
        id = ticket.id
        for text in (
            f"APPROVE {id}", f"/approve {id}", f"p:{id}:0", id, "approve please", "yes", "3", "0", "1 1",
            "✅ Approved", "",
        ):  # fmt: skip
            assert not await desk.say(text), text
        assert not await desk.say("1", "sam"), "a stranger"
        assert not await desk.say("1", chat="dm-sam"), "another chat"
        assert (await desk.item(id)).state is ApprovalState.PENDING
        assert await desk.say(" Approve ")
        item = await desk.item(id)
        assert (item.state, item.via, item.decided_by) == ("approved", Via.REPLY, "fake:olga")
        assert "✅ Approved" in desk.channel.texts[-1]


async def test_a_number_below_what_an_agent_wrote_must_be_typed_twice(tmp_path: Path) -> None:
    """An agent in the approver's own chat could give a list of its own, with another meaning of 1."""
    async with open_card_desk(tmp_path / "home", prompt=Support.NONE) as desk:
        await desk.grant("fake:olga")
        ticket = await desk.request()
        await desk.quiet()
        session = await desk.bench.session(await desk.bench.chat("dm-olga"))
        await desk.bench.post(session, Address("fake", "fake", "dm-olga"), "Tea or coffee? 1. Tea 2. Coffee")
        await desk.bench.quiet()
        assert await desk.say("1")
        assert (await desk.item(ticket.id)).state is ApprovalState.PENDING
        assert "“Do act”" in desk.channel.texts[-1] and "“Approve”" in desk.channel.texts[-1]
        assert await desk.say("1")
        assert (await desk.item(ticket.id)).state is ApprovalState.APPROVED


async def test_with_buttons_only_a_reply_to_the_card_counts(desk: CardDesk) -> None:
    """C155."""
    await desk.grant("fake:olga")
    id = await asked(desk)
    assert not await desk.say("1")
    assert not await desk.say("Approve", to="p-99")
    card = (await desk.bench.hub.store.read(approval_cards.cards_of, id))[0]
    assert card.parts is not None
    assert await desk.say("2", to=card.parts[-1][-1])
    assert (await desk.engine.get(id)).state is ApprovalState.REJECTED


async def test_of_several_that_wait_a_bare_number_means_none(tmp_path: Path) -> None:
    async with open_card_desk(tmp_path / "home", prompt=Support.NONE) as desk:
        await desk.grant("fake:olga")
        ids = [(await desk.request(payload={"n": number})).id for number in range(2)]
        await desk.quiet()
        assert await desk.say("1")
        assert "Several decisions wait" in desk.channel.texts[-1]
        assert [(await desk.item(id)).state for id in ids] == ["pending", "pending"]


@given(st.text(max_size=40))
def test_no_text_but_a_number_or_a_label_is_a_choice(text: str) -> None:
    choices = (*YES_NO, ApprovalChoice(value="Approve", label="Same", approves=True))
    found = typed_choice(choices, text)
    said = text.strip().casefold()
    assert (found is not None) == (said in {"approve", "reject", "same"} or said.strip("(.):") in {"1", "2", "3"}) or (
        said.strip("(.):") in {"1", "2", "3", "01", "02", "03"}
    )


# ---- afterwards


async def test_cards_say_what_became_of_it_whoever_decided(desk: CardDesk) -> None:
    await desk.grant("fake:olga")
    for number, decide in enumerate(("approve", "reject", "cancel", "expire")):
        id = await asked(desk, payload={"n": number})
        if decide == "cancel":
            await desk.engine.cancel(id, "operator", Via.CLI)
        elif decide == "expire":
            desk.bench.clock.seconds += 25 * 3600
            await desk.engine.due()
        else:
            await desk.engine.decide(id, decide, "operator", Via.CLI, note="so be it")
        await desk.quiet()
        said = {
            "approve": "✅ Approved by operator: so be it\n\nit works",
            "reject": "❌ Rejected by operator: so be it",
            "cancel": "🚫 Cancelled by operator. Nothing was done.",
            "expire": "⌛ Expired: nobody decided it in time. Nothing was done.",
        }
        edits = [call for call in desk.channel.arrived if call.kind == "edit"]
        assert edits[-1].text.endswith(said[decide])
        assert "**command:** `npx -y server`" in edits[-1].text
        assert edits[-1].ref is not None and edits[-1].ref.address.platform_id == "dm-olga"


async def test_a_failed_deed_shows_on_the_card(desk: CardDesk) -> None:
    await desk.grant("fake:olga")
    desk.fails = TooLarge("no space")
    id = await asked(desk)
    told = await desk.click(id)
    assert told is not None and told[0]
    edits = [call for call in desk.channel.arrived if call.kind == "edit"]
    assert len(edits) == 1, "the channel has changed the card itself when it answered the click"
    assert edits[0].text.endswith("✅ Approved by fake:olga\n\n⚠️ It was not done: no space")


@pytest.mark.parametrize("problem", [TooLarge("too long"), KeyError("adapter")])
async def test_a_click_whose_answer_fails_still_changes_the_card(desk: CardDesk, problem: Exception) -> None:
    await desk.grant("fake:olga")
    id = await asked(desk)
    desk.channel.unanswerable = problem
    assert await desk.click(id) is None
    edits = [call.text for call in desk.channel.arrived if call.kind == "edit"]
    assert "✅ Approved by fake:olga" in edits[-1]
    assert len(desk.done) == 1


async def test_a_long_card_is_answered_in_short(tmp_path: Path) -> None:
    async with open_card_desk(tmp_path / "home", text_limit=200) as desk:
        await desk.grant("fake:olga")
        id = await asked(desk, fields=[ApprovalField(label="What", value="word " * 80)])
        assert len(desk.channel.arrived) > 1
        told = await desk.click(id)
        assert told == (True, "**Do act**\n\n✅ Approved by fake:olga")
        edits = [call for call in desk.channel.arrived if call.kind == "edit"]
        assert edits[-1].ref is not None and edits[-1].ref.ids == desk_last_part(desk)


def desk_last_part(desk: CardDesk) -> tuple[str, ...]:
    """The ids of the message that had the buttons."""
    sent = [call for call in desk.channel.arrived if call.kind == "send"]
    return (f"p-{len(sent)}",)


async def test_a_card_that_can_not_be_changed_now_is_mended_later(desk: CardDesk) -> None:
    await desk.grant("fake:olga")
    id = await asked(desk)
    desk.channel.script += [Transient("down")] * 2
    await desk.engine.decide(id, "reject", "operator", Via.CLI)
    await desk.quiet()
    assert not [call for call in desk.channel.arrived if call.kind == "edit"]
    await desk.engine.sweep()
    await desk.quiet()
    assert next(call.text for call in desk.channel.arrived if call.kind == "edit").endswith("❌ Rejected by operator")


async def test_who_attaches_sees_at_once_what_was_decided_while_nobody_was_there(desk: CardDesk) -> None:
    desk.bench.directory.instances["fake"].info = ChannelInfo(type="fake", title="Fake", local=True)
    id = await asked(desk)
    desk.channel.script += [NobodyListening("nobody")] * 2
    await desk.engine.decide(id, "reject", "operator", Via.CLI)
    await desk.quiet()
    assert not [call for call in desk.channel.arrived if call.kind == "edit"]
    desk.engine.listening(Address("fake", "fake", "c-1"))
    await desk.until(lambda: any(call.kind == "edit" for call in desk.channel.arrived))


async def test_where_nothing_can_be_edited_a_new_message_says_it(tmp_path: Path) -> None:
    async with open_card_desk(tmp_path / "home", edit=Support.NONE) as desk:
        await desk.grant("fake:olga")
        id = await asked(desk)
        await desk.engine.decide(id, "reject", "operator", Via.CLI)
        await desk.quiet()
        assert desk.channel.texts[-1] == "**Do act**\n\n❌ Rejected by operator"
        assert sum("Rejected" in text for text in desk.channel.texts) == 1


async def test_a_reminder_comes_once_at_half_the_time(desk: CardDesk) -> None:
    await desk.grant("fake:olga")
    await asked(desk)
    desk.bench.clock.seconds += 12 * 3600
    for _ in range(3):
        await desk.engine.due()
        await desk.quiet()
    said = [call for call in desk.channel.arrived if "still waits" in call.text]
    assert [call.address.platform_id for call in said] == ["dm-olga"]
    assert said[0].message.reply_to is not None


# ---- crashes


async def test_a_card_whose_sending_was_cut_off_goes_to_the_same_place_under_the_same_key(desk: CardDesk) -> None:
    await desk.grant("fake:olga")
    hold = asyncio.Event()

    async def hang() -> Any:
        await hold.wait()

    desk.channel.script.append(hang)
    ticket = await desk.request()
    await desk.until(lambda: bool(desk.channel.arrived))
    await desk.crash()
    await desk.quiet()
    cards = desk.cards()
    assert len({(call.address, call.key) for call in cards}) == 1
    assert len(cards) == 2, "once in the life that ended, once in this"
    told = await desk.click(ticket.id)
    assert told is not None and told[0]


async def test_a_card_of_which_nobody_knows_whether_it_arrived_goes_to_nobody_else(desk: CardDesk) -> None:
    await desk.grant("fake:olga")
    await desk.grant("fake:otto")
    desk.channel.script.append(Ambiguous("lost"))
    await asked(desk)
    await desk.engine.sweep()
    await desk.quiet()
    assert {call.address.platform_id for call in desk.channel.calls if call.message.prompt} == {"dm-olga"}
    assert len({call.key for call in desk.channel.calls if call.message.prompt}) == 1


async def test_what_was_decided_while_its_card_was_on_its_way_is_shown_as_decided(desk: CardDesk) -> None:
    await desk.grant("fake:olga")
    hold = asyncio.Event()

    async def slow() -> Any:
        from jackfield.api import SendResult

        await hold.wait()
        return SendResult(ids=("p-late",))

    desk.channel.script.append(slow)
    ticket = await desk.request()
    await desk.until(lambda: bool(desk.channel.arrived))
    await desk.engine.decide(ticket.id, "reject", "operator", Via.CLI)
    hold.set()
    await desk.quiet()
    edits = [call for call in desk.channel.arrived if call.kind == "edit"]
    assert [call.ref.ids for call in edits if call.ref] == [("p-late",)]
