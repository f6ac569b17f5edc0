"""An operator clears a session: what becomes of what was asked, answered and opened in it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest
from jackfield.host.application import running_host
from jackfield.models import Session, SessionStatus
from jackfield.store import sessions

from tests.conftest import MakeExchange
from tests.harness.exchange import BOUND, Exchange


@pytest.fixture
def exchange(exchange_hall: Exchange) -> Exchange:
    return exchange_hall


def ends(exchange: Exchange, chat: str) -> list[str]:
    return [state for state, _ in exchange.state_of(chat)]


def clear(exchange: Exchange, chat: str) -> dict[str, object]:
    done: dict[str, object] = exchange.op("session.clear", id=exchange.session_of(chat)["id"])
    return done


def test_what_was_answered_before_is_still_delivered_and_before_all_that_follows(exchange: Exchange) -> None:
    exchange.join("clear-late")
    exchange.order("clear-late", {"until": "clear-late-gate"})
    exchange.say("clear-late", "mock: say first")
    exchange.say("clear-late", "mock: say second")
    exchange.wait_for(lambda: ends(exchange, "clear-late") == ["completed"] * 2, "both turns")
    old = exchange.session_of("clear-late")["id"]
    assert clear(exchange, "clear-late")["dropped"] == 0
    exchange.say("clear-late", "mock: recall mock: say third")
    exchange.wait_for(lambda: ends(exchange, "clear-late") == ["completed"] * 3, "the turn of the new session")
    assert exchange.session_of("clear-late")["id"] != old
    assert exchange.texts("clear-late") == []
    (Path(exchange.box) / "clear-late-gate").touch()
    exchange.wait_text("clear-late", "third")
    assert "".join(exchange.texts("clear-late")).replace("\n", "").startswith("firstsecond")


def test_what_was_not_answered_is_dropped_with_its_reason_and_no_runner_stays(exchange: Exchange) -> None:
    exchange.join("clear-open")
    exchange.say("clear-open", "mock: sleep 300 mock: say never")
    exchange.wait_for(lambda: exchange.state_of("clear-open") == [("claimed", None)], "the turn")
    exchange.say("clear-open", "and this")
    exchange.wait_for(lambda: len(exchange.state_of("clear-open")) == 2, "the second message")
    session = exchange.session_of("clear-open")
    assert clear(exchange, "clear-open")["dropped"] == 2
    assert exchange.state_of("clear-open") == [("dropped", "session cleared")] * 2
    assert exchange.op("session.show", id=session["id"])["runner"] == "none"
    exchange.say("clear-open", "mock: say fresh")
    exchange.wait_text("clear-open", "fresh")
    assert exchange.texts("clear-open") == ["fresh"]
    assert exchange.op("session.show", id=session["id"])["runner"] == "none"


def test_an_open_question_of_a_cleared_session_takes_no_answer_any_more(exchange: Exchange) -> None:
    """Typed words go to the new session, instead of being swallowed by a question that nobody waits for."""
    exchange.join("clear-asked")
    ask = {"title": "Drink", "question": "Tea or coffee?", "options": ["tea", "coffee"], "allow_text": True}
    exchange.say("clear-asked", f"mock: tool ask_user_question {json.dumps(ask)} mock: say chosen: {{result}}")
    exchange.wait_for(lambda: any(item.get("prompt") for item in exchange.sent("clear-asked")), "the question")
    question = next(str(item["prompt"]) for item in exchange.sent("clear-asked") if item.get("prompt"))
    clear(exchange, "clear-asked")
    click = exchange.click("clear-asked", question, "tea")
    exchange.wait_for(lambda: any(item.get("answer") == click for item in exchange.sent()), "the reply to the click")
    told = next(item for item in exchange.sent() if item.get("answer") == click)
    assert (told["accepted"], told["text"]) == (False, "This question is not open any more.")
    exchange.say("clear-asked", "coffee")
    exchange.wait_text("clear-asked", "You said: coffee")


def test_an_answer_of_a_closed_session_that_fails_wakes_nobody(exchange: Exchange) -> None:
    exchange.join("clear-fails")
    exchange.order("clear-fails", {"until": "clear-fails-gate", "fail": "permanent"})
    exchange.say("clear-fails", "mock: say lost")
    exchange.wait_for(lambda: ends(exchange, "clear-fails") == ["completed"], "the turn")
    session = exchange.session_of("clear-fails")["id"]
    clear(exchange, "clear-fails")
    (Path(exchange.box) / "clear-fails-gate").touch()
    exchange.wait_for(
        lambda: exchange.query(f"SELECT state FROM deliveries WHERE session_id = '{session}'") == [("failed",)],
        "its end",
    )
    exchange.say("clear-fails", "hello")
    exchange.wait_text("clear-fails", "You said: hello")
    assert exchange.query(f"SELECT state FROM inbound WHERE session_id = '{session}'") == [("completed",)]


def test_without_a_host_it_is_closed_as_well(make_exchange: MakeExchange) -> None:
    exchange = make_exchange().start()
    exchange.join("c1")
    exchange.say("c1", "a zebra")
    exchange.wait_sent("c1", 1)
    session = exchange.session_of("c1")["id"]
    assert exchange.stop() == 0
    assert exchange.op("session.clear", id=session) == {"id": session, "dropped": 0}
    exchange.start()
    exchange.say("c1", "mock: recall mock: say done")
    assert "zebra" not in exchange.wait_text("c1", "done")


async def test_what_reaches_a_session_while_it_is_cleared_is_routed_again_to_the_next_one(
    make_exchange: MakeExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Routed before the clear and recorded after it: nobody would ever take it, and it would never end."""
    exchange = await asyncio.to_thread(make_exchange)
    monkeypatch.syspath_prepend(str(exchange.root / "site"))

    def lag_behind(db: sqlite3.Connection) -> Session:
        """As the router leaves it when the clear comes between its two steps."""
        (session,) = sessions.sessions(db)
        sessions.close_session(db, session.id, session.last_active_at)
        db.execute("UPDATE inbound SET state = 'queued'")
        return session

    async def until_sent(count: int) -> None:
        while len(exchange.texts("c1")) < count:
            await asyncio.sleep(0.02)

    async with running_host(exchange.home) as live, asyncio.timeout(BOUND):
        await asyncio.to_thread(exchange.join, "c1")
        exchange.say("c1", "mock: say good morning")
        await until_sent(1)
        while exchange.state_of("c1") != [("completed", None)]:
            await asyncio.sleep(0.02)
        closed = await live.hub.store.write(lag_behind)
        await live.retire_runner(closed.id)
        live.wake(closed.id, closed.agent_group_id)
        await until_sent(2)
        while exchange.state_of("c1") != [("completed", None)]:
            await asyncio.sleep(0.02)
        (session,) = await live.hub.store.read(sessions.sessions, status=SessionStatus.ACTIVE)
    assert session.id != closed.id
    assert exchange.texts("c1") == ["good morning"] * 2
