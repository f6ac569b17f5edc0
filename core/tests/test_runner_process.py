"""A runner as a real child process against a real session folder: batches, turns, and what becomes of them."""

from __future__ import annotations

import signal
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from jackfield.clock import SystemClock
from jackfield.ids import InboundId, new_id
from jackfield.models import (
    AckStatus,
    Address,
    Destination,
    DestinationKind,
    InboundKind,
    InboundRow,
    NoticeContent,
    TaskContent,
)
from runner_kit import FAMILY, HERE, chat, done, later, place

THREAD = Address("slack", "work", "C1", "t1")


async def test_a_message_is_answered_where_it_came_from_and_completed(tmp_path: Path) -> None:
    """Messaging D11."""
    async with place(tmp_path) as here:
        process = await here.start()
        row = chat("say hello")
        here.put(row)
        await here.until(here.rows)
        (answer,) = here.rows()
        assert answer.content.text == "hello" and answer.address == HERE and answer.in_reply_to == row.id
        assert answer.seq % 2 == 1 and answer.destination is None
        ack = here.acks()[row.id]
        assert ack.status is AckStatus.COMPLETED and ack.turn == answer.turn and ack.epoch == 1
        assert await here.stop(process) == 0
        assert here.heard()[-1] == {"closed": True}


async def test_the_session_stays_open_between_turns_and_sees_rows_in_order(tmp_path: Path) -> None:
    """C019."""
    async with place(tmp_path) as here:
        await here.start()
        for number in range(3):
            here.put(chat(f"say answer {number}"))
            await here.until(lambda number=number: len(here.texts()) == number + 1)
        assert here.texts() == ["answer 0", "answer 1", "answer 2"]
        assert sum("opened" in entry for entry in here.heard()) == 1


async def test_twelve_waiting_messages_are_all_read_oldest_first(tmp_path: Path) -> None:
    """Messaging D9."""
    async with place(tmp_path) as here:
        rows = [chat(f"say {number}") for number in range(12)]
        here.put(*rows)
        await here.start()
        await here.until(lambda: done(here, *rows))
        first, second = here.prompts()
        assert first.count("<message ") == 10 and second.count("<message ") == 2
        assert [first.index(f">say {number}<") for number in range(10)] == sorted(
            first.index(f">say {number}<") for number in range(10)
        )


async def test_messages_of_two_chats_are_answered_in_turns_of_their_own(tmp_path: Path) -> None:
    """Architecture 5, rule 9; messaging D7; C050."""
    async with place(tmp_path) as here:
        rows = [chat("say one"), chat("say two", origin=THREAD), chat("say three")]
        here.put(*rows)
        await here.start()
        await here.until(lambda: done(here, *rows))
        assert [(row.content.text, row.address) for row in here.rows()] == [("three", HERE), ("two", THREAD)]
        assert [prompt.count("<message ") for prompt in here.prompts()] == [2, 1]


async def test_context_rides_along_but_starts_nothing(tmp_path: Path) -> None:
    """Messaging D5."""
    async with place(tmp_path) as here:
        await here.start()
        aside = chat("by the way", trigger=False)
        here.put(aside)
        asked = chat("say yes", sender="bob")
        here.put(asked)
        await here.until(lambda: done(here, aside, asked))
        (prompt,) = here.prompts()
        assert (
            "<messages>" in prompt and "by the way" in prompt and prompt.index("by the way") < prompt.index("say yes")
        )


async def test_a_block_goes_to_its_destination_and_the_rest_to_the_origin(tmp_path: Path) -> None:
    """Messaging D10, with architecture 5, rule 9 for what is not addressed."""
    async with place(tmp_path) as here:
        await here.start()
        here.put(chat('say <internal>hm</internal><message to="family">hi all</message> told them'))
        await here.until(lambda: len(here.rows()) == 2)
        first, second = here.rows()
        assert (first.content.text, first.address, first.destination) == ("hi all", FAMILY.address, "family")
        assert first.in_reply_to is None
        assert (second.content.text, second.address) == ("told them", HERE)


