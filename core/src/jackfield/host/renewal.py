"""Settings that change while runners live: who was told other ones than hold now is replaced, after its turn.

Noticed by itself when a message comes and when a turn ends, and looked for after a command that changed something
(messaging.md 11.3: all sessions of the group, not only the one that asked).
"""

from __future__ import annotations

import asyncio

from jackfield.host.hub import Hub
from jackfield.host.launching import Launcher
from jackfield.host.supervisor import Supervisor
from jackfield.ids import AgentGroupId, SessionId
from jackfield.models import Session

__all__ = ["Renewal"]


class Renewal:
    def __init__(self, hub: Hub, launcher: Launcher, supervisor: Supervisor) -> None:
        self._hub = hub
        self._launcher = launcher
        self._supervisor = supervisor

    def renew(self, group_id: AgentGroupId | None = None) -> None:
        """Look at the runners of one group, or at all."""
        for runner in list(self._supervisor.runners.values()):
            if group_id in (None, runner.group_id):
                self.look_at(runner.session)

    def replace(self, group_id: AgentGroupId, why: str) -> None:
        """Replace all runners of a group, each after its turn, whatever they were told."""
        for runner in list(self._supervisor.runners.values()):
            if runner.group_id == group_id:
                self._supervisor.outdate(runner.session.id, why)

    async def replaced(self, session_id: SessionId) -> None:
        """Wait until the session's runner is none that is to be replaced."""
        while (runner := self._supervisor.runners.get(session_id)) is not None and runner.outdated is not None:
            await runner.handle.wait()
            await asyncio.sleep(0.05)  # what it left is taken over first

    def look_at(self, session: Session) -> None:
        """Replace the session's runner if its settings changed."""
        if self._launcher.changed(session):
            self._hub.spawn(self._outdate(session), f"renew {session.id}")

    async def before_message(self, session: Session) -> None:
        """Called before a message is put into the inbox: an idle runner with old settings, which looks there now and
        then by itself, is told to end first, so that it does not answer what the new settings are for."""
        if self._launcher.changed(session):
            await self._outdate(session)
            await asyncio.sleep(0)  # the signal is sent in a task of its own

    def wake(self, session: Session, *, rung: bool = False, patient: bool = False) -> None:
        """There is work for the session: what its runner was told is looked at first.  `rung`: the runner knows;
        `patient`: nobody waits for it."""
        if self._launcher.changed(session):
            self._hub.spawn(self._outdate_and_wake(session), f"renew {session.id}")
        else:
            self._supervisor.wake(session.id, session.agent_group_id, rung=rung, patient=patient)

    async def _outdate(self, session: Session) -> None:
        if await self._launcher.renewable(session):
            self._supervisor.outdate(session.id, "its agent's settings changed")

    async def _outdate_and_wake(self, session: Session) -> None:
        try:
            await self._outdate(session)
        finally:
            self._supervisor.wake(session.id, session.agent_group_id)
