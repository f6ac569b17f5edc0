"""The ledger of messages out: one entry per part of an outbound row, in order within each destination.

A destination is `str(address)`.  Its *head* is its oldest unfinished part; nothing behind the head is sent before the
head has an end (architecture 5, rule 6).  `head_at` says when the head may be tried next and is NULL everywhere else,
so that what is due is found without looking at queues.  Each function here that ends or adds parts keeps that true.

Unfinished states move freely among each other.  An end is left by `revive` only; `reported` corrects `accepted`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from jackfield.clock import UnixMs
from jackfield.errors import NotFound
from jackfield.ids import AgentGroupId, DeliveryId, SessionId
from jackfield.models import Address, Delivery, DeliveryState
from jackfield.store.text import storable

__all__ = [
    "ENDS",
    "FILES_REFUSED",
    "Added",
    "add",
    "by_platform_id",
    "counts",
    "deliveries",
    "delivery",
    "destinations_due",
    "drop",
    "drop_of_group",
    "failed",
    "intent",
    "is_own_message",
    "left_open",
    "next_for",
    "open_in_chat",
    "parts_of",
    "platform_ids_of",
    "prune_deliveries",
    "redirect",
    "reported",
    "retry_at",
    "revive",
    "sent",
    "waiting",
]

ENDS = frozenset(
    {
        DeliveryState.ACCEPTED,
        DeliveryState.SENT,
        DeliveryState.FAILED,
        DeliveryState.DROPPED,
        DeliveryState.BLOCKED,
    }
)

FILES_REFUSED = "FilesRefused"
"""The reason of a part that the platform took without some of its files."""

_COLUMNS = (
    "id, session_id, out_seq, out_id, part, parts, kind, destination, content, state, attempts, next_try_at, "
    "first_try_at, platform_ids, reason, last_error, maybe_duplicate, created_at, updated_at"
)
# The text of this condition is that of the partial index; SQLite uses one only for the very same condition.
_OPEN = "state IN ('pending', 'sending', 'retrying', 'waiting')"


class Added(NamedTuple):
    """What `add` did: the parts whose sending begins with this transaction, and whose workers to wake."""

    started: list[Delivery]
    destinations: list[str]


_address = lru_cache(maxsize=4096)(Address.parse)


def _delivery(row: tuple[Any, ...]) -> Delivery:
    return Delivery(
        id=DeliveryId(row[0]),
        session_id=SessionId(row[1]),
        out_seq=row[2],
        out_id=row[3],
        part=row[4],
        parts=row[5],
        kind=row[6],
        address=_address(row[7]),
        content=row[8],
        state=DeliveryState(row[9]),
        attempts=row[10],
        next_try_at=UnixMs(row[11]),
        first_try_at=row[12],
        platform_ids=() if row[13] == "[]" else tuple(json.loads(row[13])),
        reason=row[14],
        last_error=row[15],
        maybe_duplicate=bool(row[16]),
        created_at=UnixMs(row[17]),
        updated_at=UnixMs(row[18]),
    )


# Adding


def add(db: sqlite3.Connection, rows: Sequence[Delivery], *, start: bool, now: UnixMs) -> Added:
    """Enter parts in the order of `rows`; one that is known by (session, out_seq, part) stays as it is.

    With `start`, the first new part of a destination that has nothing unfinished before it becomes `sending` with one
    attempt: the intent is recorded by the very transaction that enters it.  Parts that arrive with an end (blocked,
    failed) are kept as they are and hold up nobody.
    """
    started: list[Delivery] = []
    touched: dict[str, bool] = {}  # whether the destination's head is a part that was here before
    for row in rows:
        destination = str(row.address)
        state, attempts, first_try_at, head_at = row.state, row.attempts, row.first_try_at, None
        begins = False
        if state not in ENDS:
            occupied = touched.get(destination)
            if occupied is None:
                occupied = _head(db, destination) is not None
                touched[destination] = occupied
            if not occupied:
                begins = start and row.next_try_at <= now
                if begins:
                    state, attempts, first_try_at = DeliveryState.SENDING, attempts + 1, first_try_at or now
                elif state is not DeliveryState.SENDING:
                    head_at = row.next_try_at
        done = db.execute(
            f"INSERT INTO deliveries ({_COLUMNS}, head_at) VALUES "
            "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (session_id, out_seq, part) DO NOTHING",
            (
                row.id,
                row.session_id,
                row.out_seq,
                row.out_id,
                row.part,
                row.parts,
                row.kind,
                destination,
                row.content,
                state.value,
                attempts,
                row.next_try_at,
                first_try_at,
                _ids_text(row.platform_ids),
                storable(row.reason),
                storable(row.last_error),
                int(row.maybe_duplicate),
                row.created_at,
                row.updated_at,
                head_at,
            ),
        )
        if done.rowcount == 1 and state not in ENDS:
            touched[destination] = True
            if begins:
                started.append(replace(row, state=state, attempts=attempts, first_try_at=first_try_at))
    return Added(started, list(touched))


def _ids_text(ids: Iterable[str]) -> str:
    return json.dumps(list(ids), ensure_ascii=False, separators=(",", ":"))


# The head of a destination


def _head(db: sqlite3.Connection, destination: str) -> tuple[Any, ...] | None:
    row: tuple[Any, ...] | None = db.execute(
        f"SELECT {_COLUMNS}, ord, head_at FROM deliveries WHERE destination = ? AND {_OPEN} ORDER BY ord LIMIT 1",
        (destination,),
    ).fetchone()
    return row


def _advance(db: sqlite3.Connection, destination: str, now: UnixMs, *, start: bool) -> Delivery | None:
    """Mark what is now the head of a destination; with `start`, begin to send it when it may be tried."""
    row = _head(db, destination)
    if row is None:
        return None
    head = _delivery(row)
    order, head_at = row[-2], row[-1]
    if head.state is DeliveryState.SENDING:
        return head
    if start and head.next_try_at <= now:
        return _begin(db, order, now)
    if head_at != head.next_try_at:
        db.execute("UPDATE deliveries SET head_at = next_try_at WHERE ord = ?", (order,))
    return head


def _begin(db: sqlite3.Connection, order: int, now: UnixMs) -> Delivery:
    row = db.execute(
        "UPDATE deliveries SET state = 'sending', attempts = attempts + 1, head_at = NULL, "
        f"first_try_at = coalesce(first_try_at, ?1), updated_at = ?1 WHERE ord = ?2 RETURNING {_COLUMNS}",
        (now, order),
    ).fetchone()
    return _delivery(row)


def _place(db: sqlite3.Connection, id: DeliveryId) -> tuple[int, str, DeliveryState]:
    row = db.execute("SELECT ord, destination, state FROM deliveries WHERE id = ?", (id,)).fetchone()
    if row is None:
        raise NotFound(f"there is no delivery {id!r}")
    return row[0], row[1], DeliveryState(row[2])


def next_for(db: sqlite3.Connection, destination: str, now: UnixMs) -> Delivery | None:
    """The oldest unfinished part of a destination, due or not: the caller looks at `next_try_at` and `state`."""
    row = _head(db, destination)
    return None if row is None else _delivery(row[:-2])


def destinations_due(db: sqlite3.Connection, now: UnixMs) -> list[str]:
    """Destinations whose head may be tried and is not being sent, the longest due first."""
    rows = db.execute(
        "SELECT destination FROM deliveries WHERE head_at IS NOT NULL AND head_at <= ? ORDER BY head_at", (now,)
    )
    return list(dict.fromkeys(row[0] for row in rows))


def left_open(db: sqlite3.Connection) -> list[Delivery]:
    """Parts that are being sent; when the host starts, what a crash left ambiguous (architecture 5, rule 5)."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM deliveries WHERE state = 'sending' ORDER BY ord")
    return [_delivery(row) for row in rows]


