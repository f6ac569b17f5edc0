"""The tables of both files (architecture 6).

The text of each statement is part of the format: the host accepts an `outbound.db` only when its tables were made by
exactly these.  A change here is a new `MAILBOX_FORMAT`, and the old text must stay readable for one version (C207).
"""

from __future__ import annotations

import sqlite3
from typing import Final

from jackfield.errors import MailboxDamaged, MailboxFormat
from jackfield.models import MAILBOX_FORMAT, AckStatus, ActivityKind, InboundKind, OutboundKind, ResponseStatus

__all__ = [
    "INBOUND",
    "LATER",
    "OUTBOUND",
    "READABLE_FORMATS",
    "ROW_LIMIT",
    "add_later",
    "check_layout",
    "create",
    "meta",
    "set_meta",
]

READABLE_FORMATS: Final = frozenset({max(1, MAILBOX_FORMAT - 1), MAILBOX_FORMAT})
ROW_LIMIT: Final = 1 << 20
"""Bytes of one row's content (architecture, section 2)."""


def _one_of(column: str, kinds: type[InboundKind | OutboundKind | AckStatus | ActivityKind | ResponseStatus]) -> str:
    allowed = ", ".join(f"'{kind.value}'" for kind in kinds)
    return f"CHECK ({column} IN ({allowed}))"


_META = "CREATE TABLE meta (key TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL) WITHOUT ROWID"

INBOUND: Final[dict[str, str]] = {
    "meta": _META,
    "messages_in": f"""CREATE TABLE messages_in (
  seq INTEGER PRIMARY KEY CHECK (seq > 0 AND seq % 2 = 0),
  id TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL {_one_of("kind", InboundKind)},
  content TEXT NOT NULL,
  at INTEGER NOT NULL,
  origin TEXT,
  due_at INTEGER NOT NULL,
  "trigger" INTEGER NOT NULL CHECK ("trigger" IN (0, 1)),
  attempt INTEGER NOT NULL CHECK (attempt > 0),
  platform_message_id TEXT,
  source_session_id TEXT,
  hops INTEGER NOT NULL,
  withdrawn INTEGER NOT NULL DEFAULT 0 CHECK (withdrawn IN (0, 1)),
  settled INTEGER NOT NULL DEFAULT 0 CHECK (settled IN (0, 1))
)""",
    # Holds only what may still be taken, so that the runner's question costs the same after a year.
    "messages_in_open": "CREATE INDEX messages_in_open ON messages_in (seq) WHERE withdrawn = 0 AND settled = 0",
    "responses": f"""CREATE TABLE responses (
  request_id TEXT PRIMARY KEY NOT NULL,
  status TEXT NOT NULL {_one_of("status", ResponseStatus)},
  body TEXT NOT NULL,
  at INTEGER NOT NULL
)""",
    "delivered": """CREATE TABLE delivered (
  out_seq INTEGER PRIMARY KEY CHECK (out_seq % 2 = 1),
  state TEXT NOT NULL,
  platform_ids TEXT NOT NULL,
  at INTEGER NOT NULL
)""",
    "destinations": """CREATE TABLE destinations (
  name TEXT PRIMARY KEY NOT NULL,
  kind TEXT NOT NULL,
  display_name TEXT NOT NULL,
  address TEXT,
  agent_group_id TEXT
) WITHOUT ROWID""",
    "session_routing": """CREATE TABLE session_routing (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  address TEXT
)""",
}

