"""A workshop that takes notes: what tool sets had checked and done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jackfield.ids import AgentGroupId, SessionId
from jackfield.models.packages import Packages, requested

__all__ = ["WorkshopRecorder"]


class WorkshopRecorder:
    """A `WorkshopService` that installs nothing.  Names are checked as the host does; settings of servers are taken as
    they are."""

    def __init__(self) -> None:
        self.installed: list[Packages] = []
        self.servers: dict[str, dict[str, Any]] = {}
        self.files: list[Path] = []
        """What every server's command names."""
        self.rebuilt = 0
        self.error: Exception | None = None
        """Raised by every call from now on."""

    async def check_packages(self, agent_group_id: AgentGroupId, values: Mapping[str, Any]) -> Packages:
        self._check()
        return requested(**values)

    async def check_server(
        self, agent_group_id: AgentGroupId, name: object, settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        self._check()
        return dict(settings)

    async def server_files(self, agent_group_id: AgentGroupId, settings: Mapping[str, Any]) -> Sequence[Path]:
        self._check()
        return self.files

    async def install(
        self, agent_group_id: AgentGroupId, packages: Packages, *, asked_in: SessionId | None = None
    ) -> str:
        self._check()
        self.installed.append(packages)
        return f"Installed ({packages})."

    async def add_server(
        self,
        agent_group_id: AgentGroupId,
        name: str,
        settings: Mapping[str, Any],
        *,
        approved: Sequence[Path] = (),
        asked_in: SessionId | None = None,
    ) -> str:
        self._check()
        self.servers[name] = dict(settings)
        return f"MCP server {name} is set up."

    async def rebuild(self, agent_group_id: AgentGroupId, *, asked_in: SessionId | None = None) -> str:
        self._check()
        self.rebuilt += 1
        return "Rebuilt."

    def _check(self) -> None:
        if self.error is not None:
            raise self.error