# Moving


def intent(db: sqlite3.Connection, id: DeliveryId, now: UnixMs) -> Delivery | None:
    """Record that a send begins: `sending`, one more attempt.  None when the part has an end already.

    Raises:
        NotFound: no such delivery.
    """
    order, _, state = _place(db, id)
    return None if state in ENDS else _begin(db, order, now)


def sent(
    db: sqlite3.Connection,
    id: DeliveryId,
    platform_ids: Sequence[str],
    state: DeliveryState,
    now: UnixMs,
    *,
    start_next: bool = True,
    missing: str | None = None,
) -> Delivery | None:
    """The platform took a part: `sent`, or `accepted` when it will report later.

    `missing` tells which of its files the platform refused; the reason is `FILES_REFUSED` then.

    Gives the destination's next part; with `start_next` it is `sending` already, its attempt counted, if it may be
    tried now.  The platform ids are replaced even when the part has an end already: an operator may have dropped it
    meanwhile (it stays dropped), and an edit may have changed which messages it consists of (channels.md R8).

    Raises:
        NotFound: no such delivery.
    """
    if state not in (DeliveryState.SENT, DeliveryState.ACCEPTED):
        raise ValueError(f"a delivery that the platform took is not {state.value!r}")
    order, destination, was = _place(db, id)
    if was in ENDS:
        db.execute(
            "UPDATE deliveries SET platform_ids = ?, updated_at = ? WHERE ord = ?",
            (_ids_text(platform_ids), now, order),
        )
    else:
        db.execute(
            "UPDATE deliveries SET state = ?, platform_ids = ?, head_at = NULL, reason = ?, last_error = ?, "
            "updated_at = ? WHERE ord = ?",
            (
                state.value,
                _ids_text(platform_ids),
                FILES_REFUSED if missing else None,
                storable(missing),
                now,
                order,
            ),
        )
    if platform_ids:
        at = _address(destination)
        db.executemany(
            "INSERT INTO sent_messages (channel_type, instance, message_id, chat, delivery_ord) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT DO NOTHING",
            [(at.channel_type, at.instance, message, at.platform_id, order) for message in platform_ids],
        )
    return _advance(db, destination, now, start=start_next)


