"""The host's side of models, as a double that takes notes: what was used, parked and told."""

from __future__ import annotations

from jackfield.api import ModelGateway
from jackfield.clock import UnixMs
from jackfield.errors import Conflict, NotFound
from jackfield.ids import AgentGroupId, SessionId
from jackfield.models import UsageRow, UsageSource, UsageTotals

__all__ = ["ModelRecorder"]


class ModelRecorder:
    """A `ModelService`.  `secrets` are the host's own."""

    def __init__(self) -> None:
        self.gateway: ModelGateway | None = None
        self.rows: list[UsageRow] = []
        self.told: dict[str, tuple[str, str]] = {}
        """Subject and text by key, as long as they are not settled."""
        self.parked: dict[str, tuple[UnixMs, str]] = {}
        """Until when and why, by credential."""
        self.secrets: dict[str, str] = {}

    def offer(self, gateway: ModelGateway) -> None:
        if self.gateway is not None and self.gateway is not gateway:
            raise Conflict("there is a model gateway already")
        self.gateway = gateway

    def withdraw(self, gateway: ModelGateway) -> None:
        if self.gateway is gateway:
            self.gateway = None

    async def record(self, *rows: UsageRow) -> None:
        self.rows.extend(rows)

    async def totals(
        self,
        *,
        group: AgentGroupId | None = None,
        session: SessionId | None = None,
        since: UnixMs | None = None,
        source: UsageSource | None = None,
    ) -> UsageTotals:
        wanted = [
            row
            for row in self.rows
            if group in (None, row.agent_group_id)
            and session in (None, row.session_id)
            and source in (None, row.source)
            and (since is None or row.at >= since)
        ]
        return UsageTotals(
            requests=sum(row.requests for row in wanted),
            input=sum(row.input for row in wanted),
            cache_read=sum(row.cache_read for row in wanted),
            cache_write=sum(row.cache_write for row in wanted),
            output=sum(row.output for row in wanted),
            reasoning=sum(row.reasoning for row in wanted),
            cost=sum(row.cost or 0.0 for row in wanted),
            unpriced=sum(row.requests for row in wanted if row.cost is None),
        )

    async def tell_owner(self, subject: str, text: str, key: str) -> bool:
        if key in self.told:
            return False
        self.told[key] = (subject, text)
        return True

    async def settled(self, key: str) -> None:
        self.told.pop(key, None)

    async def park(self, credential: str, until: UnixMs, reason: str) -> None:
        self.parked[credential] = (until, reason)

    async def unpark(self, credential: str) -> None:
        self.parked.pop(credential, None)

    def secret(self, name: str) -> str:
        if name not in self.secrets:
            raise NotFound(f"there is no secret {name!r}")
        return self.secrets[name]
