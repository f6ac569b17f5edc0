"""One listener for each credential in this process (C236).

Two channels that listen with one token rob each other of messages, or both answer each of them.
"""

from __future__ import annotations

import hashlib
from weakref import WeakValueDictionary

from jackfield.errors import ConfigError

__all__ = ["Claim", "claim"]


class Claim:
    """That a channel listens with a credential: until `release`, or until nobody holds it any more."""

    def __init__(self, instance: str, key: str) -> None:
        self.instance = instance
        self._key = key

    def release(self) -> None:
        """Let others have it.  Doing it twice is fine."""
        if _HELD.get(self._key) is self:
            del _HELD[self._key]


_HELD: WeakValueDictionary[str, Claim] = WeakValueDictionary()
"""By a digest of what is claimed, which may be a secret."""


def claim(channel_type: str, instance: str, credential: str, *, fix: str, what: str = "token") -> Claim:
    """Keep the claim while the channel listens; `what` says what is claimed.

    Raises:
        ConfigError: another instance of this type listens with that credential; with your `fix`.
    """
    key = hashlib.sha256(f"{channel_type}\0{credential}".encode()).hexdigest()
    held = _HELD.get(key)
    if held is not None:
        raise ConfigError(f"channel {held.instance} runs with the same {what}", fix=fix)
    found = _HELD[key] = Claim(instance, key)
    return found