def failed(
    db: sqlite3.Connection,
    id: DeliveryId,
    reason: str,
    error: str | None,
    now: UnixMs,
    *,
    maybe_duplicate: bool = False,
    start_next: bool = False,
) -> Delivery | None:
    """The end of a part that can't be sent; the destination goes on behind it.  Gives its next part, like `sent`.

    Raises:
        NotFound: no such delivery.
    """
    order, destination, state = _place(db, id)
    if state not in ENDS:
        db.execute(
            "UPDATE deliveries SET state = 'failed', head_at = NULL, reason = ?, last_error = ?, "
            "maybe_duplicate = max(maybe_duplicate, ?), updated_at = ? WHERE ord = ?",
            (storable(reason), storable(error), int(maybe_duplicate), now, order),
        )
    return _advance(db, destination, now, start=start_next)


def retry_at(
    db: sqlite3.Connection,
    id: DeliveryId,
    next_try_at: UnixMs,
    reason: str,
    error: str | None,
    now: UnixMs,
    *,
    counts: bool,
    maybe_duplicate: bool = False,
) -> bool:
    """Try a part again at a moment.  Without `counts` the attempt that just began is given back (C077).

    False when it has an end already.

    Raises:
        NotFound: no such delivery.
    """
    return _hold(
        db, id, DeliveryState.RETRYING, next_try_at, reason, error, now, counts=counts, maybe_duplicate=maybe_duplicate
    )


def waiting(db: sqlite3.Connection, id: DeliveryId, now: UnixMs, reason: str | None = None) -> bool:
    """A part's channel is not ready (C084); an attempt that had begun is given back.

    No timer brings it back: it goes on when the channel is ready.  `destinations_due` names it all the while.

    Raises:
        NotFound: no such delivery.
    """
    return _hold(db, id, DeliveryState.WAITING, now, reason, None, now, counts=False, maybe_duplicate=False)


