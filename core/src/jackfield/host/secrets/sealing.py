"""Sealing and opening single values: AES-256-GCM under a key that is derived from the master key.

A sealed value is 12 random bytes (the nonce), the ciphertext and 16 bytes of tag.  What the row says about itself is
authenticated with it, so that no value can be moved to another row, name, scope or kind.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jackfield.store.secrets import SealedSecret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["KEY_BYTES", "Sealer", "Unreadable", "key_id"]

KEY_BYTES = 32
NONCE_BYTES = 12
FORMAT = 1
# What keys are derived for is part of the format: never change these words.
_FOR_SECRETS = b"jackfield.secrets.v1"
_FOR_KEY_ID = b"jackfield.key-id.v1"


class Unreadable(Exception):
    """It was sealed with another key, or for another row, or is damaged."""


def _derived(master: bytes, purpose: bytes, length: int) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=SHA256(), length=length, salt=None, info=purpose).derive(master)


def key_id(master: bytes) -> str:
    """By which a master key is known without being told: 16 hex digits, the same for ever."""
    return _derived(master, _FOR_KEY_ID, 8).hex()


@dataclass(frozen=True, slots=True)
class Sealer:
    """One master key at work."""

    key_id: str
    _cipher: AESGCM

    @classmethod
    def of(cls, master: bytes) -> Sealer:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return cls(key_id(master), AESGCM(_derived(master, _FOR_SECRETS, KEY_BYTES)))

    def seal(self, row: SealedSecret, value: str) -> bytes:
        """The value for that row; another text each time."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, value.encode(), _about(row))

    def open(self, row: SealedSecret) -> str:
        """The row's value.

        Raises:
            Unreadable: it can't be had with this key.
        """
        from cryptography.exceptions import InvalidTag

        nonce, sealed = row.sealed[:NONCE_BYTES], row.sealed[NONCE_BYTES:]
        try:
            return self._cipher.decrypt(nonce, sealed, _about(row)).decode()
        except (InvalidTag, ValueError) as problem:  # ValueError: cut so short that there is no tag or nonce
            raise Unreadable(row.id) from problem


def _about(row: SealedSecret) -> bytes:
    return json.dumps(["jackfield.secret", FORMAT, row.id, row.name, row.agent_group_id, row.kind.value]).encode()
