"""The host's side: the only writer of `inbound.db`, and a suspicious reader of `outbound.db` (architecture 6)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from jackfield.clock import Clock, SystemClock, UnixMs
from jackfield.errors import MailboxDamaged, MailboxError, MailboxFormat
from jackfield.ids import InboundId
from jackfield.mailbox.database import open_writer, rolled_back, transaction, translate
from jackfield.mailbox.inbound import POINT, last_seq, prepare
from jackfield.mailbox.outbound import OutboundBatch, acks_of, claims, drafts, new_rows, newest_epoch, runner_state
from jackfield.mailbox.paths import SessionFolder
from jackfield.mailbox.reader import OutboundReader
from jackfield.mailbox.rows import (
    INBOUND_COLUMNS,
    destination_values,
    inbound_row,
    inbound_values,
    json_names,
    plain,
)
from jackfield.mailbox.watermark import Watermark
from jackfield.models import (
    Ack,
    AckStatus,
    Address,
    Delivered,
    Destination,
    Draft,
    InboundRow,
    Response,
    RunnerState,
)

__all__ = ["Enqueued", "HostMailbox"]

_INSERT: Final = (
    f"INSERT INTO messages_in ({INBOUND_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO NOTHING"
)
_DELIVERED: Final = (
    "INSERT INTO delivered (out_seq, state, platform_ids, at) VALUES (?, ?, ?, ?) ON CONFLICT (out_seq) "
    "DO UPDATE SET state = excluded.state, platform_ids = excluded.platform_ids, at = excluded.at "
    "WHERE state <> excluded.state OR platform_ids <> excluded.platform_ids"
)


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of a row: its message number, whether it is new, and whether its trigger rose from 0 to 1."""

    id: InboundId
    seq: int
    inserted: bool
    raised: bool


