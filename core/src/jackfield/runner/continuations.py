"""What a provider needs to take up its conversation again, in the mailbox."""

from __future__ import annotations

import logging

from jackfield.api import Continuation
from jackfield.errors import MalformedData, ProviderError
from jackfield.mailbox import RunnerMailbox
from jackfield.models import dumps, loads
from jackfield.runner.mailroom import MailRoom
from jackfield.runner.recovery import FAILING, WHY, Failing, Reason, anew_after, counts

__all__ = ["Continuations"]

_LOG = logging.getLogger(__name__)
_PREFIX = "continuation:"
_ANEW = "anew"
"""In the mailbox: why the next conversation is a new one that begins with a summary, until that has worked."""


class Continuations:
    """By which the provider finds its conversation again: kept for the next turn and the next runner.

    A session has one conversation.  One that another provider led is given up when this one takes over.
    """

    def __init__(self, mail: MailRoom, provider: str) -> None:
        self.key = f"{_PREFIX}{provider.lower()}"
        """Its name in the mailbox."""
        self.lost: Reason | None = None
        """Why the conversation had to begin anew, until the agent was told."""
        self._mail = mail
        self._held: Continuation | None = None
        self._others: tuple[str, ...] = ()
        """Those of other providers."""
        self._failing: Failing | None = None
        self._left = False
        """Whether the mailbox says what a turn that ends well makes untrue."""

    async def load(self) -> Continuation | None:
        """The one that an earlier turn or runner left; None where a new conversation is to begin."""

        def look(mailbox: RunnerMailbox) -> tuple[str | None, list[str], str | None, str | None]:
            return mailbox.key(self.key), mailbox.keys(_PREFIX), mailbox.key(_ANEW), mailbox.key(FAILING)

        text, known, anew, failing = await self._mail.run(look)
        self._others = tuple(name for name in known if name != self.key)
        self._failing = self._failing or Failing.loads(failing)
        self._left = bool(self._others or anew or failing)
        reason: Reason | None = "provider" if self._others else _reason(anew)
        if reason is not None:
            self.lost = reason
            if text is not None:
                await self._mail.run(lambda mailbox: mailbox.write(keys={self.key: None}))
            _LOG.info("a new conversation begins with a summary: %s", WHY[reason])
            self._held = None
        else:
            self._held = _read(text)
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

    async def forget(self, reason: str, why: Reason = "lost") -> None:
        """A new conversation begins instead: forget this one, once, and tell the agent (C124)."""
        _LOG.warning("%s (%s)", WHY[why], reason or "no reason given")
        self.lost = why
        self._held = None
        self._left = True
        await self._mail.run(lambda mailbox: mailbox.write(keys={self.key: None, _ANEW: why}))

    async def clear(self) -> dict[str, str | None]:
        """A new conversation is wanted: nothing is held, and nothing counts as lost.  What to remove from the
        mailbox."""
        self._held = self.lost = self._failing = None
        self._left = False
        known = await self._mail.run(lambda mailbox: mailbox.keys(_PREFIX))
        self._others = ()
        return dict.fromkeys((self.key, *known, _ANEW, FAILING))

    def ended_well(self) -> dict[str, str | None]:
        """What of the mailbox a turn that ended well makes untrue, to be removed with it."""
        if not self._left:
            return {}
        gone = dict[str, str | None].fromkeys((*self._others, _ANEW, FAILING))
        self._left, self._others, self._failing = False, (), None
        return gone

    def failed(self, error: ProviderError) -> tuple[dict[str, str | None], bool]:
        """What to write down about a turn that failed, and whether the next one begins a new conversation."""
        if not counts(error.kind, helps=error.fresh_session_helps):
            return {}, False
        self._failing = Failing.after(self._failing, error.kind)
        self._left = True
        keys: dict[str, str | None] = {FAILING: self._failing.dumps()}
        anew = anew_after(error.kind, self._failing, helps=error.fresh_session_helps)
        if anew is not None:
            self._held = None
            keys |= {self.key: None, _ANEW: anew}
        return keys, anew is not None

    def begins_anew(self, error: ProviderError) -> Reason | None:
        """Why this failure is worth a new conversation at once, in the same turn; then it counts."""
        if error.kind in ("engine_crash", "protocol"):
            return None  # the host spaces these
        failing = Failing.after(self._failing, error.kind)
        anew = anew_after(error.kind, failing, helps=error.fresh_session_helps)
        if anew is not None:
            self._failing = failing
        return anew

    def _post(self, text: str) -> None:
        self._mail.post("the continuation", lambda mailbox: mailbox.write(keys={self.key: text}))


def _reason(text: str | None) -> Reason | None:
    return next((reason for reason in WHY if reason == text), None)


def _read(text: str | None) -> Continuation | None:
    if text is None:
        return None
    try:
        return loads(Continuation, text)
    except MalformedData as problem:
        _LOG.error("the stored continuation can't be read, a new conversation begins: %s", problem)
        return None