async def test_an_unknown_destination_is_answered_in_the_same_turn(tmp_path: Path) -> None:
    """C005; messaging D12."""
    async with place(tmp_path, settings={"mend": '<message to="family">mended</message>'}) as here:
        await here.start()
        row = chat('say <message to="nobody">for nobody</message> hello')
        here.put(row)
        await here.until(lambda: done(here, row))
        _, correction = here.prompts()
        assert "nobody" in correction and "family" in correction and "(current conversation)" in correction
        assert [(row.content.text, row.destination) for row in here.rows()] == [("hello", None), ("mended", "family")]
        assert len({row.turn for row in here.rows()}) == 1


async def test_an_agent_that_insists_on_an_unknown_destination_is_not_left_unnoticed(tmp_path: Path) -> None:
    """C005; messaging D12."""
    async with place(tmp_path) as here:
        await here.start()
        row = chat('say <message to="nobody">for nobody</message>')
        here.put(row)
        await here.until(lambda: done(here, row))
        assert len(here.prompts()) == 3
        (told,) = here.rows()
        assert "does not exist" in told.content.text and "again" not in told.content.text and told.address == HERE
        assert here.acks()[row.id].status is AckStatus.COMPLETED


async def test_labels_of_the_system_itself_reach_the_conversation(tmp_path: Path) -> None:
    """C005."""
    async with place(tmp_path) as here:
        await here.start()
        here.put(chat('say <message to="(Current  Conversation)">one</message><message to="Home">two</message>'))
        await here.until(lambda: len(here.rows()) == 2)
        assert [row.address for row in here.rows()] == [HERE, HERE]
        assert len(here.prompts()) == 1


async def test_text_without_an_address_is_asked_to_be_wrapped_under_the_nudge_policy(tmp_path: Path) -> None:
    """Messaging 6.4."""
    async with place(tmp_path, unwrapped="nudge", settings={"mend": "still plain"}) as here:
        await here.start()
        row = chat("say plain words")
        here.put(row)
        await here.until(lambda: done(here, row))
        assert len(here.prompts()) == 2 and "outside of a" in here.prompts()[1]
        assert here.texts() == ["still plain"]
        here.put(chat('say <message to="home">wrapped</message>'))
        await here.until(lambda: "wrapped" in here.texts())
        assert len(here.prompts()) == 3


async def test_a_typed_error_crosses_the_mailbox_and_nothing_reaches_the_chat(tmp_path: Path) -> None:
    """Architecture 5, rule 5; pitfall 29."""
    async with place(tmp_path) as here:
        await here.start()
        row = chat("fail overloaded retry again")
        here.put(row)
        await here.until(lambda: done(here, row))
        ack = here.acks()[row.id]
        assert ack.status is AckStatus.FAILED and ack.error is not None
        assert (ack.error.kind, ack.error.retryable, ack.error.tools_ran) == ("overloaded", True, False)
        assert here.rows() == []
        here.host.retry(row.id, 2, SystemClock().now())
        assert here.bell is not None
        here.bell.ring()
        await here.until(lambda: len(here.prompts()) == 2)
        assert "fail overloaded" in here.prompts()[1] and "broken off" in here.prompts()[1]


async def test_after_tools_ran_a_retry_goes_on_without_the_prompt(tmp_path: Path) -> None:
    """Architecture 5, rule 5; C010: what was sent before the error is not sent again."""
    async with place(tmp_path, tools=("scripted",)) as here:
        await here.start()
        row = chat('quiet send_message {"text": "on it"}\nfail server retry again')
        here.put(row)
        await here.until(lambda: done(here, row))
        error = here.acks()[row.id].error
        assert error is not None and error.tools_ran
        here.host.retry(row.id, 2, SystemClock().now())
        assert here.bell is not None
        here.bell.ring()
        await here.until(lambda: len(here.prompts()) == 2)
        prompt = here.prompts()[1]
        assert "quiet send_message" not in prompt and "Go on from there" in prompt and "on it" in prompt
        assert here.texts().count("on it") == 1