class HostMailbox:
    """One session's mailbox, as the host uses it from a worker thread; not for two threads at once.

    Files are opened at the first use, and again after `close` or an error.
    """

    def __init__(self, folder: SessionFolder, clock: Clock | None = None) -> None:
        self.folder = folder
        self._shown = str(folder.inbound_db)
        self._clock = clock or SystemClock()
        self._database: sqlite3.Connection | None = None
        self._outbound = OutboundReader(folder)
        # Rows that the runner completed; marked with the next write, since only speed depends on it.
        self._settled: dict[str, int] = {}

    def close(self) -> None:
        """Let go of all files.  The next call opens them again."""
        self._drop()
        self._outbound.close()

    @property
    def is_open(self) -> bool:
        """Whether it holds any file."""
        return self._database is not None or self._outbound.is_open

    def enqueue(self, rows: Sequence[InboundRow], delivered: Sequence[Delivered] = ()) -> list[Enqueued]:
        """Put rows into `inbound.db`, and what became of outbound ones, in one durable transaction.

        A row that is there already stays as it is, except that its trigger may rise from 0 to 1 (messaging.md 3.6).

        Raises:
            MalformedData: a row is over 1 MiB.
            MailboxBlocked, MailboxFull, MailboxDamaged, MailboxFormat: nothing was written.
        """
        if not rows and not delivered:
            return []
        values = [inbound_values(row, 0) for row in rows]
        with self._write(f"put {len(rows)} rows into {self._shown}") as database:
            done = []
            last = last_seq(database) if rows else 0
            for row, cells in zip(rows, values, strict=True):
                if database.execute(_INSERT, (last + 2, *cells[1:])).rowcount:
                    last += 2
                    done.append(Enqueued(row.id, last, True, False))
                    continue
                raised = row.trigger and bool(
                    database.execute(
                        'UPDATE messages_in SET "trigger" = 1 WHERE id = ? AND "trigger" = 0', (row.id,)
                    ).rowcount
                )
                found = database.execute("SELECT seq FROM messages_in WHERE id = ?", (row.id,)).fetchone()
                done.append(Enqueued(row.id, found[0], False, raised))
            self._put_delivered(database, delivered)
            return done

    def retry(self, message_id: str, attempt: int, due_at: UnixMs, *, revive: bool = False) -> bool:
        """Let the runner take a row again from `due_at` on, as that attempt (architecture 5, rule 5).

        Never lowers the attempt.  A withdrawn row stays withdrawn, unless `revive`.  False when there is no such row to
        take again.
        """
        with self._write(f"retry {message_id} in {self.folder.inbound_db}") as database:
            self._settled.pop(message_id, None)
            return bool(
                database.execute(
                    "UPDATE messages_in SET attempt = ?, due_at = ?, settled = 0, withdrawn = 0 "
                    "WHERE id = ? AND attempt <= ? AND withdrawn <= ?",
                    (attempt, due_at, message_id, attempt, int(revive)),
                ).rowcount
            )

    def withdraw(self, message_ids: Sequence[str]) -> int:
        """Keep the runner from taking rows that it has not taken yet; how many were not withdrawn before."""
        if not message_ids:
            return 0
        with self._write(f"withdraw {len(message_ids)} rows from {self.folder.inbound_db}") as database:
            return sum(
                database.execute("UPDATE messages_in SET withdrawn = 1 WHERE id = ? AND withdrawn = 0", (id_,)).rowcount
                for id_ in message_ids
            )

    def put_back(self, message_ids: Sequence[str]) -> None:
        """Undo `withdraw`."""
        with self._write(f"put back {len(message_ids)} rows into {self.folder.inbound_db}") as database:
            for id_ in message_ids:
                database.execute("UPDATE messages_in SET withdrawn = 0 WHERE id = ?", (id_,))

    def taken(self, message_ids: Sequence[str]) -> set[str]:
        """Those of the rows whose present attempt a runner has claimed or ended.  Raises as `read_outbound` does."""
        marks = ", ".join("?" * len(message_ids))
        with self._read("look into") as database:
            sql = f"SELECT id, attempt FROM messages_in WHERE id IN ({marks})"
            attempts: dict[str, int] = dict(database.execute(sql, tuple(message_ids)).fetchall())
        acks = self.acks_of(message_ids, until=2**62)
        return {
            ack.message_id
            for ack in acks
            if ack.status is not AckStatus.RELEASED and ack.attempt >= attempts.get(ack.message_id, 0)
        }

    def respond(self, response: Response) -> bool:
        """Answer an action or a question.  The first answer stays; False when there was one."""
        with self._write(f"answer {response.request_id} in {self.folder.inbound_db}") as database:
            return bool(
                database.execute(
                    "INSERT INTO responses (request_id, status, body, at) VALUES (?, ?, ?, ?) "
                    "ON CONFLICT (request_id) DO NOTHING",
                    (response.request_id, response.status.value, plain(response.body), response.at),
                ).rowcount
            )

    def project(self, destinations: Sequence[Destination], routing: Address | None) -> None:
        """Tell the runner whom its agent may address, and where its words go by default (messaging.md 3.5).

        Replaces all of it; costs no write when nothing changed.
        """
        wanted = sorted((destination_values(place) for place in destinations), key=lambda cells: str(cells[0]))
        place = None if routing is None else str(routing)
        what = f"project {len(wanted)} destinations into {self.folder.inbound_db}"
        database = self._open()
        try:
            present = database.execute(
                "SELECT name, kind, display_name, address, agent_group_id FROM destinations ORDER BY name"
            ).fetchall()
            at = database.execute("SELECT address FROM session_routing").fetchall()
        except sqlite3.Error as problem:
            self._drop()
            raise translate(problem, what) from problem
        if present == wanted and at == [(place,)]:
            return
        with self._write(what) as database:
            database.execute("DELETE FROM destinations")
            database.executemany(
                "INSERT INTO destinations (name, kind, display_name, address, agent_group_id) VALUES (?, ?, ?, ?, ?)",
                wanted,
            )
            database.execute("INSERT OR REPLACE INTO session_routing (id, address) VALUES (1, ?)", (place,))

    def record_delivered(self, rows: Sequence[Delivered]) -> None:
        """Tell the runner what became of its rows; a later state replaces an earlier one."""
        self.enqueue((), rows)

    def depth(self, now: UnixMs) -> int:
        """How many rows are due and neither withdrawn nor known to be completed."""
        with self._read("count the rows of") as database:
            return int(
                database.execute(
                    "SELECT count(*) FROM messages_in WHERE withdrawn = 0 AND settled = 0 AND due_at <= ?", (now,)
                ).fetchone()[0]
            )

    def message_at(self, seq: int) -> InboundRow | None:
        """The message in that the agent knows by that number, for a reaction to it."""
        if not 0 < seq < 2**63:
            return None
        with self._read("look into") as database:
            found = database.execute(f"SELECT {INBOUND_COLUMNS} FROM messages_in WHERE seq = ?", (seq,)).fetchone()
        return None if found is None else inbound_row(found)

    def prune(self, before: UnixMs, inbound_ids: Sequence[str], watermark: Watermark | None = None) -> int:
        """Delete these inbound rows, and responses and delivery notes made before that moment; how many went.

        The newest row stays, so that no message number is ever used twice.  `watermark` tells the runner what it may
        delete of its own.
        """
        with self._write(f"prune {self.folder.inbound_db}") as database:
            last = last_seq(database)
            gone = sum(
                database.execute("DELETE FROM messages_in WHERE id = ? AND seq < ?", (id_, last)).rowcount
                for id_ in inbound_ids
            )
            for table in ("responses", "delivered"):
                gone += database.execute(f"DELETE FROM {table} WHERE at < ?", (before,)).rowcount
            if watermark is not None:
                watermark.put(database)
            return gone

    def read_outbound(
        self,
        *,
        after_seq: int = 0,
        after_change: int = 0,
        after_activity: int = 0,
        after_usage: int = 0,
        limit: int = 200,
    ) -> OutboundBatch:
        """What the runner wrote after these cursors: at most `limit` of each kind, about 8 MiB in all.

        A row that can't be decoded comes as a `BadRow`, never as an exception.

        Raises:
            RecoveryNeeded: the runner died in mid-transaction; recover, then read again (C209).
            MailboxBlocked: the runner holds the file for longer than 2 s.
            MailboxDamaged: the file is not ours (any more).
            MailboxFormat: a runner of another version wrote it.
        """

        batch = self._outbound.ask(
            partial(
                new_rows,
                after_seq=after_seq,
                after_change=after_change,
                after_activity=after_activity,
                after_usage=after_usage,
                limit=limit,
            )
        )
        if batch is None:
            return OutboundBatch(
                last_seq=after_seq, last_change=after_change, last_activity=after_activity, last_usage=after_usage
            )
        for ack in batch.acks:
            if ack.status is AckStatus.COMPLETED:
                self._settled[ack.message_id] = ack.attempt
        return batch

    def read_drafts(self) -> list[Draft]:
        """The growing texts, by turn and block, at most 100.  Raises as `read_outbound` does."""

        return self._outbound.ask(drafts) or []

    def read_state(self) -> RunnerState:
        """What the runner says of itself; nothing when it said nothing, or nothing sensible."""

        return self._outbound.ask(runner_state) or RunnerState()

    def acks_of(self, message_ids: Sequence[str], *, until: int) -> list[Ack]:
        """How far the runner is with these rows, of what it said up to change `until`; in the order it said it.

        Raises as `read_outbound` does.
        """

        return self._outbound.ask(partial(acks_of, message_ids=message_ids, until=until)) or []

    def claims(self) -> list[Ack]:
        """The rows that the runner is working on, of any epoch, the oldest claim first; at most 1,000."""

        return self._outbound.ask(claims) or []

    def check(self) -> str | None:
        """What is damaged, for the operator to read; None when the mailbox is sound.

        Raises:
            MailboxBlocked, RecoveryNeeded, MailboxFull: it can't be told now.
        """
        try:
            with self._read("check") as database:
                found = [row[0] for row in database.execute("PRAGMA quick_check(3)")]
            if found != ["ok"]:
                return f"{self.folder.inbound_db}: {'; '.join(found)}"
            answer = self._outbound.ask(lambda db: db.execute("PRAGMA quick_check(3)").fetchall())
            if answer not in (None, [(b"ok",)]):
                shown = b"; ".join(row[0] for row in answer or []).decode("utf-8", "replace")
                return f"{self.folder.outbound_db}: {shown}"
        except (MailboxDamaged, MailboxFormat) as problem:
            return problem.message
        return None

    def copy_inbound(self, target: sqlite3.Connection) -> bool:
        """Make `target` a copy of `inbound.db`, for a backup; False when there is none.

        Raises:
            MailboxError: it can't be read.
            sqlite3.Error: `target` can't be written.
        """
        if not self.folder.inbound_db.exists() or not self.folder.inbound_db.stat().st_size:
            return False
        with self._read("copy") as database:
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()  # whether it can be read at all
        self._open().backup(target)
        return True

    def copy_outbound(self, target: sqlite3.Connection) -> bool:
        """Make `target` a copy of `outbound.db` in one consistent state; False when nobody has written to it yet.

        Raises:
            MailboxError: as `OutboundReader.ask`; also when `target` can't be written.
        """

        def copy(database: sqlite3.Connection) -> bool:
            database.backup(target)
            return True

        return self._outbound.ask(copy) is True

    def newest_epoch(self) -> int:
        """Of the runners that have opened `outbound.db`, as it says itself; 0 for none.

        Raises:
            MailboxError: as `OutboundReader.ask`.
        """
        return self._outbound.ask(newest_epoch) or 0

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            if not self.folder.inbound_db.exists():
                self.folder.create()
            database = open_writer(self.folder.inbound_db)
            try:
                prepare(database, self.folder)
            except BaseException:
                database.close()
                raise
            self._database = database
        return self._database

    def _drop(self) -> None:
        if self._database is not None:
            rolled_back(self._database)
            self._database.close()
            self._database = None

    @contextmanager
    def _write(self, what: str) -> Iterator[sqlite3.Connection]:
        database = self._open()
        settled, self._settled = self._settled, {}
        try:
            with transaction(database, POINT, what):
                yield database
                for message_id, attempt in settled.items():
                    database.execute(
                        "UPDATE messages_in SET settled = 1 WHERE id = ? AND attempt <= ? AND settled = 0",
                        (message_id, attempt),
                    )
        except BaseException as problem:
            self._settled = {**settled, **self._settled}
            if isinstance(problem, MailboxError):
                self._drop()  # the next call starts from what lies on the disk
            raise

    @contextmanager
    def _read(self, what: str) -> Iterator[sqlite3.Connection]:
        database = self._open()
        try:
            yield database
        except sqlite3.Error as problem:
            self._drop()
            raise translate(problem, f"{what} {self.folder.inbound_db}") from problem

    @staticmethod
    def _put_delivered(database: sqlite3.Connection, rows: Sequence[Delivered]) -> None:
        for row in rows:
            database.execute(_DELIVERED, (row.out_seq, plain(row.state), json_names(row.platform_ids), row.at))