def _hold(
    db: sqlite3.Connection,
    id: DeliveryId,
    state: DeliveryState,
    next_try_at: UnixMs,
    reason: str | None,
    error: str | None,
    now: UnixMs,
    *,
    counts: bool,
    maybe_duplicate: bool,
) -> bool:
    order, destination, was = _place(db, id)
    if was in ENDS:
        return False
    back = 1 if was is DeliveryState.SENDING and not counts else 0
    db.execute(
        "UPDATE deliveries SET state = ?, next_try_at = ?, attempts = max(0, attempts - ?), reason = ?, "
        "last_error = coalesce(?, last_error), maybe_duplicate = max(maybe_duplicate, ?), head_at = NULL, "
        "updated_at = ? WHERE ord = ?",
        (state.value, next_try_at, back, storable(reason), storable(error), int(maybe_duplicate), now, order),
    )
    _advance(db, destination, now, start=False)
    return True


def drop(db: sqlite3.Connection, id: DeliveryId, now: UnixMs) -> bool:
    """An operator gives a part up.  False when it has an end already.

    Raises:
        NotFound: no such delivery.
    """
    order, destination, state = _place(db, id)
    if state in ENDS:
        return False
    db.execute("UPDATE deliveries SET state = 'dropped', head_at = NULL, updated_at = ? WHERE ord = ?", (now, order))
    _advance(db, destination, now, start=False)
    return True


def revive(db: sqlite3.Connection, id: DeliveryId, now: UnixMs, *, arrived: bool = False) -> bool:
    """Send a failed or dropped part again, with all its attempts and in its old place in the order; with `arrived` also
    one that was sent, to where it was lost afterwards.

    False for any other state: a blocked one stays blocked, since a guard or a permission was against it.

    Raises:
        NotFound: no such delivery.
    """
    order, destination, state = _place(db, id)
    if state not in (DeliveryState.FAILED, DeliveryState.DROPPED) and not (arrived and state is DeliveryState.SENT):
        return False
    before = _head(db, destination)
    if before is not None and before[-1] is not None:
        db.execute("UPDATE deliveries SET head_at = NULL WHERE ord = ?", (before[-2],))
    db.execute(
        "UPDATE deliveries SET state = 'pending', attempts = 0, first_try_at = NULL, next_try_at = ?1, reason = NULL, "
        "updated_at = ?1 WHERE ord = ?2",
        (now, order),
    )
    _advance(db, destination, now, start=False)
    return True


def reported(
    db: sqlite3.Connection,
    id: DeliveryId,
    state: Literal[DeliveryState.SENT, DeliveryState.FAILED],
    now: UnixMs,
    *,
    reason: str | None = None,
    error: str | None = None,
) -> bool:
    """The platform's later report about an `accepted` part (C009).  False in any other state."""
    done = db.execute(
        "UPDATE deliveries SET state = ?, reason = ?, last_error = ?, updated_at = ? "
        "WHERE id = ? AND state = 'accepted'",
        (state.value, storable(reason), storable(error), now, id),
    )
    return done.rowcount == 1


def drop_of_group(db: sqlite3.Connection, agent_group_id: AgentGroupId, reason: str, now: UnixMs) -> int:
    """Give up all that the sessions of an agent group still wanted to send; how many parts."""
    rows = db.execute(
        "UPDATE deliveries SET state = 'dropped', head_at = NULL, reason = ?, updated_at = ? "
        f"WHERE {_OPEN} AND session_id IN (SELECT id FROM sessions WHERE agent_group_id = ?) RETURNING destination",
        (reason, now, agent_group_id),
    ).fetchall()
    for destination in {row[0] for row in rows}:
        _advance(db, destination, now, start=False)
    return len(rows)


def redirect(db: sqlite3.Connection, before: Address, after: Address) -> int:
    """Send what is unfinished for a chat, in whatever thread, to another chat instead; how many parts."""
    rows = db.execute(
        "UPDATE deliveries SET head_at = NULL, destination = ?2 || substr(destination, length(?1) + 1) "
        f"WHERE {_OPEN} AND (destination = ?1 OR (destination >= ?1 || ':' AND destination < ?1 || ';')) "
        "RETURNING destination",
        (str(before.chat), str(after.chat)),
    ).fetchall()
    for destination in {row[0] for row in rows}:
        db.execute(
            f"UPDATE deliveries SET head_at = NULL WHERE destination = ? AND {_OPEN} AND head_at IS NOT NULL",
            (destination,),
        )
        _advance(db, destination, UnixMs(0), start=False)
    return len(rows)


