"""What an agent group has besides what its runtime gives: installed packages, and MCP servers of its own.

Checking is for whoever asks a person (`ApprovalService`); doing it is for the kind's `apply`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from jackfield.ids import AgentGroupId, SessionId
from jackfield.models.packages import Packages

__all__ = ["Packages", "WorkshopService"]


class WorkshopService(Protocol):
    """`HostContext.workshop`."""

    async def check_packages(self, agent_group_id: AgentGroupId, values: Mapping[str, Any]) -> Packages:
        """What a request asks for: lists of names by package manager (`apt`, `npm`, `pip`), from JSON values.

        Raises:
            MalformedData: a name is none, there are none or too many.
            UsageError: this group's runtime can't have some of them.
        """
        ...

    async def check_server(
        self, agent_group_id: AgentGroupId, name: object, settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The settings of an MCP server that an agent asks for (`command`, `args`, `env`, `cwd`, or `url`, `headers`;
        and `timeout`), from JSON values.  Secrets stand in `env` and `headers` as ``secret:NAME`` only.

        Raises:
            MalformedData: they can't be used, or hold a secret in plain.
            Conflict: the group has another server of that name.
        """
        ...

    async def server_files(self, agent_group_id: AgentGroupId, settings: Mapping[str, Any]) -> Sequence[Path]:
        """The files of the agent's workspace that a server's command and arguments name: what is in them belongs to
        what a person approves (C151)."""
        ...

    async def install(
        self, agent_group_id: AgentGroupId, packages: Packages, *, asked_in: SessionId | None = None
    ) -> str:
        """Install and record packages; what was done, in a sentence for the agent.  Repeating it changes nothing.

        The group's runners are replaced after their turn; returns when that of the session `asked_in` was, so that the
        sentence reaches a fresh one.

        Raises:
            UsageError: this group's runtime can't have some of them.
            RolledBack: the installation failed, and nothing was changed.
            Conflict: the group's settings wait for its operator.
        """
        ...

    async def add_server(
        self,
        agent_group_id: AgentGroupId,
        name: str,
        settings: Mapping[str, Any],
        *,
        approved: Sequence[Path] = (),
        asked_in: SessionId | None = None,
    ) -> str:
        """Record an MCP server; as `install` otherwise.  `approved` are copies of its `server_files` as a person saw
        them.

        Raises:
            VerificationFailed: the files are others now.
        """
        ...

    async def rebuild(self, agent_group_id: AgentGroupId, *, asked_in: SessionId | None = None) -> str:
        """Install everything that is recorded anew, and start the group's runners again; as `install` otherwise."""
        ...
