"""Asking a channel whether its settings and credentials work, without starting it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from jackfield.api import Accepted, Channel, ChannelType, Cursor, Health
from jackfield.clock import Clock, SystemClock
from jackfield.config.home import Home
from jackfield.errors import JackfieldError, Unsupported
from jackfield.host.diagnosis.threads import within
from jackfield.models import Address, ChannelStatus, Event
from jackfield.redaction import REDACTOR

__all__ = ["CheckContext", "check_channel", "secret_names"]

PATIENCE = 20.0
"""Seconds for a platform to answer."""


class CheckContext:
    """`ChannelContext` for a check: it gives secrets, the clock, a folder and cursors, and takes nothing."""

    def __init__(
        self,
        home: Home,
        instance: str,
        *,
        secret: Callable[[str], Awaitable[str | None]],
        cursor: Callable[[str], Awaitable[str | None]] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.instance = instance
        self.clock: Clock = clock or SystemClock()
        self._home = home
        self._secret = secret
        self._cursor = cursor

    @property
    def folder(self) -> Path:
        folder = self._home.root / "channels" / self.instance
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    async def accept(self, event: Event, cursor: Cursor | None = None) -> Accepted:
        raise Unsupported("a check takes no events")

    async def cursor(self, key: str) -> str | None:
        return None if self._cursor is None else await self._cursor(key)

    async def secret(self, name: str) -> str | None:
        found = await self._secret(name)
        if found is not None:
            REDACTOR.register(found)
        return found

    def route_url(self, path: str = "") -> str | None:
        return None

    def report(self, status: ChannelStatus) -> None:
        """A check changes no state."""

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        work.close()
        raise Unsupported("a check leaves nothing running")

    def wake(self, address: Address) -> None:
        """Nothing waits for a check."""


async def check_channel(channel: Channel, context: CheckContext, *, patience: float = PATIENCE) -> Health:
    """What `Channel.check` says, without the secrets that it was given; whatever it does instead is an answer, too."""
    health = await _outcome(channel, context, patience)
    fix = None if health.fix is None else REDACTOR(health.fix)
    return Health(ok=health.ok, detail=REDACTOR(health.detail), fix=fix)


async def _outcome(channel: Channel, context: CheckContext, patience: float) -> Health:
    try:
        return await within(patience, channel.check(context))
    except TimeoutError:
        said = f"the platform did not answer within {patience:g} s"
        return Health(ok=False, detail=said, fix="look at the network and try again")
    except JackfieldError as problem:
        return Health(ok=False, detail=problem.message, fix=problem.fix)
    except Exception as problem:  # noqa: BLE001 - a plugin's own fault is what the check has found
        return Health(ok=False, detail=f"its check failed: {problem!r}", fix="tell the plugin's author")


def secret_names(kind: ChannelType, settings: Any) -> list[str]:
    """The names of all secrets that the settings of a channel name: each a text, a list or a table of texts."""
    names: list[str] = []
    for key in kind.secrets:
        value = settings.get(key) if isinstance(settings, Mapping) else getattr(settings, key, None)
        if isinstance(value, Mapping):
            value = tuple(value.values())
        if isinstance(value, str):
            names.append(value)
        elif isinstance(value, list | tuple):
            names += [one for one in value if isinstance(one, str)]
    return list(dict.fromkeys(names))
