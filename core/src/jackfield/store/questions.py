"""Questions that agents asked people: each is decided once, or expires."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from jackfield.clock import UnixMs
from jackfield.ids import QuestionId, SessionId, TurnId, UserId
from jackfield.models import Address

__all__ = [
    "Decision",
    "Question",
    "QuestionState",
    "add",
    "any_due",
    "decide",
    "expire_due",
    "expire_of_session",
    "is_awaited",
    "open_in_chat",
    "open_questions",
    "question",
]


LEDGER_LAG = 10_000
"""Milliseconds within which the ledger knows of a turn, at the latest."""


class QuestionState(StrEnum):
    OPEN = "open"
    DECIDED = "decided"
    EXPIRED = "expired"


class Decision(StrEnum):
    """What an answer did."""

    DECIDED = "decided"
    """It is the one that counts."""
    ALREADY = "already"
    """Somebody answered before."""
    EXPIRED = "expired"
    """Too late."""
    UNKNOWN = "unknown"
    """There is no such question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`prompt` is the JSON of a `models.Prompt`."""

    id: QuestionId
    session_id: SessionId
    out_seq: int
    address: Address
    prompt: str
    state: QuestionState
    value: str | None
    decided_by: UserId | None
    created_at: UnixMs
    expires_at: UnixMs | None
    decided_at: UnixMs | None
    turn: TurnId | None
    """The one that asked."""


_COLUMNS = (
    "id, session_id, out_seq, address, prompt, state, value, decided_by, created_at, expires_at, decided_at, turn"
)


def _question(row: tuple[Any, ...]) -> Question:
    return Question(
        id=QuestionId(row[0]),
        session_id=SessionId(row[1]),
        out_seq=row[2],
        address=Address.parse(row[3]),
        prompt=row[4],
        state=QuestionState(row[5]),
        value=row[6],
        decided_by=row[7],
        created_at=UnixMs(row[8]),
        expires_at=row[9],
        decided_at=row[10],
        turn=row[11],
    )


def add(
    db: sqlite3.Connection,
    id: QuestionId,
    session_id: SessionId,
    out_seq: int,
    address: Address,
    prompt: str,
    expires_at: UnixMs | None,
    now: UnixMs,
    turn: TurnId | None = None,
) -> bool:
    """Open a question.  False when this id is there already; then nothing changes."""
    done = db.execute(
        "INSERT INTO questions (id, session_id, out_seq, address, prompt, state, created_at, expires_at, turn) "
        "VALUES (?, ?, ?, ?, ?, 'open', ?, ?, ?) ON CONFLICT (id) DO NOTHING",
        (id, session_id, out_seq, str(address), prompt, now, expires_at, turn),
    )
    return done.rowcount == 1


def is_awaited(db: sqlite3.Connection, question: Question, now: UnixMs) -> bool:
    """Whether the turn that asked still runs.  True when nobody knows which one it was, or does not know it yet."""
    if question.turn is None:
        return True
    newest = "SELECT turn, state FROM inbound WHERE session_id = ? ORDER BY ord DESC LIMIT 200"
    working = (
        "SELECT turn, state FROM inbound WHERE session_id = ? "
        "AND state IN ('queued', 'claimed', 'retrying', 'parked', 'context') ORDER BY ord LIMIT 200"
    )
    rows = [row for sql in (newest, working) for row in db.execute(sql, (question.session_id,))]
    states = [state for turn, state in rows if turn == question.turn]
    return "claimed" in states or (not states and now < question.created_at + LEDGER_LAG)


def question(db: sqlite3.Connection, id: QuestionId) -> Question | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM questions WHERE id = ?", (id,)).fetchone()
    return None if row is None else _question(row)


def open_questions(db: sqlite3.Connection, session_id: SessionId) -> list[Question]:
    """What a session still waits for, the oldest first."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM questions WHERE session_id = ? AND state = 'open' ORDER BY created_at, id",
        (session_id,),
    )
    return [_question(row) for row in rows]


def open_in_chat(db: sqlite3.Connection, chat: Address, now: UnixMs) -> list[Question]:
    """What is asked in a chat, in whatever thread, and may still be answered; the newest first.

    Reads the open questions only, of which there are few: each ends within its time-out.
    """
    at = str(chat.chat)
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM questions WHERE state = 'open' AND expires_at IS NOT NULL AND expires_at > ?1 "
        "AND (address = ?2 OR address >= ?2 || ':' AND address < ?2 || ';') ORDER BY created_at DESC, id DESC",
        (now, at),
    )
    return [_question(row) for row in rows]


def decide(db: sqlite3.Connection, id: QuestionId, value: str, by: UserId | None, now: UnixMs) -> Decision:
    """Answer a question.  Of all who try, exactly one gets `decided` (architecture 8)."""
    done = db.execute(
        "UPDATE questions SET state = 'decided', value = ?1, decided_by = ?2, decided_at = ?3 "
        "WHERE id = ?4 AND state = 'open' AND (expires_at IS NULL OR expires_at > ?3)",
        (value, by, now, id),
    )
    if done.rowcount == 1:
        return Decision.DECIDED
    row = db.execute("SELECT state FROM questions WHERE id = ?", (id,)).fetchone()
    if row is None:
        return Decision.UNKNOWN
    return Decision.ALREADY if row[0] == QuestionState.DECIDED.value else Decision.EXPIRED


def any_due(db: sqlite3.Connection, now: UnixMs) -> bool:
    """Whether `expire_due` would find anything."""
    row = db.execute(
        "SELECT 1 FROM questions WHERE state = 'open' AND expires_at IS NOT NULL AND expires_at <= ? LIMIT 1", (now,)
    ).fetchone()
    return row is not None


def expire_due(db: sqlite3.Connection, now: UnixMs) -> list[Question]:
    """End the open questions whose time is over; each is returned by exactly one call."""
    rows = db.execute(
        "UPDATE questions SET state = 'expired', decided_at = ?1 "
        f"WHERE state = 'open' AND expires_at IS NOT NULL AND expires_at <= ?1 RETURNING {_COLUMNS}",
        (now,),
    ).fetchall()
    return sorted((_question(row) for row in rows), key=lambda one: (one.expires_at or 0, one.id))


def expire_of_session(db: sqlite3.Connection, session_id: SessionId, now: UnixMs) -> int:
    """End what a session that is being closed still asked; nobody is told.  How many."""
    return db.execute(
        "UPDATE questions SET state = 'expired', decided_at = ? WHERE session_id = ? AND state = 'open'",
        (now, session_id),
    ).rowcount