# Asking


def delivery(db: sqlite3.Connection, id: DeliveryId) -> Delivery | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM deliveries WHERE id = ?", (id,)).fetchone()
    return None if row is None else _delivery(row)


def deliveries(
    db: sqlite3.Connection,
    *,
    session_id: SessionId | None = None,
    state: DeliveryState | None = None,
    limit: int = 50,
) -> list[Delivery]:
    """The newest first."""
    terms, values = ["1"], list[Any]()
    if session_id is not None:
        terms.append("session_id = ?")
        values.append(session_id)
    if state is not None:
        terms.append("state = ?")
        values.append(state.value)
    order = "out_seq DESC, part DESC" if session_id is not None else "ord DESC"
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM deliveries WHERE {' AND '.join(terms)} ORDER BY {order} LIMIT ?", (*values, limit)
    )
    return [_delivery(row) for row in rows]


def parts_of(db: sqlite3.Connection, session_id: SessionId, out_seq: int) -> list[Delivery]:
    """All parts of one outbound row, in order."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM deliveries WHERE session_id = ? AND out_seq = ? ORDER BY part", (session_id, out_seq)
    )
    return [_delivery(row) for row in rows]


def platform_ids_of(db: sqlite3.Connection, session_id: SessionId, out_seq: int) -> tuple[str, ...]:
    """The platform's ids of a whole outbound row, in order: what an edit must name (channels.md R8)."""
    return tuple(id for part in parts_of(db, session_id, out_seq) for id in part.platform_ids)


def by_platform_id(db: sqlite3.Connection, address: Address, platform_id: str) -> Delivery | None:
    """The part that became this message of a chat (its thread does not matter); the newest if an id was used twice."""
    columns = ", ".join(f"d.{name}" for name in _COLUMNS.split(", "))
    row = db.execute(
        f"SELECT {columns} FROM sent_messages s JOIN deliveries d ON d.ord = s.delivery_ord "
        "WHERE s.channel_type = ? AND s.instance = ? AND s.message_id = ? AND s.chat = ? "
        "ORDER BY s.delivery_ord DESC LIMIT 1",
        (address.channel_type, address.instance, platform_id, address.platform_id),
    ).fetchone()
    return None if row is None else _delivery(row)


def is_own_message(db: sqlite3.Connection, channel_type: str, instance: str, platform_id: str) -> bool:
    """Whether a message of that platform account was sent by us, in any chat."""
    row = db.execute(
        "SELECT 1 FROM sent_messages WHERE channel_type = ? AND instance = ? AND message_id = ? LIMIT 1",
        (channel_type, instance, platform_id),
    ).fetchone()
    return row is not None


def open_in_chat(db: sqlite3.Connection, chat: Address) -> int:
    """How many parts for a chat, in whatever thread, have no end yet."""
    row = db.execute(
        "SELECT (SELECT count(*) FROM deliveries WHERE destination = ?1 AND " + _OPEN + ") + "
        "(SELECT count(*) FROM deliveries WHERE destination >= ?1 || ':' AND destination < ?1 || ';' AND "
        + _OPEN
        + ")",
        (str(chat.chat),),
    ).fetchone()
    return int(row[0])


def counts(db: sqlite3.Connection) -> dict[str, int]:
    """How many parts are in each state."""
    rows = db.execute("SELECT state, count(*) FROM deliveries GROUP BY state")
    return {str(state): int(count) for state, count in rows}


def prune_deliveries(db: sqlite3.Connection, before: UnixMs, limit: int = 1000) -> int:
    """Forget parts that ended and were made before a moment, at most `limit` of each end; how many went."""
    return sum(
        db.execute(
            "DELETE FROM deliveries WHERE ord IN (SELECT ord FROM "
            "(SELECT ord, created_at FROM deliveries WHERE state = ? ORDER BY ord LIMIT ?) WHERE created_at < ?)",
            (state.value, limit, before),
        ).rowcount
        for state in ENDS
    )
