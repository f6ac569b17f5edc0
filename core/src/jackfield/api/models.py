"""How agents reach their models: the gateway that an extension may offer, and what the host does for one.

A gateway keeps the keys in the host: runners reach it with a token of their own instead, and it counts what they use.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, runtime_checkable

from jackfield.clock import UnixMs
from jackfield.ids import AgentGroupId, SessionId
from jackfield.models.usage import UsageRow, UsageSource, UsageTotals

__all__ = ["ModelGateway", "ModelService"]


@runtime_checkable
class ModelGateway(Protocol):
    """What an extension offers by `HostContext.models.offer` in `start()`, and withdraws in `stop()`.

    A session's requests come as ``<address>/s/<token>/...``, on any of the wires of `jackfield.wire`.
    """

    def address(self) -> str:
        """``http://127.0.0.1:PORT``: how processes of this machine reach it.  The same after a restart of the host, or
        runners that outlived it can't find it any more."""
        ...

    def token(self, session_id: SessionId, agent_group_id: AgentGroupId) -> str:
        """By what the session is known to it; the same after a restart, and never logged.  Letters, digits, ``-``,
        ``_`` and ``.``."""
        ...

    def covers(self, provider: str) -> bool:
        """Whether it has an upstream for sessions of that provider."""
        ...

    def credential(self, provider: str) -> str:
        """What these sessions share: the upstream's name.  It is what `ModelService.park` is told."""
        ...

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one HTTP/1.1 connection that came from a container."""
        ...


class ModelService(Protocol):
    """`HostContext.models`."""

    def offer(self, gateway: ModelGateway) -> None:
        """Let sessions use this gateway.

        Raises:
            Conflict: another one is offered.
        """
        ...

    def withdraw(self, gateway: ModelGateway) -> None:
        """Take it back; does nothing for one that is not offered."""
        ...

    async def record(self, *rows: UsageRow) -> None:
        """Keep what was used, for `jackfield usage` and for budgets."""
        ...

    async def totals(
        self,
        *,
        group: AgentGroupId | None = None,
        session: SessionId | None = None,
        since: UnixMs | None = None,
        source: UsageSource | None = None,
    ) -> UsageTotals:
        """What was used of all that is kept.  Single rows go after `host.keep_days`, and then count as of midnight of
        their day, without their session."""
        ...

    async def tell_owner(self, subject: str, text: str, key: str) -> bool:
        """Tell an owner of this installation something that only they can mend, once until `settled(key)`, also over
        restarts.

        It goes to an owner's direct chat; where none can be reached it is shown by `jackfield status` and `jackfield
        doctor`, as it is in any case.  False when it was told before.
        """
        ...

    async def settled(self, key: str) -> None:
        """What was told under this key is mended; the next time is told again."""
        ...

    async def park(self, credential: str, until: UnixMs, reason: str) -> None:
        """Start no turn before `until` in any session that uses this credential of the gateway's."""
        ...

    async def unpark(self, credential: str) -> None:
        """It works again: let them all go on."""
        ...

    def secret(self, name: str) -> str:
        """A secret of the host's own, for an upstream: global, or from the environment.  Ask anew whenever it is used,
        as it may be changed.

        Raises:
            NotFound: there is none of that name.
            SecretsLocked: it can't be read.
        """
        ...
