"""Telling an owner what only they can mend: once, until it is mended.

What is told lies in the store, so that a restart tells nothing twice; as long as nobody could be written to, the sweep
tries again.  `jackfield status` and `jackfield doctor` show it in any case.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from jackfield.host.approvals import policy
from jackfield.host.channels import ChannelDirectory
from jackfield.host.dms import DirectChats
from jackfield.host.hub import Hub
from jackfield.models import Address, RoleName
from jackfield.redaction import REDACTOR
from jackfield.store import alerts, people
from jackfield.store.alerts import Alert

__all__ = ["Alerts"]

log = logging.getLogger(__name__)


class Alerts:
    def __init__(
        self, hub: Hub, channels: ChannelDirectory, *, send: Callable[[Address, str], Awaitable[bool]]
    ) -> None:
        """`send` sends a text to a chat; False when it could not."""
        self._hub = hub
        self._channels = channels
        self._chats = DirectChats(hub, channels)
        self._send = send
        self._telling = asyncio.Lock()
        self._open: set[str] | None = None
        """What is not mended; None until it was asked for."""

    @property
    def any_open(self) -> bool:
        """Whether anything may not be mended."""
        return self._open is None or bool(self._open)

    async def tell(self, subject: str, text: str, key: str) -> bool:
        """Whether it is told now; False when it was before."""
        subject, text = REDACTOR(subject), REDACTOR(text)
        if not await self._hub.store.write(alerts.raise_alert, key, subject, text, self._hub.clock.now()):
            return False
        (await self._known()).add(key)
        log.error("an owner has to look: %s: %s", subject, text)
        self._hub.spawn(self.retry(), f"alert {key}")
        return True

    async def settle(self, key: str) -> bool:
        """It is mended; False when nothing was wrong.  Costs nothing then."""
        known = await self._known()
        if key not in known:
            return False
        known.discard(key)
        await self._hub.store.write(alerts.settle, key)
        log.info("mended: %s", key)
        return True

    async def open(self) -> list[Alert]:
        """What is not mended."""
        return await self._hub.store.read(alerts.alerts)

    async def retry(self) -> None:
        """Write to an owner what none was told yet."""
        if self._open is not None and not self._open:
            return
        async with self._telling:
            for alert in await self.open():
                if alert.told_at is None and await self._reach_owner(alert):
                    await self._hub.store.write(alerts.told, alert.key, self._hub.clock.now())

    async def _known(self) -> set[str]:
        if self._open is None:
            self._open = {alert.key for alert in await self.open()}
        return self._open

    async def _reach_owner(self, alert: Alert) -> bool:
        roles = await self._hub.store.read(people.all_roles)
        owners = policy.approvers((role for role in roles if role.role is RoleName.OWNER), None)
        ready = [(one.type, one.name) for one in self._channels.all() if one.ready.is_set()]
        for user, channel_type, instance in policy.preferred(owners, ready, None):
            address = await self._chats.ensure(user, channel_type, instance)
            if address is not None and await self._send(address, f"**{alert.subject}**\n\n{alert.text}"):
                log.info("%s was told: %s", user, alert.subject)
                return True
        return False
