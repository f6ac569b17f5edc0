"""Secrets for a command, which has no vault: the running host's store is read beside it, and never written.

No operation of the host gives a value away, not even to a command of the same user; who may read the home's files
may open its secrets as well.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from typing import Literal

from jackfield.config.home import Home
from jackfield.errors import JackfieldError, SecretsLocked
from jackfield.host.secrets.held import HeldSecret, from_environment, global_one, variable
from jackfield.host.secrets.opening import KEY_NOTE, fitting, opened
from jackfield.redaction import REDACTOR
from jackfield.store import notes, secrets
from jackfield.store.faults import translated
from jackfield.store.opening import connect_reader

__all__ = ["find_secret", "learn_secrets", "secret_source", "stored_secret"]


def find_secret(home: Home, name: str) -> str | None:
    """A channel's secret: from the environment, else the store's global one of that name; None when there is none.

    Raises:
        SecretsLocked: it would have to come from the store, and the master key does not fit.
        StoreError: the store can't be read.
    """
    found = os.environ.get(variable(name))
    if found is None:
        found = stored_secret(home, name)
    if found is not None:
        REDACTOR.register(found)
    return found


def stored_secret(home: Home, name: str) -> str | None:
    """The store's, whatever the environment says.

    Raises:
        SecretsLocked, StoreError: as `find_secret`.
    """
    one = global_one(_held(home), name)
    return one.value if one is not None else None


def secret_source(home: Home, name: str) -> Literal["environment", "store"] | None:
    """Where the secret comes from; None when there is none.

    Raises:
        SecretsLocked, StoreError: as `find_secret`.
    """
    if variable(name) in os.environ:
        return "environment"
    return "store" if find_secret(home, name) is not None else None


def learn_secrets(home: Home) -> None:
    """Make the redactor know all secrets there are, as far as they can be read: before something is written down."""
    REDACTOR.register(*from_environment())
    with suppress(JackfieldError, OSError):
        REDACTOR.register(*(one.value for one in _held(home) if one.value))


def _held(home: Home) -> list[HeldSecret]:
    try:
        return _held_now(home)
    except SecretsLocked:
        return _held_now(home)  # the key may have been replaced between the look at the store and the look at the file


def _held_now(home: Home) -> list[HeldSecret]:
    if not home.state_db.exists():
        return []
    try:
        with closing(connect_reader(home.state_db)) as db:
            db.execute("BEGIN")  # one view of both
            rows, key = secrets.all_secrets(db), notes.get(db, KEY_NOTE)
    except sqlite3.OperationalError as problem:
        if "no such table" in str(problem):
            return []  # nothing was ever stored by a version that has secrets
        raise translated(problem, home.state_db) from problem
    if not rows:
        return []
    sealer = fitting(home, key or rows[0].key_id)
    return [HeldSecret(row, opened(sealer, row), frozenset()) for row in rows]