async def test_the_same_words_by_tool_and_as_reply_are_sent_once(tmp_path: Path) -> None:
    """C010."""
    async with place(tmp_path, tools=("scripted",)) as here:
        await here.start()
        row = chat('quiet send_message {"text": "the  answer"}\nsay the answer')
        here.put(row)
        await here.until(lambda: done(here, row))
        assert here.texts() == ["the  answer"]
        again = chat("say the answer")
        here.put(again)
        await here.until(lambda: done(here, again))
        assert here.texts() == ["the  answer", "the answer"]


async def test_a_killed_runner_is_followed_by_one_that_knows_what_was_sent(tmp_path: Path) -> None:
    """Messaging D16; C088; architecture 7."""
    async with place(tmp_path, tools=("scripted",)) as here:
        process = await here.start()
        row = chat('quiet send_message {"text": "half done"}\ndie')
        here.put(row)
        assert await here.ended(process) == -signal.SIGKILL
        assert here.acks()[row.id].status is AckStatus.PROCESSING
        here.again()
        await here.start()
        await here.until(lambda: len(here.prompts()) == 2)
        prompt = here.prompts()[1]
        assert '<notice subject="recovery">' in prompt and "half done" in prompt and "die" in prompt
        assert here.heard()[[i for i, e in enumerate(here.heard()) if "opened" in e][1]]["opened"] is not None
        await here.until(lambda: here.processes[-1].returncode is not None)
        assert here.texts() == ["half done"]
        here.again()
        await here.start()
        await here.until(lambda: len(here.prompts()) == 3)
        assert "half done" in here.prompts()[2]


@pytest.mark.parametrize("point", ["runner.claim.before", "runner.claim.after", "runner.turn.before_commit"])
async def test_a_kill_before_the_commit_leaves_the_message_to_the_next_runner(tmp_path: Path, point: str) -> None:
    """C088."""
    async with place(tmp_path) as here:
        process = await here.start(JACKFIELD_KILL_AT=point)
        row = chat("say once")
        here.put(row)
        assert await here.ended(process) == -signal.SIGKILL
        here.again()
        await here.start()
        await here.until(lambda: done(here, row))
        assert here.texts() == ["once"]


