"""`HostContext.models`: what the host does for a model gateway, and how turns tell of keys that don't work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from jackfield.api import ModelGateway
from jackfield.clock import UnixMs
from jackfield.errors import NotFound
from jackfield.host.hub import Hub
from jackfield.host.models.alerts import Alerts
from jackfield.host.parking import GATEWAY, Keys, Parking
from jackfield.ids import AgentGroupId, SessionId
from jackfield.models import UsageRow, UsageSource, UsageTotals
from jackfield.store import sessions, usage

__all__ = ["Models"]


class Models:
    """A `ModelService`."""

    def __init__(
        self,
        hub: Hub,
        alerts: Alerts,
        parking: Parking,
        *,
        rest: Callable[[sessions.Scope, str], Awaitable[None]],
        go_on: Callable[[], Awaitable[None]],
    ) -> None:
        """`rest` sends home the idle runners that use what was parked, `go_on` wakes what may work again."""
        self._hub = hub
        self._alerts = alerts
        self._parking = parking
        self._rest = rest
        self._go_on = go_on

    def offer(self, gateway: ModelGateway) -> None:
        self._hub.gateways.offer(gateway)

    def withdraw(self, gateway: ModelGateway) -> None:
        self._hub.gateways.withdraw(gateway)

    async def record(self, *rows: UsageRow) -> None:
        await self._hub.store.write(usage.record, rows)

    async def totals(
        self,
        *,
        group: AgentGroupId | None = None,
        session: SessionId | None = None,
        since: UnixMs | None = None,
        source: UsageSource | None = None,
    ) -> UsageTotals:
        return await self._hub.store.read(
            usage.totals, agent_group_id=group, session_id=session, since=since, source=source
        )

    async def tell_owner(self, subject: str, text: str, key: str) -> bool:
        return await self._alerts.tell(subject, text, key)

    async def settled(self, key: str) -> None:
        await self._alerts.settle(key)

    async def park(self, credential: str, until: UnixMs, reason: str) -> None:
        key = GATEWAY + credential
        await self._hub.store.write(sessions.park_scope, "credential", key, until, reason)
        await self._rest("credential", key)

    async def unpark(self, credential: str) -> None:
        key = GATEWAY + credential
        if await self._parking.free(lambda scope, value: (scope, value) == ("credential", key)):
            await self._go_on()

    def secret(self, name: str) -> str:
        found = self._hub.vault.find(name)
        if found is None:
            raise NotFound(f"there is no secret {name!r}", fix=f"`jackfield secret set {name}`")
        return found

    # ---- what turns tell

    async def heard(self, keys: Keys, owner: tuple[str, str] | None) -> None:
        """A turn worked, or `owner` must be told that it can't, and about what."""
        if owner is None:
            for key in set(keys.values()):
                await self._alerts.settle(_alert_key(key))
            return
        reason, key = owner
        what = key.removeprefix(GATEWAY) or "the model"
        await self._alerts.tell(
            f"{what} can't be used",
            f"{reason}\n\nAgents that use it wait, and their messages are kept. Mend it, then `jackfield reload`; "
            "a new value of its secret frees them, too. It is tried again at least once an hour.",
            _alert_key(key),
        )

    async def secret_changed(self, name: str) -> None:
        """Let go on what waits for a key that has a new value now; which of them a gateway uses, only that knows."""

        def names(scope: sessions.Scope, key: str) -> bool:
            return key.startswith(GATEWAY) or any(part.partition("@")[0] == name for part in key.split(":")[1:])

        if await self._parking.free(names):
            await self._go_on()


def _alert_key(key: str) -> str:
    return f"credential {key}"
