"""The runner's side: the only writer of `outbound.db`, and a reader of `inbound.db` (architecture 6).

Imported before the runner's first heartbeat: standard library and the lowest floors only.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from jackfield.clock import Clock, SystemClock, UnixMs
from jackfield.errors import MailboxDamaged, MailboxError
from jackfield.ids import RequestId, TurnId
from jackfield.mailbox.database import open_writer, rolled_back, transaction, translate
from jackfield.mailbox.files import open_regular, read_chunks
from jackfield.mailbox.inbound_reader import FORGOTTEN_ACKS, NEXT_DUE, PENDING, InboundReader, first_look
from jackfield.mailbox.paths import FILE_LIMIT, SessionFolder
from jackfield.mailbox.rows import (
    ACK_COLUMNS,
    ACTIVITY_COLUMNS,
    DRAFT_COLUMNS,
    INBOUND_COLUMNS,
    OUTBOUND_COLUMNS,
    USAGE_COLUMNS,
    ack_values,
    delivered_row,
    destination_row,
    draft_values,
    inbound_row,
    outbound_row,
    outbound_values,
    plain,
    usage_values,
)
from jackfield.mailbox.schema import OUTBOUND, add_later, check_layout, create, meta, set_meta
from jackfield.mailbox.watermark import Watermark
from jackfield.models import (
    Ack,
    AckStatus,
    ActivityRow,
    Address,
    Delivered,
    Destination,
    Draft,
    InboundRow,
    OutboundRow,
    Response,
    ResponseStatus,
    RunnerState,
    UsageEntry,
    dumps,
)

__all__ = ["RunnerMailbox"]

_POINT: Final = "mailbox.runner.mid_transaction"
_NO_KEYS: Final[Mapping[str, str | None]] = MappingProxyType({})
_NO_CELLS: Final[list[tuple[Any, ...]]] = []
_STATE_KEY: Final = "runner_state"
_PUT_MESSAGE: Final = (
    f"INSERT INTO messages_out ({OUTBOUND_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO NOTHING"
)
# Replacing takes the old change number away, so that each acknowledgement is seen once more, with its newest state.
_PUT_ACK: Final = f"INSERT OR REPLACE INTO processing_ack ({ACK_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_PUT_KEY: Final = (
    "INSERT INTO session_state (key, value, at) VALUES (?, ?, ?) "
    "ON CONFLICT (key) DO UPDATE SET value = excluded.value, at = excluded.at"
)
_PUT_DRAFT: Final = (
    f"INSERT INTO draft ({DRAFT_COLUMNS}) VALUES (?, ?, ?, ?, ?) ON CONFLICT (turn, block) "
    "DO UPDATE SET address = excluded.address, text = excluded.text, at = excluded.at"
)


class RunnerMailbox:
    """One session's mailbox, as its runner uses it from one worker thread.

    Opening it rolls back what a predecessor left, makes the tables, and shuts older epochs out: a runner that was
    replaced can write nothing any more (architecture 10).

    Raises:
        MailboxDamaged: `outbound.db` is no database of ours.
        MailboxFormat: one of the files has a format that this version doesn't read.
        MailboxError: a runner of a later epoch has been here.
        MailboxBlocked, MailboxFull, RecoveryNeeded: not now.
    """

    def __init__(self, folder: SessionFolder, epoch: int, clock: Clock | None = None) -> None:
        self.folder = folder
        self.epoch = epoch
        self._clock = clock or SystemClock()
        self._database: sqlite3.Connection | None = None
        self._reader = InboundReader(folder)
        self._inbound = self._reader.ask
        self._outbound_path = str(folder.outbound_db)
        self._known: tuple[list[tuple[Any, ...]], list[Destination]] = ([], [])
        self._connection()
        try:
            self._seen, self._floor = self._inbound(first_look, (0, 0))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the files.  The next call opens them again."""
        self._reader.close()
        if self._database is not None:
            rolled_back(self._database)
            self._database.close()
            self._database = None

    # What the host wrote.

    def pending(self, now: UnixMs, limit: int = 1000) -> list[InboundRow]:
        """The rows to take: due, not withdrawn, the oldest first, with either trigger.

        A row is left out while an acknowledgement of its attempt stands: `completed` and `failed` of any epoch,
        `processing` of this one.  A claim of a dead runner counts for nothing.
        """
        cells = self._inbound(lambda db: db.execute(PENDING, (now, self.epoch, limit)).fetchall(), _NO_CELLS)
        rows = [inbound_row(row) for row in cells]
        if rows:
            self._seen = max(self._seen, rows[-1].seq)
        return rows

    def withdrawn(self, message_ids: Sequence[str]) -> set[str]:
        """Those of the rows that the host has taken back."""
        sql = f"SELECT id FROM messages_in WHERE withdrawn = 1 AND id IN ({', '.join('?' * len(message_ids))})"
        return {cells[0] for cells in self._inbound(lambda db: db.execute(sql, message_ids).fetchall(), _NO_CELLS)}

    def next_due(self, now: UnixMs) -> UnixMs | None:
        """When the first row that is not due yet will be."""
        found = self._inbound(lambda db: db.execute(NEXT_DUE, (now, self.epoch)).fetchone()[0], None)
        return None if found is None else UnixMs(found)

    def response(self, request_id: RequestId) -> Response | None:
        """The host's answer to an action or a question, once it is there."""
        found = self._inbound(
            lambda db: db.execute(
                "SELECT status, body, at FROM responses WHERE request_id = ?", (request_id,)
            ).fetchone(),
            None,
        )
        if found is None:
            return None
        return Response(request_id=request_id, status=ResponseStatus(found[0]), body=found[1], at=UnixMs(found[2]))

    def destinations(self) -> list[Destination]:
        """Whom the agent may address, by name."""
        sql = "SELECT name, kind, display_name, address, agent_group_id FROM destinations ORDER BY name"
        found = self._inbound(lambda db: db.execute(sql).fetchall(), _NO_CELLS)
        if found != self._known[0]:  # they are asked for with each turn, and seldom change
            self._known = (found, [destination_row(cells) for cells in found])
        return list(self._known[1])

    def routing(self) -> Address | None:
        """Where words go that name no destination; None for a session that has no chat of its own."""
        found = self._inbound(lambda db: db.execute("SELECT address FROM session_routing").fetchone(), None)
        return None if found is None or found[0] is None else Address.parse(found[0])

    def delivered(self, out_seq: int) -> Delivered | None:
        """What became of an outbound row, as far as the host told."""
        sql = "SELECT out_seq, state, platform_ids, at FROM delivered WHERE out_seq = ?"
        found = self._inbound(lambda db: db.execute(sql, (out_seq,)).fetchone(), None)
        return None if found is None else delivered_row(found)

    def message_at(self, seq: int) -> InboundRow | OutboundRow | None:
        """The message that the agent knows by that number: even is somebody's, odd its own."""
        if not 0 < seq < 2**63:
            return None
        if seq % 2 == 0:
            sql = f"SELECT {INBOUND_COLUMNS} FROM messages_in WHERE seq = ?"
            found = self._inbound(lambda db: db.execute(sql, (seq,)).fetchone(), None)
            return None if found is None else inbound_row(found)
        found = self._own(f"SELECT {OUTBOUND_COLUMNS} FROM messages_out WHERE seq = ?", seq)
        return outbound_row(found[0]) if found else None

    # What the runner writes.

    def claim(
        self, rows: Sequence[InboundRow], turn: TurnId, *, before_commit: Callable[[], None] = lambda: None
    ) -> None:
        """Say durably that this turn works on these rows; `before_commit` is called when only the disk is left."""
        now = self._clock.now()
        self.write(
            acks=[
                Ack(
                    message_id=row.id,
                    status=AckStatus.PROCESSING,
                    attempt=row.attempt,
                    epoch=self.epoch,
                    at=now,
                    turn=turn,
                )
                for row in rows
            ],
            before_commit=before_commit,
        )

    def write(
        self,
        *,
        messages: Sequence[OutboundRow] = (),
        acks: Sequence[Ack] = (),
        state: RunnerState | None = None,
        keys: Mapping[str, str | None] = _NO_KEYS,
        activity: Sequence[ActivityRow] = (),
        usage: Sequence[UsageEntry] = (),
        end_drafts_of: TurnId | None = None,
        before_commit: Callable[[], None] = lambda: None,
    ) -> list[int]:
        """Write all of it in one durable transaction; the numbers of `messages`.

        Message numbers are odd and above every one that the agent has seen.  A message whose id is there already is not
        written again, and keeps its number.  A key with None is removed.

        Raises:
            MalformedData: a row is over 1 MiB, or has not exactly one addressee.
            MailboxError: a later epoch has taken over.
            MailboxBlocked: a reader held the file for more than 2 s.
            MailboxFull, MailboxDamaged: nothing was written.
        """
        if not (messages or acks or state or keys or activity or usage or end_drafts_of):
            return []
        values = [outbound_values(row, 0) for row in messages]
        ack_cells = [ack_values(ack, 0) for ack in acks]
        now = self._clock.now()
        with self._write(f"write to {self._outbound_path}") as database:
            seqs = self._put_messages(database, values)
            if ack_cells:
                change = self._last(database, "processing_ack", "change")
                for number, cells in enumerate(ack_cells, change + 1):
                    database.execute(_PUT_ACK, (number, *cells[1:]))
            if activity:
                last = self._last(database, "activity", "seq")
                database.executemany(
                    f"INSERT INTO activity ({ACTIVITY_COLUMNS}) VALUES (?, ?, ?, ?, ?)",
                    [
                        (number, row.kind.value, plain(row.target), plain(row.summary), row.at)
                        for number, row in enumerate(activity, last + 1)
                    ],
                )
            if usage:
                last = self._last(database, "usage", "seq")
                database.executemany(
                    f"INSERT INTO usage ({USAGE_COLUMNS}) VALUES (?, ?, ?)",
                    [usage_values(entry, number) for number, entry in enumerate(usage, last + 1)],
                )
            if state is not None:
                database.execute(_PUT_KEY, (_STATE_KEY, dumps(state), now))
            for name, value in keys.items():
                if value is None:
                    database.execute("DELETE FROM session_state WHERE key = ?", (name,))
                else:
                    database.execute(_PUT_KEY, (name, plain(value), now))
            if end_drafts_of is not None:
                database.execute("DELETE FROM draft WHERE turn = ?", (end_drafts_of,))
            before_commit()
            return seqs

    def put_draft(self, draft: Draft) -> None:
        """Show text that still grows, in place of what this block showed before."""
        cells = draft_values(draft)
        with self._write(f"put a draft into {self.folder.outbound_db}") as database:
            database.execute(_PUT_DRAFT, cells)

    def prune(self, limit: int = 1000) -> int:
        """Delete own rows that the host let go of, at most `limit` of each kind; how many.  Repeat while it finds any.

        An acknowledgement stays as long as its message does: it is what keeps that from being taken again.  The newest
        row of each table stays, so that no number is ever used twice.

        Raises:
            MailboxError: as `write` does.
        """
        mark = self._inbound(Watermark.read, None)
        if mark is None:
            return 0
        doomed = {
            "processing_ack": self._inbound(
                lambda db: db.execute(FORGOTTEN_ACKS, (mark.change, mark.before, limit)).fetchall(), _NO_CELLS
            )
        }
        for table, upto in (("messages_out", mark.seq), ("activity", mark.activity), ("usage", mark.usage)):
            sql = f"SELECT seq FROM {table} WHERE seq <= ? AND at < ? ORDER BY seq LIMIT ?"
            doomed[table] = self._own(sql, upto, mark.before, limit)
        if not any(doomed.values()):
            return 0
        keys = {"processing_ack": "change"}
        with self._write(f"prune {self.folder.outbound_db}") as database:
            gone = 0
            for table, numbers in doomed.items():
                key = keys.get(table, "seq")
                gone += database.executemany(
                    f"DELETE FROM {table} WHERE {key} = ? AND {key} < (SELECT max({key}) FROM {table})", numbers
                ).rowcount
            return gone

    def key(self, name: str) -> str | None:
        """A value that this session's runners keep for themselves, like `continuation:<provider>`."""
        found = self._own("SELECT value FROM session_state WHERE key = ?", name)
        return str(found[0][0]) if found else None

    def keys(self, prefix: str) -> list[str]:
        """The names under which such values lie that begin with that, in order."""
        found = self._own("SELECT key FROM session_state WHERE substr(key, 1, ?) = ? ORDER BY key", len(prefix), prefix)
        return [str(cells[0]) for cells in found]

    def sent_in(self, turn: TurnId) -> list[OutboundRow]:
        """What that turn has written so far, in order."""
        found = self._own(f"SELECT {OUTBOUND_COLUMNS} FROM messages_out WHERE turn = ? ORDER BY seq", turn)
        return [outbound_row(cells) for cells in found]

    def broken_turn(self) -> TurnId | None:
        """The last turn of an earlier runner whose claims never ended: it died in the middle."""
        found = self._own(
            "SELECT turn FROM processing_ack WHERE status = 'processing' AND epoch < ? AND turn IS NOT NULL "
            "ORDER BY change DESC LIMIT 1",
            self.epoch,
        )
        return TurnId(str(found[0][0])) if found else None

    def copy_to_outbox(self, row_id: str, source: Path, name: str, limit: int = FILE_LIMIT) -> int:
        """Copy a file so that the host can send it with that row; its size in bytes.

        Raises:
            UnsafePath: `name` is no plain name, or `source` no regular file that can be read.
            MalformedData: it has more than `limit` bytes.
            MailboxFull: the disk is full.
        """
        with open_regular(source) as file:
            return self.folder.store_outbox(row_id, name, read_chunks(file), limit)

    def touch_heartbeat(self) -> None:
        """Show that the runner lives; the host looks at the file's time only."""
        try:
            os.utime(self.folder.heartbeat, follow_symlinks=False)
        except FileNotFoundError:
            os.close(os.open(self.folder.heartbeat, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))

    def _connection(self) -> sqlite3.Connection:
        if self._database is None:
            database = open_writer(self.folder.outbound_db)
            try:
                self._prepare(database)
            except BaseException:
                database.close()
                raise
            self._database = database
        return self._database

    def _prepare(self, database: sqlite3.Connection) -> None:
        path = self.folder.outbound_db
        with transaction(database, _POINT, f"prepare {path}"):
            if not check_layout(database, OUTBOUND, str(path)):
                create(database, OUTBOUND)
            else:
                add_later(database, OUTBOUND)
            latest = int(meta(database, "epoch") or 0)
            self._not_after(latest)
            if latest < self.epoch:
                set_meta(database, "epoch", str(self.epoch))
                database.execute("DELETE FROM draft")  # of turns that nobody will end any more

    def _not_after(self, latest: int) -> None:
        if latest > self.epoch:
            raise MailboxError(
                f"{self.folder.outbound_db} belongs to the runner of epoch {latest}; this is {self.epoch}",
                fix="this runner was replaced and must end",
            )

    @contextmanager
    def _write(self, what: str) -> Iterator[sqlite3.Connection]:
        database = self._connection()
        try:
            with transaction(database, _POINT, what):
                self._not_after(int(meta(database, "epoch") or 0))
                yield database
        except MailboxError:
            self.close()  # the next call starts from what lies on the disk
            raise

    def _own(self, sql: str, *parameters: object) -> list[tuple[object, ...]]:
        try:
            return self._connection().execute(sql, parameters).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as problem:
            self.close()
            if isinstance(problem, UnicodeDecodeError):
                raise MailboxDamaged(f"{self.folder.outbound_db} holds text that is none") from problem
            raise translate(problem, f"read {self.folder.outbound_db}") from problem

    def _put_messages(self, database: sqlite3.Connection, values: Sequence[tuple[object, ...]]) -> list[int]:
        if not values:
            return []
        last = max(self._seen, self._last(database, "messages_out", "seq"))
        last -= 1 - last % 2  # the last odd number at or below
        seqs = []
        for cells in values:
            if database.execute(_PUT_MESSAGE, (last + 2, *cells[1:])).rowcount:
                last += 2
                seqs.append(last)
            else:
                found = database.execute("SELECT seq FROM messages_out WHERE id = ?", (cells[1],)).fetchone()
                seqs.append(int(found[0]))
        return seqs

    def _last(self, database: sqlite3.Connection, table: str, column: str) -> int:
        found = database.execute(f"SELECT max({column}) FROM {table}").fetchone()[0]
        return max(self._floor, int(found or 0))
