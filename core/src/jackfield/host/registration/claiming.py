"""The operator becomes an owner from a chat, by a code that only they have seen (messaging.md 13.6, mended).

`jackfield owner claim` shows a code once; whoever writes `/claim CODE` in any chat of any channel is an owner then.
Nobody becomes one by being first.  A wrong code changes nothing for anybody but its sender, whose tries are limited.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import sqlite3
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable

from jackfield.api import SendPath
from jackfield.clock import UnixMs
from jackfield.host.hub import Hub
from jackfield.ids import UserId, user_id
from jackfield.models import MessageReceived, OutMessage, Role, RoleName, Trust
from jackfield.store import claims, dms, people

__all__ = ["CLAIM_MINUTES", "Claiming", "digest_of", "is_claim", "new_code", "unowned"]

log = logging.getLogger(__name__)

TERMINAL = "terminal"
CLAIM_MINUTES = 10
"""How long a code can be used."""
CODE_LENGTH = 10
"""Characters, five bits each."""
TRIES = 5
"""Wrong codes that one sender may try within `TRY_WINDOW` seconds; after that they get no answer."""
TRY_WINDOW = 600.0
SENDERS = 1000
_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # no 0, 1, i, l, o: it is copied by eye

WRONG = "This code is not valid. `jackfield owner claim` shows a new one."
UNSURE = "Nobody vouches for who you are on this channel, so nothing can be claimed here."


def new_code() -> str:
    """A fresh code, as it is shown: two halves of five characters."""
    text = "".join(secrets.choice(_ALPHABET) for _ in range(CODE_LENGTH))
    return f"{text[:5]}-{text[5:]}"


def digest_of(code: str) -> str:
    """What is kept of a code; how somebody wrote it (capitals, hyphens, spaces) makes no difference."""
    bare = "".join(character for character in code.lower() if character.isalnum())
    return hashlib.sha256(b"jackfield owner claim\0" + bare.encode()).hexdigest()


def is_claim(text: str) -> bool:
    """Whether a text is a claim: then no agent ever sees it."""
    return _words(text)[:1] == ["/claim"]


def _words(text: str) -> list[str]:
    """The words of a command, without the mention of the bot that some platforms want before it."""
    if "/" not in text[:200]:
        return []
    words = text[:500].split()
    if words and words[0].startswith(("@", "<@")):
        words = words[1:]
    return [words[0].lower(), *words[1:]] if words else []


async def unowned(hub: Hub) -> list[str]:
    """The channels beyond the terminal, when none of their people is an owner: nobody could decide anything there."""
    names = [name for name, one in hub.configuration.channels.items() if one.enabled and one.type != TERMINAL]
    roles = await hub.store.read(people.all_roles) if names else []
    owners = {role.user_id.partition(":")[0] for role in roles if role.role is RoleName.OWNER}
    return [] if owners - {TERMINAL} else sorted(names)


class Claiming:
    def __init__(self, hub: Hub, *, say: Callable[..., Awaitable[None]]) -> None:
        """`say` sends the host's own words."""
        self._hub = hub
        self._say = say
        self._tries: OrderedDict[str, deque[float]] = OrderedDict()

    async def claimed(self, event: MessageReceived) -> None:
        """Somebody wrote `/claim CODE`; doing it again for the same message changes nothing.

        Raises:
            StoreError: it could not be recorded; the message may be handed in again.
        """
        sender = event.sender
        handle = sender.handle.strip()
        if not handle or sender.trust is Trust.UNVERIFIED:
            await self._answer(event, UNSURE)
            return
        user = user_id(event.address.channel_type, handle)
        code = "".join(_words(event.text)[1:])
        if not self._may_try(user):
            log.warning("%s has tried too many codes and gets no answer", user)
            return
        now = self._hub.clock.now()
        granted = bool(code) and await self._hub.store.write(_claim, event, user, digest_of(code), now)
        if granted:
            self._tries.pop(user, None)
            log.warning("%s claimed ownership in %s and is an owner now", user, event.address)
            await self._answer(event, _welcome(event))
        else:
            self._tries.setdefault(user, deque()).append(self._hub.clock.monotonic())
            while len(self._tries) > SENDERS:
                self._tries.popitem(last=False)
            self._hub.trouble("wrong claim")
            log.warning("%s tried to claim ownership in %s with a code that is not valid", user, event.address)
            await self._answer(event, WRONG)

    def _may_try(self, user: str) -> bool:
        tries = self._tries.get(user)
        if tries is None:
            return True
        while tries and tries[0] <= self._hub.clock.monotonic() - TRY_WINDOW:
            tries.popleft()
        return len(tries) < TRIES

    async def _answer(self, event: MessageReceived, text: str) -> None:
        await self._say(event.address, OutMessage(text=text), path=SendPath.COMMAND)


def _claim(db: sqlite3.Connection, event: MessageReceived, user: UserId, digest: str, now: UnixMs) -> bool:
    """Use the code and grant the role, together.

    Who has used it is told so again, since a crash may have come before the answer; but a role that was taken away
    since does not come back.
    """
    if not claims.use(db, digest, user, now):
        owner = any(role.role is RoleName.OWNER for role in people.roles_of(db, user))
        return owner and claims.used(db, digest, user, now)
    people.ensure_user(db, user, event.address.channel_type, event.sender.display_name, now)
    if not event.is_group:
        dms.remember(db, user, event.address.chat, now)  # where they are asked from now on
    people.grant(db, Role(user_id=user, role=RoleName.OWNER, agent_group_id=None, granted_by=None, granted_at=now))
    return True


def _welcome(event: MessageReceived) -> str:
    text = "You are an owner now: you may do everything, and are asked about what needs a decision."
    if event.is_group:
        text += " The code is used up. Next time write to me directly, so that nobody else reads along."
    return text
