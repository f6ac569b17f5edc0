"""Reading `inbound.db` as a runner does, where a VM's file sharing may lie between it and the host."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import Final, TypeVar

from jackfield.errors import MailboxDamaged, MailboxFormat
from jackfield.mailbox.database import Patience, open_reader, refuse_special_file, translate
from jackfield.mailbox.paths import SessionFolder
from jackfield.mailbox.rows import INBOUND_COLUMNS
from jackfield.mailbox.schema import READABLE_FORMATS, meta
from jackfield.models import AckStatus

__all__ = ["FORGOTTEN_ACKS", "NEXT_DUE", "PENDING", "InboundReader", "first_look"]

T = TypeVar("T")

_UNANSWERED: Final = f"""
FROM messages_in AS m WHERE withdrawn = 0 AND settled = 0 AND due_at {{when}} ? AND NOT EXISTS (
  SELECT 1 FROM out.processing_ack AS a WHERE a.message_id = m.id AND a.attempt >= m.attempt
  AND (a.status IN ('{AckStatus.COMPLETED}', '{AckStatus.FAILED}')
       OR a.status = '{AckStatus.PROCESSING}' AND a.epoch = ?)
)"""
PENDING: Final = (
    f"SELECT {', '.join('m.' + column.strip() for column in INBOUND_COLUMNS.split(','))} "
    f"{_UNANSWERED.format(when='<=')} ORDER BY m.seq LIMIT ?"
)
NEXT_DUE: Final = f"SELECT min(m.due_at) {_UNANSWERED.format(when='>')}"
FORGOTTEN_ACKS: Final = """
SELECT change FROM out.processing_ack AS a WHERE change <= ? AND at < ?
AND NOT EXISTS (SELECT 1 FROM messages_in AS m WHERE m.id = a.message_id) ORDER BY change LIMIT ?"""


class InboundReader:
    """Asks questions of one `inbound.db`, with the runner's own file attached as `out`, both read-only."""

    def __init__(self, folder: SessionFolder) -> None:
        self._folder = folder
        self._path = str(folder.inbound_db)
        self._database: sqlite3.Connection | None = None

    def ask(self, question: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        """The answer; `nothing` while the file has no tables.

        Raises:
            MailboxFormat: the host made it in a format that this version doesn't read.
            MailboxBlocked, MailboxDamaged: it can't be read.
        """
        patience = Patience()
        while True:
            try:
                database = self._connection()
                return nothing if database is None else question(database)
            except sqlite3.Error as problem:
                if patience.try_again(problem):
                    continue
                self.close()
                raise translate(problem, f"read {self._folder.inbound_db}") from problem

    def close(self) -> None:
        """Let go of the files.  The next question opens them again."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _connection(self) -> sqlite3.Connection | None:
        if self._database is not None:
            # Where a VM's file sharing lies between, only opening a file makes the kernel ask for what is new; a
            # connection that is kept would miss messages (messaging.md 3.2).  No lock is held now that this could drop.
            try:
                os.close(os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
            except OSError as problem:
                self.close()
                raise MailboxDamaged(f"could not open {self._path}: {problem.strerror}") from problem
            return self._database
        refuse_special_file(self._folder.inbound_db)
        database = open_reader(self._folder.inbound_db)
        try:
            if not self._ready(database):
                database.close()
                return None
            database.execute("ATTACH ? AS out", (f"{self._folder.outbound_db.as_uri()}?mode=ro",))
        except BaseException:
            database.close()
            raise
        self._database = database
        return database

    def _ready(self, database: sqlite3.Connection) -> bool:
        """Whether the host has made its tables, in a format that we read."""
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
            return False
        version = meta(database, "format")
        if version not in {str(format_) for format_ in READABLE_FORMATS}:
            raise MailboxFormat(
                f"{self._folder.inbound_db} has format {version!r}; this runner reads {sorted(READABLE_FORMATS)}"
            )
        return True


def first_look(database: sqlite3.Connection) -> tuple[int, int]:
    """The newest message's number, and the number above which this session's begin."""
    last = database.execute("SELECT max(seq) FROM messages_in").fetchone()[0]
    return int(last or 0), int(meta(database, "floor") or 0)
