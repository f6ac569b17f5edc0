"""What a provider needs to take up its conversation again, in the mailbox."""

from __future__ import annotations

import logging

from jackfield.api import Continuation
from jackfield.errors import MalformedData
from jackfield.models import dumps, loads
from jackfield.runner.mailroom import MailRoom

__all__ = ["Continuations"]

_LOG = logging.getLogger(__name__)


class Continuations:
    """By which the provider finds its conversation again: kept for the next turn and the next runner."""

    def __init__(self, mail: MailRoom, provider: str) -> None:
        self.key = f"continuation:{provider.lower()}"
        """Its name in the mailbox."""
        self.lost: str | None = None
        """Why the conversation had to begin anew, until the agent was told."""
        self._mail = mail
        self._held: Continuation | None = None

    async def load(self) -> Continuation | None:
        """The one that an earlier turn or runner left."""
        self._held = _read(await self._mail.run(lambda mailbox: mailbox.key(self.key)))
        return self._held

    def changed(self, continuation: Continuation) -> str | None:
        """Store it at once when a crash would lose the conversation; else give it back, to be stored with the turn."""
        before, self._held = self._held, continuation
        text = dumps(continuation)
        if before is not None and (before.token, before.engine_version) == (
            continuation.token,
            continuation.engine_version,
        ):
            return text if before != continuation else None
        self._post(text)
        return None

    def keep(self, continuation: Continuation) -> None:
        """Store it at once, whatever has changed: no turn runs that would."""
        text = self.changed(continuation)
        if text is not None:
            self._post(text)

    async def forget(self, reason: str) -> None:
        """The engine does not know the conversation any more: forget it, once, and tell the agent (C124)."""
        _LOG.warning("the provider lost the conversation: %s", reason or "no reason given")
        self.lost = reason
        self._held = None
        await self._mail.run(lambda mailbox: mailbox.write(keys={self.key: None}))

    def clear(self) -> None:
        """A new conversation is wanted: nothing is held, and nothing counts as lost."""
        self._held = self.lost = None

    def _post(self, text: str) -> None:
        self._mail.post("the continuation", lambda mailbox: mailbox.write(keys={self.key: text}))


def _read(text: str | None) -> Continuation | None:
    if text is None:
        return None
    try:
        return loads(Continuation, text)
    except MalformedData as problem:
        _LOG.error("the stored continuation can't be read, a new conversation begins: %s", problem)
        return None