async def test_a_provider_sees_nothing_that_is_not_claimed_on_the_disk(tmp_path: Path) -> None:
    """Architecture 5: a prompt is made while its claim is written, but given out only after that."""
    async with place(tmp_path, limits={"poll": 0.2}) as here:
        await here.start()
        first, second = chat("say one"), chat("say two")
        here.put(first)
        await here.until(lambda: done(here, first))
        with closing(sqlite3.connect(here.folder.outbound_db, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM messages_out").fetchone()
            here.put(second)
            await here.until(lambda: here.folder.outbound_journal.stat().st_size)  # the claim waits for the reader
            await here.until(lambda: not here.folder.outbound_journal.stat().st_size)  # and was given up
            assert len(here.prompts()) == 1
        await here.until(lambda: done(here, second))
        assert len(here.prompts()) == 2
        assert here.texts() == ["one", "two"]


async def test_a_kill_after_the_commit_answers_nothing_twice(tmp_path: Path) -> None:
    """Architecture 10."""
    async with place(tmp_path) as here:
        process = await here.start(JACKFIELD_KILL_AT="runner.turn.after_commit")
        row = chat("say once")
        here.put(row)
        assert await here.ended(process) == -signal.SIGKILL
        here.again()
        await here.start()
        other = chat("say next")
        here.put(other)
        await here.until(lambda: done(here, other))
        assert here.texts() == ["once", "next"]


async def test_a_follow_up_joins_the_turn_and_is_completed_with_it(tmp_path: Path) -> None:
    """Pitfall 27."""
    async with place(tmp_path) as here:
        await here.start()
        first, second = chat("wait\nsay first"), chat("say second")
        here.put(first)
        await here.until(here.prompts)
        here.put(second)
        await here.until(lambda: done(here, first, second))
        (answer,) = here.rows()
        assert answer.content.text == "first\nsecond" and answer.in_reply_to == second.id
        assert [entry["when"] for entry in here.heard() if "prompt" in entry] == ["after_turn", "next_boundary"]
        assert here.acks()[first.id].turn == here.acks()[second.id].turn


async def test_a_follow_up_that_comes_too_late_gets_a_turn_of_its_own(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        await here.start()
        first, second = chat("slow 0.05 a long answer in many small pieces"), chat("say second")
        here.put(first)
        await here.until(here.prompts)
        here.put(second)
        await here.until(lambda: done(here, first, second))
        assert here.texts() == ["a long answer in many small pieces", "second"]
        assert here.acks()[first.id].turn != here.acks()[second.id].turn


async def test_another_persons_message_waits_for_its_own_turn(tmp_path: Path) -> None:
    """C128, C019."""
    async with place(tmp_path) as here:
        await here.start()
        rows = [chat("slow 0.1 working"), chat("say bob's", sender="bob"), chat("say mine")]
        here.put(rows[0])
        await here.until(here.prompts)
        here.put(*rows[1:])
        await here.until(lambda: done(here, *rows))
        assert here.texts()[0] == "working"
        assert [prompt.count("<message ") for prompt in here.prompts()] == [1, 2]


async def test_stop_is_taken_from_who_began_and_from_admins_only(tmp_path: Path) -> None:
    """C128."""
    async with place(tmp_path) as here:
        await here.start()
        row = chat("hang")
        here.put(row)
        await here.until(here.prompts)
        foreign = chat("/stop", command="/stop", sender="bob")
        here.put(foreign)
        await here.until(lambda: done(here, foreign))
        assert not done(here, row) and here.texts() == ["Only the person who began this, or an admin, can stop it."]
        stop = chat("/stop", command="/stop", sender="carol", role="admin")
        here.put(stop)
        await here.until(lambda: done(here, row, stop))
        assert here.texts()[-1] == "Stopped." and here.rows()[-1].content.command
        assert here.acks()[row.id].status is AckStatus.COMPLETED


async def test_clear_forgets_the_conversation(tmp_path: Path) -> None:
    """Messaging D8."""
    async with place(tmp_path) as here:
        await here.start()
        rows = [chat("say one"), chat("/clear", command="/clear"), chat("say two")]
        here.put(*rows)
        await here.until(lambda: done(here, *rows))
        assert here.texts() == ["one", "Session cleared.", "two"]
        assert here.rows()[1].content.command and here.rows()[1].in_reply_to == rows[1].id
        assert [entry["opened"] for entry in here.heard() if "opened" in entry] == [None, None]


async def test_commands_of_the_engine_go_through_and_unknown_ones_are_words(tmp_path: Path) -> None:
    """Messaging 1.7."""
    async with place(tmp_path) as here:
        await here.start()
        tokens = ("/native", "/compact", "/context", "/cost", "/files", "/stop", "/foo")
        rows = [chat(f"{token} please", command=token) for token in tokens]
        here.put(*rows)
        await here.until(lambda: done(here, *rows))
        assert here.prompts()[0] == "/native please" and "<message" in here.prompts()[1] and len(here.prompts()) == 2
        assert {"compacted": True} in here.heard()
        answers = [row for row in here.rows() if row.content.command]
        assert [row.content.text for row in answers] == [
            "Conversation compacted.",
            "11 of 100 tokens of the context are used (11 %).",
            "Since this agent was started: 7 tokens in, 3 out, $0.5000.",
            "/files is not available with this agent's engine.",
            "Nothing is running.",
        ]


@pytest.mark.parametrize("how", ["open", "event"])
async def test_a_lost_conversation_begins_anew_with_a_recap(tmp_path: Path, how: str) -> None:
    """C124."""
    async with place(tmp_path, settings={"lose": how}) as here:
        process = await here.start()
        first = chat("say remember me")
        here.put(first)
        await here.until(lambda: done(here, first))
        await here.stop(process)
        here.again()
        await here.start()
        second = chat("say still here")
        here.put(second)
        await here.until(lambda: done(here, second))
        assert here.texts() == ["remember me", "still here"]
        prompt = here.prompts()[-1]
        assert "<recap>" in prompt and 'sender="Dot">remember me</earlier>' in prompt
        here.put(third := chat("say and again"))
        await here.until(lambda: done(here, third))
        assert "<recap>" not in here.prompts()[-1]


async def test_a_conversation_lost_in_the_turn_is_begun_anew_once(tmp_path: Path) -> None:
    """C124."""
    async with place(tmp_path) as here:
        process = await here.start()
        here.put(first := chat("say one"))
        await here.until(lambda: done(here, first))
        await here.stop(process)
        here.again()
        await here.start()
        here.put(second := chat("lost found"))
        await here.until(lambda: done(here, second))
        assert here.texts() == ["one", "found"]


async def test_a_conversation_that_is_too_long_is_begun_anew_in_the_same_turn_and_not_again(tmp_path: Path) -> None:
    """C124; spec/providers.md 7: once, with a summary, and never in a loop."""
    async with place(tmp_path) as here:
        await here.start()
        here.put(first := chat("say the password is plum"))
        await here.until(lambda: done(here, first))
        here.put(second := chat("until_recap context_overflow"))
        await here.until(lambda: done(here, second))
        assert here.texts() == ["the password is plum", "begun anew"]
        assert "too long for your model" in here.prompts()[-1] and "plum</earlier>" in here.prompts()[-1]
        assert len([one for one in here.heard() if "opened" in one]) == 2
        here.put(third := chat("fail context_overflow again"))
        await here.until(lambda: done(here, third))
        error = here.acks()[third.id].error
        assert error is not None and (error.kind, error.retryable) == ("context_overflow", False)
        assert len([one for one in here.heard() if "opened" in one]) == 3


async def test_an_engine_that_breaks_off_gets_its_conversation_back_once_and_then_a_new_one(tmp_path: Path) -> None:
    """C099."""
    async with place(tmp_path) as here:
        await here.start()
        here.put(first := chat("say one"))
        await here.until(lambda: done(here, first))
        for number in (1, 2):
            here.put(row := chat("fail engine_crash again retry"))
            await here.until(lambda row=row: done(here, row))
            assert here.acks()[row.id].status is AckStatus.FAILED
            kept = here.key("continuation:scripted")
            assert (kept is None) == (number == 2)
        here.put(last := chat("say two"))
        await here.until(lambda: done(here, last))
        assert "broke off again and again" in here.prompts()[-1]
        assert here.key("failing") is None and here.key("anew") is None


async def test_a_provider_that_falls_silent_is_stopped_and_may_be_tried_again(tmp_path: Path) -> None:
    """Spec/providers.md 7: no event for a while, and no tool that runs."""
    async with place(tmp_path, limits={"provider_idle": 0.6}) as here:
        await here.start()
        here.put(row := chat("hang"))
        await here.until(lambda: done(here, row))
        error = here.acks()[row.id].error
        assert error is not None and (error.kind, error.retryable) == ("stalled", True)
        here.put(after := chat("say well again"))
        await here.until(lambda: done(here, after))
        assert here.texts() == ["well again"]


async def test_what_a_turn_used_is_told_with_its_end_unless_a_gateway_counts_it(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        await here.start()
        here.put(row := chat("say hello"))
        await here.until(lambda: done(here, row))
        (used,) = here.host.read_outbound().usage
        assert (used.provider, used.requests, used.input, used.cache_read, used.output, used.cost) == (
            "scripted", 1, 5, 2, 3, 0.5,
        )  # fmt: skip
    async with place(tmp_path / "metered", gateway="http://127.0.0.1:9") as here:
        await here.start()
        here.put(row := chat("say hello"))
        await here.until(lambda: done(here, row))
        assert here.host.read_outbound().usage == []


async def test_rows_that_are_not_due_yet_wait(tmp_path: Path) -> None:
    async with place(tmp_path, limits={"poll": 20.0}) as here:
        await here.start()
        here.put(row := chat("say in time", due_at=later(700)))
        await here.until(lambda: done(here, row))
        assert here.acks()[row.id].at >= row.due_at


async def test_a_notice_without_a_chat_is_answered_in_the_sessions_own(tmp_path: Path) -> None:
    """Pitfall 30."""
    async with place(tmp_path) as here:
        await here.start()
        notice = InboundRow(
            id=InboundId(new_id("in")),
            kind=InboundKind.NOTICE,
            content=NoticeContent(text="say noted", subject="delivery"),
            at=SystemClock().now(),
        )
        here.put(notice)
        await here.until(here.rows)
        assert here.rows()[0].address == HERE and here.rows()[0].in_reply_to == notice.id


@pytest.mark.parametrize(
    ("script", "status", "asked"),
    [
        ('echo \'{"wakeAgent": true, "data": {"n": "</task>"}}\'', AckStatus.COMPLETED, 1),
        ("echo '{\"wakeAgent\": false}'", AckStatus.COMPLETED, 0),
        ("echo nonsense", AckStatus.FAILED, 0),
        ("exit 3", AckStatus.FAILED, 0),
    ],
)
async def test_a_tasks_script_decides_whether_the_model_is_asked(
    tmp_path: Path, script: str, status: AckStatus, asked: int
) -> None:
    """Messaging 6.5."""
    async with place(tmp_path) as here:
        await here.start()
        task = InboundRow(
            id=InboundId(new_id("in")),
            kind=InboundKind.TASK,
            content=TaskContent(prompt="say done", script=script),
            at=SystemClock().now(),
            origin=HERE,
        )
        here.put(task)
        await here.until(lambda: done(here, task))
        assert here.acks()[task.id].status is status and len(here.prompts()) == asked


async def test_a_turn_that_the_provider_began_itself_is_told_to_the_last_chat(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        await here.start()
        here.put(chat("later the build is ready\nsay started", origin=THREAD))
        await here.until(lambda: len(here.rows()) == 2)
        assert [(row.content.text, row.address) for row in here.rows()] == [
            ("started", THREAD),
            ("the build is ready", HERE),
        ] or here.rows()[1].address == THREAD


async def test_growing_text_is_shown_and_completed_by_its_row(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        await here.start()
        row = chat(
            'slow 0.05 <internal>psst</internal>Once upon a time <message to="family">there was a king</message>'
        )
        here.put(row)
        drafts = {}

        def look() -> bool:
            drafts.update({(draft.block, draft.text): draft for draft in here.host.read_drafts()})
            return done(here, row)

        await here.until(look)
        assert drafts and all("psst" not in text and "<" not in text for _, text in drafts)
        first, second = here.rows()
        assert (first.content.text, first.draft_block) == ("Once upon a time", 0)
        assert second.content.text == "there was a king" and second.address == FAMILY.address
        assert all(draft.turn == first.turn for draft in drafts.values())
        assert here.host.read_drafts() == []


async def test_what_is_addressed_between_tools_is_sent_at_once(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        await here.start()
        row = chat('interim thinking aloud <message to="home">on it</message>\nwait\nsay ready')
        here.put(row)
        await here.until(here.rows)
        assert here.texts() == ["on it"] and not done(here, row)
        here.put(chat("say more"))
        await here.until(lambda: done(here, row))
        assert here.texts() == ["on it", "ready\nmore"]


async def test_a_huge_answer_becomes_a_file_and_an_opening(tmp_path: Path) -> None:
    """C219; architecture 2."""
    async with place(tmp_path) as here:
        await here.start()
        here.put(chat("say " + "ä" * 150_000))
        await here.until(here.rows)
        (row,) = here.rows()
        assert row.content.files == ("message.md",) and len(row.content.text.encode()) < 3000
        with here.folder.open_outbox(row.id, "message.md") as file:
            assert file.read().decode() == "ä" * 150_000


async def test_a_new_destination_is_known_in_the_next_turn(tmp_path: Path) -> None:
    """Messaging 6.6."""
    async with place(tmp_path) as here:
        (here.group / "AGENTS.md").write_text("Be brief.")
        await here.start()
        here.put(first := chat("say one"))
        await here.until(lambda: done(here, first))
        boss = Destination(
            name="boss", kind=DestinationKind.CHANNEL, display_name="Boss", address=Address("irc", "x", "#b")
        )
        here.host.project([boss], HERE)
        here.put(second := chat("say two"))
        await here.until(lambda: done(here, second))
        opened = [entry for entry in here.heard() if "opened" in entry]
        assert "Be brief." in opened[0]["system"] and "`family`" in opened[0]["system"] and "Dot" in opened[0]["system"]
        assert "`boss`" in opened[1]["system"] and opened[1]["opened"] is not None


async def test_a_kill_right_after_a_tools_send_is_told_to_the_next_runner(tmp_path: Path) -> None:
    """C010: the resumed turn doesn't send it again, even when the model says the same."""
    async with place(tmp_path, tools=("scripted",)) as here:
        process = await here.start(JACKFIELD_KILL_AT="runner.tool.after_send")
        row = chat('quiet send_message {"text": "once only"}\nsay and done')
        here.put(row)
        assert await here.ended(process) == -signal.SIGKILL
        here.again()
        await here.start()
        await here.until(lambda: done(here, row))
        assert "once only" in here.prompts()[1]
        assert here.texts() == ["once only", "and done"]


async def test_an_engine_that_cannot_be_interrupted_is_closed_to_stop_it(tmp_path: Path) -> None:
    async with place(tmp_path, settings={"interrupt": False}) as here:
        await here.start()
        here.put(row := chat("hang"))
        await here.until(here.prompts)
        here.put(stop := chat("/stop", command="/stop"))
        await here.until(lambda: done(here, row, stop))
        assert here.texts() == ["Stopped."] and {"closed": True} in here.heard()
        here.put(chat("say alive"))
        await here.until(lambda: "alive" in here.texts())


@pytest.mark.parametrize("inject", ["no", "queue"])
async def test_an_engine_that_takes_nothing_in_a_turn_gets_follow_ups_afterwards(tmp_path: Path, inject: str) -> None:
    """C019."""
    async with place(tmp_path, settings={"inject": inject}) as here:
        await here.start()
        rows = [chat("slow 0.05 a first long answer"), chat("say second"), chat("say third")]
        here.put(rows[0])
        await here.until(here.prompts)
        here.put(*rows[1:])
        await here.until(lambda: done(here, *rows))
        assert here.texts() == ["a first long answer", "third"]
        assert all(entry["when"] == "after_turn" for entry in here.heard() if "prompt" in entry)


async def test_the_mock_provider_answers_through_the_whole_runner(tmp_path: Path) -> None:
    """Messaging D29."""
    async with place(tmp_path, provider="mock") as here:
        here.folder.write_spec(replace(here.spec, provider_settings={}))
        await here.start()
        here.put(row := chat("hi there"))
        await here.until(lambda: done(here, row))
        assert "hi there" in here.texts()[0]


async def test_a_provider_that_cannot_resume_is_told_of_new_destinations_in_the_prompt(tmp_path: Path) -> None:
    """Messaging 6.6."""
    async with place(tmp_path, settings={"resume": False}) as here:
        await here.start()
        for number in range(3):
            here.put(row := chat(f"say {number}"))
            await here.until(lambda row=row: done(here, row))
            here.host.project([FAMILY], HERE)
        assert ["destinations" in prompt for prompt in here.prompts()] == [False, True, False]
        assert sum("opened" in entry for entry in here.heard()) == 1
