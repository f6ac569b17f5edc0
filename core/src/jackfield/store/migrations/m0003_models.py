"""What models were used for, what is wrong with reaching them, and how far each mailbox was read of it."""

from __future__ import annotations

__all__ = ["STATEMENTS"]

_COUNTS = ("requests", "input", "cache_read", "cache_write", "output", "reasoning")
_COLUMNS = ",\n        ".join(f"{name} INTEGER NOT NULL" for name in _COUNTS)

STATEMENTS = (
    # seq: the number in the runner's own file, by which a row is taken once; NULL for what a gateway counted.
    # cost: US dollars, NULL when the price is not known.
    f"""CREATE TABLE usage (
        ord INTEGER PRIMARY KEY AUTOINCREMENT,
        at INTEGER NOT NULL,
        session_id TEXT NOT NULL,
        agent_group_id TEXT NOT NULL,
        provider TEXT NOT NULL,
        model TEXT NOT NULL,
        source TEXT NOT NULL CHECK (source IN ('gateway', 'provider')),
        {_COLUMNS},
        cost REAL,
        seq INTEGER
    ) STRICT""",
    "CREATE UNIQUE INDEX usage_once ON usage (session_id, seq, at) WHERE seq IS NOT NULL",
    "CREATE INDEX usage_by_time ON usage (at)",
    "CREATE INDEX usage_by_group ON usage (agent_group_id, at)",
    # Older rows summed up.  day: its midnight in the host's zone; unpriced: requests without a price.
    f"""CREATE TABLE usage_days (
        day INTEGER NOT NULL,
        agent_group_id TEXT NOT NULL,
        provider TEXT NOT NULL,
        model TEXT NOT NULL,
        source TEXT NOT NULL,
        {_COLUMNS},
        cost REAL NOT NULL,
        unpriced INTEGER NOT NULL,
        PRIMARY KEY (day, agent_group_id, provider, model, source)
    ) STRICT, WITHOUT ROWID""",
    "ALTER TABLE sessions ADD COLUMN usage_cursor INTEGER NOT NULL DEFAULT 0",
    # What only an owner can mend.  told_at: when one was written to; NULL while nobody could be.
    """CREATE TABLE alerts (
        key TEXT PRIMARY KEY,
        subject TEXT NOT NULL,
        text TEXT NOT NULL,
        raised_at INTEGER NOT NULL,
        told_at INTEGER
    ) STRICT, WITHOUT ROWID""",
)