OUTBOUND: Final[dict[str, str]] = {
    "meta": _META,
    "messages_out": f"""CREATE TABLE messages_out (
  seq INTEGER PRIMARY KEY CHECK (seq > 0 AND seq % 2 = 1),
  id TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL {_one_of("kind", OutboundKind)},
  content TEXT NOT NULL,
  at INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  turn TEXT,
  destination TEXT,
  address TEXT,
  agent_group_id TEXT,
  in_reply_to TEXT,
  draft_block INTEGER
)""",
    # `change` is the host's cursor: every change of an acknowledgement takes a new one.
    "processing_ack": f"""CREATE TABLE processing_ack (
  change INTEGER PRIMARY KEY,
  message_id TEXT NOT NULL UNIQUE,
  status TEXT NOT NULL {_one_of("status", AckStatus)},
  attempt INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  at INTEGER NOT NULL,
  turn TEXT,
  error TEXT
)""",
    "session_state": """CREATE TABLE session_state (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL,
  at INTEGER NOT NULL
) WITHOUT ROWID""",
    "activity": f"""CREATE TABLE activity (
  seq INTEGER PRIMARY KEY,
  kind TEXT NOT NULL {_one_of("kind", ActivityKind)},
  target TEXT NOT NULL,
  summary TEXT NOT NULL,
  at INTEGER NOT NULL
)""",
    # Wide rows go last into a table with a row id: they would spoil a tree that is its own index.
    "draft": """CREATE TABLE draft (
  turn TEXT NOT NULL,
  block INTEGER NOT NULL,
  address TEXT NOT NULL,
  text TEXT NOT NULL,
  at INTEGER NOT NULL,
  UNIQUE (turn, block)
)""",
    "usage": """CREATE TABLE usage (
  seq INTEGER PRIMARY KEY,
  content TEXT NOT NULL,
  at INTEGER NOT NULL
)""",
}

LATER: Final = frozenset({"usage"})
"""Tables that the first files of this format did not have: a writer adds them, a reader does without."""


def _text(cell: object) -> str:
    return cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell)


def check_layout(database: sqlite3.Connection, expected: dict[str, str], name: str) -> bool:
    """Whether the tables are there; False for a file that nobody wrote to yet.

    Every one of our names must be the object that our statement makes - not a view, not a virtual table, nothing
    with triggers - and no foreign index may sit on our tables (runtime.md 3.7).

    Raises:
        MailboxDamaged: something else lies under one of our names.
        MailboxFormat: the format is not one that this version reads.
        sqlite3.Error: it can't be read at all.
    """
    found = {}
    for kind, label, table, statement in database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"):
        label, table = _text(label), _text(table)
        if label in expected or table in expected:
            found[label] = (_text(kind), table, None if statement is None else _text(statement))
    if not found:
        return False
    if "meta" in found and found["meta"][2] == expected["meta"]:
        version = meta(database, "format")
        if version not in {str(format_) for format_ in READABLE_FORMATS}:
            raise MailboxFormat(
                f"{name} has format {version!r}; this version reads {sorted(READABLE_FORMATS)}",
                fix="stop the session's runner; its next one is launched by this version",
            )
    for label, (kind, table, statement) in found.items():
        if label not in expected:
            if kind == "index" and statement is None:  # what UNIQUE and PRIMARY KEY make
                continue
            raise MailboxDamaged(f"{name} holds a {kind} {label[:80]!r} on {table!r}, which is not ours")
        if statement != expected[label]:
            raise MailboxDamaged(f"{name}: {label!r} is a {kind} of another shape than ours")
    missing = expected.keys() - found.keys() - LATER
    if missing:
        raise MailboxDamaged(f"{name} lacks {', '.join(sorted(missing))}")
    return True


def add_later(database: sqlite3.Connection, statements: dict[str, str]) -> None:
    """Make the tables that a sound file of an earlier version lacks, inside the caller's transaction."""
    found = {_text(row[0]) for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for name in LATER & statements.keys() - found:
        database.execute(statements[name])


def create(database: sqlite3.Connection, statements: dict[str, str]) -> None:
    """Make the tables, inside the caller's transaction."""
    for statement in statements.values():
        database.execute(statement)
    set_meta(database, "format", str(MAILBOX_FORMAT))


def meta(database: sqlite3.Connection, key: str) -> str | None:
    """A value of the `meta` table."""
    row = database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else _text(row[0])


def set_meta(database: sqlite3.Connection, key: str, value: str) -> None:
    """Write a value of the `meta` table, inside the caller's transaction."""
    database.execute(
        "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, value),
    )
