"""Secrets: sealed in the store, opened by the host alone, handed to channels and runners (architecture 8).

::

    sealing      one value, sealed and opened: AES-256-GCM, keys derived from the master key
    keyfile      `master.key`: read, made, replaced
    opening      the key that fits, also after a rotation that was killed
    held         who gets which secret: the one rule, pure
    vault        the host's own: opens the store's secrets, changes them, replaces the key
    reading      the same without a host, for commands: reads and never writes
    importing    `.env` files and the old `secrets.toml`
    masking      texts of messages, on their way in and out
"""

from __future__ import annotations

__all__: list[str] = []
