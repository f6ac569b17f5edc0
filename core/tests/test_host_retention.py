"""What is forgotten after `host.keep_days`, and what is not (architecture 5, rule 2)."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from delivery_kit import SkippingClock
from jackfield.clock import UnixMs
from jackfield.config.home import Home
from jackfield.host.application import open_hub
from jackfield.host.hub import Hub
from jackfield.host.retention import Retention
from jackfield.host.spool import Spool
from jackfield.ids import AgentGroupId, DeliveryId, InboundId, OutboundId, QuestionId, SessionId
from jackfield.mailbox import RunnerMailbox, SessionFolder
from jackfield.models import (
    Ack,
    AckStatus,
    Address,
    AgentGroup,
    ChatContent,
    Delivery,
    DeliveryState,
    EventState,
    InboundKind,
    InboundRow,
    InboundState,
    MessageContent,
    OutboundKind,
    OutboundRow,
    Session,
    SessionMode,
)
from jackfield.store import deliveries, events, groups, inbound, questions, sessions
from jackfield.store.sessions import OutCursor

CHAT = Address("terminal", "terminal", "chat")
DAY = 86_400.0


class House:
    """A hub whose clock the test moves, and what is said in it."""

    def __init__(self, hub: Hub, clock: SkippingClock) -> None:
        self.hub = hub
        self.clock = clock
        self.retention = Retention(hub, Spool(hub))

    async def session(self, key: str) -> Session:
        def make(db: sqlite3.Connection) -> Session:
            if groups.agent_group(db, AgentGroupId("ag_1")) is None:
                groups.add_agent_group(
                    db, AgentGroup(id=AgentGroupId("ag_1"), name="a", folder="a", created_at=UnixMs(0))
                )
            made, _ = sessions.session_for(
                db, AgentGroupId("ag_1"), key, mode=SessionMode.SHARED, messaging_group_id=None, thread_id=None,
                now=self.clock.now(),
            )  # fmt: skip
            return made

        return await self.hub.store.write(make)

    async def says(
        self, session: Session, name: str, state: InboundState = InboundState.COMPLETED, *, answer: bool = True
    ) -> None:
        """An event, its message with a file, and the answer that was delivered."""
        now, folder = self.clock.now(), self.hub.folder_of(session)
        folder.create()
        row = InboundRow(id=InboundId(f"in_{name}"), kind=InboundKind.CHAT, content=ChatContent(text=name), at=now)
        await self.hub.mailboxes.run(folder, lambda box: box.enqueue([row]))
        folder.store_inbox(row.id, "a.txt", b"1")
        seq = 0
        if answer:
            runner = RunnerMailbox(folder, session.epoch)
            out = OutboundRow(
                id=OutboundId(f"out_{name}"), kind=OutboundKind.MESSAGE, content=MessageContent(text=name), at=now,
                epoch=session.epoch, address=CHAT,
            )  # fmt: skip
            ack = Ack(message_id=row.id, status=AckStatus.COMPLETED, attempt=1, epoch=session.epoch, at=now, turn=None)
            (seq,) = runner.write(messages=[out], acks=[ack])
            runner.close()
            batch = await self.hub.mailboxes.run(folder, lambda box: box.read_outbound())

        def record(db: sqlite3.Connection) -> None:
            event = events.accept(db, "terminal", "terminal", name, "MessageReceived", "{}", now, None).event_id
            inbound.record(
                db, id=row.id, event_id=event, wiring_id=None, session_id=session.id, state=InboundState.QUEUED,
                preview=name, now=now,
            )  # fmt: skip
            events.finish(db, event, EventState.ROUTED, now=now)
            inbound.set_state(db, row.id, state, now)
            if answer:
                deliveries.add(db, [self.part(session, name, seq)], start=True, now=now)
                deliveries.sent(db, DeliveryId(f"dl_{name}"), [name], DeliveryState.SENT, now)
                sessions.move_cursors(db, session.id, OutCursor(batch.last_seq, batch.last_change, 0))

        await self.hub.store.write(record)

    def part(self, session: Session, name: str, seq: int) -> Delivery:
        now = self.clock.now()
        return Delivery(
            id=DeliveryId(f"dl_{name}"), session_id=session.id, out_seq=seq, out_id=f"out_{name}", part=1, parts=1,
            kind="message", address=CHAT, content="{}", state=DeliveryState.PENDING, attempts=0, next_try_at=now,
            first_try_at=None, platform_ids=(), reason=None, last_error=None, maybe_duplicate=False, created_at=now,
            updated_at=now,
        )  # fmt: skip

    async def ledger(self) -> dict[str, int]:
        def count(db: sqlite3.Connection) -> dict[str, int]:
            tables = ("events", "inbound", "deliveries", "sent_messages", "questions", "sessions", "drops")
            return {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}

        found = await self.hub.store.read(count)
        return {name: number for name, number in found.items() if number}


@asynccontextmanager
async def house(root: Path) -> AsyncIterator[House]:
    home = Home(root / "home")
    home.create()
    home.jackfield_toml.write_text("[host]\nkeep_days = 7\n", encoding="utf-8")
    clock = SkippingClock()
    async with open_hub(home, clock=clock) as hub:
        yield House(hub, clock)


def texts(folder: SessionFolder, file: str, table: str) -> list[str]:
    db = sqlite3.connect(folder.root / file)
    try:
        return [json.loads(row[0])["text"] for row in db.execute(f"SELECT content FROM {table} ORDER BY seq")]
    finally:
        db.close()


async def test_old_messages_leave_ledger_mailbox_and_disk_on_both_sides(tmp_path: Path) -> None:
    async with house(tmp_path) as at:
        session = await at.session("k")
        folder = at.hub.folder_of(session)
        await at.says(session, "one")
        await at.says(session, "two")
        folder.store_outbox("never-written", "a.txt", b"1")
        os.utime(folder.outbox / "never-written", (at.clock.now() / 1000,) * 2)
        at.clock.seconds += 5 * DAY
        await at.says(session, "three")
        await at.retention.forget()
        assert (await at.ledger())["inbound"] == 3
        at.clock.seconds += 3 * DAY
        await at.retention.forget()
        assert await at.ledger() == {"events": 1, "inbound": 1, "deliveries": 1, "sent_messages": 1, "sessions": 1}
        assert texts(folder, "inbound.db", "messages_in") == ["three"]
        assert [path.name for path in folder.inbox.iterdir()] == ["in_three"]
        assert list(folder.outbox.iterdir()) == []
        assert texts(folder, "outbound.db", "messages_out") == ["one", "two", "three"]
        runner = RunnerMailbox(folder, session.epoch)
        while runner.prune():
            pass
        runner.close()
        assert texts(folder, "outbound.db", "messages_out") == ["three"]


async def test_what_is_open_keeps_its_event_its_row_its_files_and_its_long_text(tmp_path: Path) -> None:
    """A mailbox that must be replaced is filled again from them."""
    async with house(tmp_path) as at:
        session = await at.session("k")
        await at.says(session, "waits", InboundState.PARKED, answer=False)
        await at.says(session, "done", answer=False)
        spool = at.hub.home.root / "spool"
        spool.mkdir()
        (spool / ("a" * 64)).write_bytes(b"long")
        os.utime(spool / ("a" * 64), (at.clock.now() / 1000 + 1,) * 2)
        at.clock.seconds += 30 * DAY
        await at.retention.forget()
        assert await at.ledger() == {"events": 1, "inbound": 1, "sessions": 1}
        assert [path.name for path in at.hub.folder_of(session).inbox.iterdir()] == ["in_waits"]
        assert len(list(spool.iterdir())) == 1
        await at.hub.store.write(inbound.set_state, InboundId("in_waits"), InboundState.FAILED, at.clock.now())
        at.clock.seconds += 8 * DAY
        await at.retention.forget()
        assert await at.ledger() == {"sessions": 1}
        assert list(spool.iterdir()) == []


async def test_a_delivery_that_waits_for_ever_does_not_keep_the_others(tmp_path: Path) -> None:
    async with house(tmp_path) as at:
        session = await at.session("k")
        await at.hub.store.write(deliveries.add, [at.part(session, "waits", 1)], start=False, now=at.clock.now())
        for number in range(12):
            await at.says(session, f"m{number}")
        at.clock.seconds += 8 * DAY
        while await at.hub.store.write(deliveries.prune_deliveries, at.clock.now(), 5):
            pass
        assert (await at.ledger())["deliveries"] == 1


async def test_a_closed_session_goes_with_its_folder_an_active_one_stays(tmp_path: Path) -> None:
    async with house(tmp_path) as at:
        closed, active = await at.session("closed"), await at.session("active")
        for session in (closed, active):
            await at.says(session, session.key)
        await at.hub.store.write(sessions.close_session, closed.id, at.clock.now())
        at.clock.seconds += 6 * DAY
        await at.retention.forget()
        assert at.hub.folder_of(closed).root.exists()
        at.clock.seconds += 2 * DAY
        await at.retention.forget()
        assert not at.hub.folder_of(closed).root.exists()
        assert at.hub.folder_of(active).root.exists()
        assert await at.hub.store.read(sessions.session, closed.id) is None
        assert await at.ledger() == {"sessions": 1}


async def test_a_mailbox_that_can_not_be_read_does_not_keep_the_ledger_from_forgetting(tmp_path: Path) -> None:
    async with house(tmp_path) as at:
        damaged, sound = await at.session("damaged"), await at.session("sound")
        for session in (damaged, sound):
            await at.says(session, session.key)
        folder = at.hub.folder_of(damaged)
        await at.hub.mailboxes.forget(folder)
        folder.inbound_db.write_bytes(b"no database" * 1000)
        at.clock.seconds += 8 * DAY
        await at.retention.forget()
        assert await at.ledger() == {"sessions": 2}
        assert texts(at.hub.folder_of(sound), "inbound.db", "messages_in") == ["sound"], "the newest row stays"


async def test_what_lies_beside_the_mailboxes_goes_by_its_age(tmp_path: Path) -> None:
    async with house(tmp_path) as at:
        session = await at.session("k")
        await at.says(session, "young")
        home, now = at.hub.home, at.clock.now()
        old_aside = home.sessions / "ag_1" / f"damaged-{now - 8 * 86_400_000}-ses_x"
        young_aside = home.sessions / "ag_1" / f"damaged-{now - 86_400_000}-ses_x"
        for place in (old_aside, young_aside):
            (place / "inbox").mkdir(parents=True)
        home.logs.mkdir(exist_ok=True)
        known, unknown, fresh = (home.root / "outgoing" / name for name in (f"{session.id}-3", "ses_y-5", "ses_z-7"))
        for copies in (known, unknown, fresh):
            copies.mkdir(parents=True)
        for log in ("crash-1.log", "crash-2.log", "host.jsonl"):
            (home.logs / log).write_text("x")
        for place in (known, unknown, home.logs / "crash-1.log", home.logs / "host.jsonl"):
            os.utime(place, (now / 1000 - 8 * DAY,) * 2)
        for place in (fresh, home.logs / "crash-2.log"):
            os.utime(place, (now / 1000,) * 2)
        await at.retention.forget()
        assert not old_aside.exists() and young_aside.exists()
        assert known.exists() and not unknown.exists() and fresh.exists()
        assert sorted(path.name for path in home.logs.iterdir()) == ["crash-2.log", "host.jsonl"]


async def test_ended_questions_and_old_refusals_are_forgotten(tmp_path: Path) -> None:
    async with house(tmp_path) as at:
        now = at.clock.now()
        for name in ("open", "answered"):
            await at.hub.store.write(questions.add, QuestionId(name), SessionId("ses_1"), 1, CHAT, "{}", None, now)
        await at.hub.store.write(questions.decide, QuestionId("answered"), "yes", None, now)
        await at.hub.store.write(events.audit_drop, CHAT, "x", "unknown_sender", now)
        at.clock.seconds += 8 * DAY
        await at.retention.forget()
        assert await at.ledger() == {"questions": 1}


async def test_the_sweep_works_once_an_hour_and_beside_the_timer(tmp_path: Path) -> None:
    async with house(tmp_path) as at:
        session = await at.session("k")
        await at.says(session, "one", answer=False)
        at.clock.seconds += 8 * DAY
        await at.retention.sweep()
        assert (await at.ledger())["inbound"] == 1, "the timer does not wait for it"
        await at.hub.settle(30)
        assert "inbound" not in await at.ledger()
        await at.says(session, "two", answer=False)
        await at.hub.store.write(lambda db: db.execute("UPDATE inbound SET updated_at = 0") and None)
        await at.hub.store.write(lambda db: db.execute("DELETE FROM events") and None)
        await at.retention.sweep()
        await at.hub.settle(30)
        assert (await at.ledger())["inbound"] == 1
        await at.retention.stop()


async def test_a_date_that_is_wrong_for_a_while_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that jumps by a year and back must not take the history of a year with it."""
    async with house(tmp_path) as at:
        session = await at.session("k")
        await at.says(session, "one", answer=False)
        real = at.clock.now
        monkeypatch.setattr(at.clock, "now", lambda: UnixMs(real() + round(365 * DAY * 1000)))
        for _ in range(3):
            await at.retention.sweep()
            await at.hub.settle(30)
            at.clock.seconds += 600
        assert (await at.ledger())["inbound"] == 1
        at.clock.seconds += 3600
        await at.retention.sweep()
        await at.hub.settle(30)
        assert "inbound" not in await at.ledger(), "a date that stays is believed"
        await at.retention.stop()
