"""The `inbound.db` as the host makes it, and where its message numbers go on."""

from __future__ import annotations

import sqlite3
from typing import Final

from jackfield.mailbox.database import open_writer, transaction, translate
from jackfield.mailbox.paths import SessionFolder
from jackfield.mailbox.schema import INBOUND, check_layout, create, meta, set_meta

__all__ = ["POINT", "begin_above", "last_seq", "prepare"]

POINT: Final = "mailbox.host.mid_transaction"


def begin_above(folder: SessionFolder, floor: int) -> None:
    """Make a fresh `inbound.db` whose message numbers, and its runner's, start above `floor`."""
    database = open_writer(folder.inbound_db)
    try:
        prepare(database, folder)
        with transaction(database, POINT, f"prepare {folder.inbound_db}"):
            set_meta(database, "floor", str(floor))
    finally:
        database.close()


def prepare(database: sqlite3.Connection, folder: SessionFolder) -> None:
    """Make the tables unless they are there.

    Raises:
        MailboxDamaged, MailboxFormat: what is there is not ours, or of another version.
    """
    name = str(folder.inbound_db)
    try:
        if check_layout(database, INBOUND, name):
            return
    except sqlite3.Error as problem:
        raise translate(problem, f"read {name}") from problem
    with transaction(database, POINT, f"make the tables of {name}"):
        if not check_layout(database, INBOUND, name):
            create(database, INBOUND)


def last_seq(database: sqlite3.Connection) -> int:
    """The highest message number so far; new ones, which are even, lie above it."""
    found = database.execute("SELECT max(seq) FROM messages_in").fetchone()[0]
    if found is not None:
        return int(found)
    floor = int(meta(database, "floor") or 0)
    return floor + floor % 2
