"""Whether the master key that lies in a home fits the secrets of a store: asked when a backup is made, and put back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Literal

from jackfield.config.home import Home
from jackfield.errors import SecretsLocked
from jackfield.host.secrets.opening import KEY_NOTE, fitting
from jackfield.store import notes

__all__ = ["KeyState", "key_state"]

KeyState = Literal["none", "fits", "missing", "other"]
"""`none`: the store holds no secret, so no key is needed."""


def key_state(database: Path, home: Home) -> KeyState:
    """Compare a closed `state.db` with the key of a home."""
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as db:
        if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'secrets'").fetchone():
            return "none"
        row = db.execute("SELECT key_id FROM secrets LIMIT 1").fetchone()
        if row is None:
            return "none"
        wanted = notes.get(db, KEY_NOTE) or str(row[0])
    try:
        fitting(home, wanted)
    except SecretsLocked:
        return "other" if home.master_key.exists() else "missing"
    return "fits"
