"""What enters parts into the ledger, moves them from state to state, and ends them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from jackfield.clock import UnixMs
from jackfield.ids import AgentGroupId, DeliveryId
from jackfield.models import Address, Delivery, DeliveryState
from jackfield.store.deliveries.heads import advance, begin, head_of, place_of
from jackfield.store.deliveries.rows import COLUMNS, ENDS, FILES_REFUSED, OPEN, address_of, ids_text
from jackfield.store.text import storable

__all__ = [
    "Added",
    "add",
    "drop",
    "drop_of_group",
    "failed",
    "intent",
    "redirect",
    "reported",
    "retry_at",
    "revive",
    "sent",
    "waiting",
]


class Added(NamedTuple):
    """What `add` did: the parts whose sending begins with this transaction, and whose workers to wake."""

    started: list[Delivery]
    destinations: list[str]


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
                occupied = head_of(db, destination) is not None
                touched[destination] = occupied
            if not occupied:
                begins = start and row.next_try_at <= now
                if begins:
                    state, attempts, first_try_at = DeliveryState.SENDING, attempts + 1, first_try_at or now
                elif state is not DeliveryState.SENDING:
                    head_at = row.next_try_at
        done = db.execute(
            f"INSERT INTO deliveries ({COLUMNS}, head_at) VALUES "
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
                ids_text(row.platform_ids),
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


def intent(db: sqlite3.Connection, id: DeliveryId, now: UnixMs) -> Delivery | None:
    """Record that a send begins: `sending`, one more attempt.  None when the part has an end already.

    Raises:
        NotFound: no such delivery.
    """
    order, _, state = place_of(db, id)
    return None if state in ENDS else begin(db, order, now)


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
    order, destination, was = place_of(db, id)
    if was in ENDS:
        db.execute(
            "UPDATE deliveries SET platform_ids = ?, updated_at = ? WHERE ord = ?",
            (ids_text(platform_ids), now, order),
        )
    else:
        db.execute(
            "UPDATE deliveries SET state = ?, platform_ids = ?, head_at = NULL, reason = ?, last_error = ?, "
            "updated_at = ? WHERE ord = ?",
            (
                state.value,
                ids_text(platform_ids),
                FILES_REFUSED if missing else None,
                storable(missing),
                now,
                order,
            ),
        )
    if platform_ids:
        at = address_of(destination)
        db.executemany(
            "INSERT INTO sent_messages (channel_type, instance, message_id, chat, delivery_ord) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT DO NOTHING",
            [(at.channel_type, at.instance, message, at.platform_id, order) for message in platform_ids],
        )
    return advance(db, destination, now, start=start_next)


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
    order, destination, state = place_of(db, id)
    if state not in ENDS:
        db.execute(
            "UPDATE deliveries SET state = 'failed', head_at = NULL, reason = ?, last_error = ?, "
            "maybe_duplicate = max(maybe_duplicate, ?), updated_at = ? WHERE ord = ?",
            (storable(reason), storable(error), int(maybe_duplicate), now, order),
        )
    return advance(db, destination, now, start=start_next)


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
    order, destination, was = place_of(db, id)
    if was in ENDS:
        return False
    back = 1 if was is DeliveryState.SENDING and not counts else 0
    db.execute(
        "UPDATE deliveries SET state = ?, next_try_at = ?, attempts = max(0, attempts - ?), reason = ?, "
        "last_error = coalesce(?, last_error), maybe_duplicate = max(maybe_duplicate, ?), head_at = NULL, "
        "updated_at = ? WHERE ord = ?",
        (state.value, next_try_at, back, storable(reason), storable(error), int(maybe_duplicate), now, order),
    )
    advance(db, destination, now, start=False)
    return True


def drop(db: sqlite3.Connection, id: DeliveryId, now: UnixMs) -> bool:
    """An operator gives a part up.  False when it has an end already.

    Raises:
        NotFound: no such delivery.
    """
    order, destination, state = place_of(db, id)
    if state in ENDS:
        return False
    db.execute("UPDATE deliveries SET state = 'dropped', head_at = NULL, updated_at = ? WHERE ord = ?", (now, order))
    advance(db, destination, now, start=False)
    return True


def revive(db: sqlite3.Connection, id: DeliveryId, now: UnixMs, *, arrived: bool = False) -> bool:
    """Send a failed or dropped part again, with all its attempts and in its old place in the order; with `arrived` also
    one that was sent, to where it was lost afterwards.

    False for any other state: a blocked one stays blocked, since a guard or a permission was against it.

    Raises:
        NotFound: no such delivery.
    """
    order, destination, state = place_of(db, id)
    if state not in (DeliveryState.FAILED, DeliveryState.DROPPED) and not (arrived and state is DeliveryState.SENT):
        return False
    before = head_of(db, destination)
    if before is not None and before[-1] is not None:
        db.execute("UPDATE deliveries SET head_at = NULL WHERE ord = ?", (before[-2],))
    db.execute(
        "UPDATE deliveries SET state = 'pending', attempts = 0, first_try_at = NULL, next_try_at = ?1, reason = NULL, "
        "updated_at = ?1 WHERE ord = ?2",
        (now, order),
    )
    advance(db, destination, now, start=False)
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
        f"WHERE {OPEN} AND session_id IN (SELECT id FROM sessions WHERE agent_group_id = ?) RETURNING destination",
        (reason, now, agent_group_id),
    ).fetchall()
    for destination in {row[0] for row in rows}:
        advance(db, destination, now, start=False)
    return len(rows)


def redirect(db: sqlite3.Connection, before: Address, after: Address) -> int:
    """Send what is unfinished for a chat, in whatever thread, to another chat instead; how many parts."""
    rows = db.execute(
        "UPDATE deliveries SET head_at = NULL, destination = ?2 || substr(destination, length(?1) + 1) "
        f"WHERE {OPEN} AND (destination = ?1 OR (destination >= ?1 || ':' AND destination < ?1 || ';')) "
        "RETURNING destination",
        (str(before.chat), str(after.chat)),
    ).fetchall()
    for destination in {row[0] for row in rows}:
        db.execute(
            f"UPDATE deliveries SET head_at = NULL WHERE destination = ? AND {OPEN} AND head_at IS NOT NULL",
            (destination,),
        )
        advance(db, destination, UnixMs(0), start=False)
    return len(rows)
