"""Finding the master key that the store needs, also after a rotation that was killed, and opening rows with it."""

from __future__ import annotations

from collections.abc import Collection

from jackfield.config.home import Home
from jackfield.errors import SecretsLocked
from jackfield.host.secrets import keyfile
from jackfield.host.secrets.sealing import Sealer, Unreadable, key_id
from jackfield.store.secrets import SealedSecret

__all__ = ["KEY_NOTE", "fitting", "opened", "settle"]

KEY_NOTE = "master_key"
"""Where the store keeps the id of the key that it was last written with."""


def fitting(home: Home, wanted: str) -> Sealer:
    """Of the key in place and those that a rotation left, the one that the store was last written with.

    Raises:
        SecretsLocked: none is it, or the one in place can't be used.
    """
    place = home.master_key
    master = keyfile.read(place)
    if master is not None and key_id(master) == wanted:
        return Sealer.of(master)
    for path in keyfile.leftovers(home):
        other = keyfile.read(path)
        if other is not None and key_id(other) == wanted:
            return Sealer.of(other)
    what = f"{place} is missing" if master is None else f"{place} is not the key that the stored secrets need"
    found = "" if master is None else f" (they need {wanted}, this is {key_id(master)})"
    raise SecretsLocked(
        f"{what}{found}; nothing was changed",
        fix="put the right key back, from a backup of this home; or, if it is lost, go on without the secrets that "
        "it sealed: `jackfield secret accept-key`",
    )


def opened(sealer: Sealer | None, row: SealedSecret) -> str | None:
    """The row's value; None when this key can't read it."""
    if sealer is None or row.key_id != sealer.key_id:
        return None
    try:
        return sealer.open(row)
    except Unreadable:
        return None


def settle(home: Home, wanted: str, needed: Collection[str]) -> bool:
    """Bring the files into order after a rotation that was killed: the key that counts takes its place.

    A key that a row still needs (`needed`, by id) is never removed.  Whether there was anything to do.
    """
    if not keyfile.leftovers(home):
        return False
    master = keyfile.read(home.master_key)
    if master is None or key_id(master) != wanted:
        following = keyfile.read(keyfile.next_of(home))
        if following is not None and key_id(following) == wanted:
            keyfile.finish(home)
        else:
            keyfile.previous_of(home).replace(home.master_key)
    others = [keyfile.read(path) for path in keyfile.leftovers(home)]
    if not any(other is not None and key_id(other) in set(needed) - {wanted} for other in others):
        keyfile.tidy(home)
    return True
