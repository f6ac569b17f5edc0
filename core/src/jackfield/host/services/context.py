"""What an operation is given, how it registers, and how it reads its arguments."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Protocol, TypeVar

from jackfield.api import Runtime
from jackfield.errors import MalformedData, NoHost, NotFound, UsageError
from jackfield.host.approvals import Approvals
from jackfield.host.channels import ChannelDirectory
from jackfield.host.diagnosis.threads import in_thread
from jackfield.host.hub import Hub
from jackfield.host.launching import Launcher
from jackfield.host.schedule import Series
from jackfield.host.workshop.workshop import Workshop
from jackfield.ids import AgentGroupId, MessagingGroupId, SessionId
from jackfield.models import Address, AgentGroup, InboundRow, MessagingGroup, Session
from jackfield.store import chats, groups, sessions

__all__ = ["OPERATIONS", "Args", "Live", "ServiceContext", "operation", "suggest"]

E = TypeVar("E", bound=Enum)


class Live(Protocol):
    """The running host, as far as operations need it."""

    @property
    def launcher(self) -> Launcher: ...

    @property
    def workshop(self) -> Workshop: ...

    @property
    def channels(self) -> ChannelDirectory: ...

    @property
    def approvals(self) -> Approvals: ...

    @property
    def series(self) -> Series:
        """What changes tasks."""
        ...

    async def settle_tasks(self) -> None:
        """Take over how runs of tasks ended, after something else than their agent ended them."""
        ...

    def wake(self, session_id: SessionId, group_id: AgentGroupId) -> None: ...

    def nudge(self) -> None: ...

    async def secret_changed(self, name: str) -> None:
        """Let go on what waits because this secret did not work."""
        ...

    def kick(self, destinations: list[str]) -> None: ...

    async def stop_runner(self, session_id: SessionId, reason: str) -> bool: ...

    async def retire_runner(self, session_id: SessionId) -> None:
        """End the session's runner, and take over what it has written, before anything else happens to it."""
        ...

    def renew(self, group_id: AgentGroupId | None = None) -> None:
        """Replace the group's runners that were told other settings than hold now, each after its turn."""
        ...

    async def retake(self) -> None: ...

    async def reload(self) -> dict[str, Any]: ...

    def request_stop(self) -> None: ...

    def report(self) -> dict[str, Any]:
        """Channels, runners, queues, troubles: for `status`."""
        ...

    async def reconsider(self) -> None:
        """People were let in, or chats were wired: take back the questions that this answers."""
        ...

    async def project(self, group_id: AgentGroupId) -> None:
        """Show the group's destinations to its live runners."""
        ...

    async def tell_askers(self) -> None:
        """Tell agents that what they wrote to others was dropped, where it was."""
        ...

    async def enqueue(self, session: Session, row: InboundRow) -> None:
        """Put a row into the session's inbox and the ledger, and wake it."""
        ...

    def answer_address(self, session: Session, chat: MessagingGroup | None) -> Address | None: ...


@dataclass(frozen=True)
class ServiceContext:
    """`live` is None when no host runs and the command holds the lock itself."""

    hub: Hub
    live: Live | None
    _making: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False, compare=False)

    @cached_property
    def launcher(self) -> Launcher:
        """The running host's; without one, a launcher that has launched nothing."""
        return self.live.launcher if self.live is not None else Launcher(self.hub)

    @cached_property
    def workshop(self) -> Workshop:
        return self.live.workshop if self.live is not None else Workshop(self.hub, self.launcher)

    async def runtime(self, name: str) -> Runtime:
        """The one runtime of that name; its plugin is imported beside the event loop.

        Raises:
            NotFound, PluginBroken, ConfigError: there is none that can be used.
        """
        async with self._making:
            return await in_thread(self.launcher.runtime, name)

    async def reconsider(self) -> None:
        """See `Live.reconsider`; without a host the questions stay until somebody decides them."""
        if self.live is not None:
            await self.live.reconsider()

    @property
    def running(self) -> Live:
        if self.live is None:
            raise NoHost("this needs a running host", fix="start one with `jackfield up`")
        return self.live

    async def group(self, name: str) -> AgentGroup:
        """An agent group by folder, name or id.

        Raises:
            NotFound: there is none; near names are offered.
        """
        found = await self.hub.store.read(groups.agent_groups)
        for group in found:
            if name in (group.folder, group.id):
                return group
        named = [group for group in found if group.name.lower() == name.lower()]
        if len(named) == 1:
            return named[0]
        raise NotFound(
            f"there is no agent group {name!r}",
            fix=suggest(name, [group.folder for group in found], "jackfield group list"),
        )

    async def chat(self, text: str) -> MessagingGroup | None:
        """A chat by id or by address text; None when no such chat was seen yet."""
        if text.lower().startswith("mg_"):
            return await self.hub.store.read(chats.messaging_group, MessagingGroupId(text.lower()))
        return await self.hub.store.read(chats.messaging_group_at, chat_address(text))

    async def session(self, session_id: str) -> Session:
        found = await self.hub.store.read(sessions.session, SessionId(session_id.lower()))
        if found is None:
            raise NotFound(f"there is no session {session_id!r}", fix="see `jackfield session list`")
        return found


def chat_address(text: str) -> Address:
    """The chat that an operator wrote as an address.

    Raises:
        UsageError: it is none.
    """
    try:
        found = Address.parse(text).chat
    except MalformedData as problem:
        raise UsageError(str(problem), fix="`jackfield channel chats` lists the chats that were seen") from None
    if found.is_agent:
        raise UsageError(f"{text!r} is another agent's, no chat", fix="`jackfield destination add` joins two agents")
    return found


NAME_LENGTH = 100
"""Characters of what people call an agent, a chat, a person or a destination; as `name` in `agent.toml`."""

Service = Callable[[ServiceContext, "Args"], Awaitable[Any]]
OPERATIONS: dict[str, Service] = {}
"""Every operation of the control socket by name."""


def operation(name: str) -> Callable[[Service], Service]:
    """Register a function as the operation of that name."""

    def register(service: Service) -> Service:
        if name in OPERATIONS:
            raise ValueError(f"operation {name} is registered twice")
        OPERATIONS[name] = service
        return service

    return register


class Args:
    """The arguments of a request: untrusted JSON values, read one by one by type."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        """A text that must be there and not be empty.

        Raises:
            UsageError: it is missing, empty, or of another type.
        """
        value = self.optional_text(name, empty=True)
        if not value:
            raise UsageError(f"{name} is missing")
        return value

    def optional_text(self, name: str, *, empty: bool = False) -> str | None:
        """A text, or None where none is given; an empty one only where it means something, with `empty`.

        Raises:
            UsageError: it is empty, or of another type.
        """
        value = self._values.get(name)
        if value == "" and not empty:
            raise UsageError(f"{name} is empty", fix="leave it out, or say what is meant")
        if value is not None and not isinstance(value, str):
            raise UsageError(f"{name} must be text, got {value!r}")
        if value is not None and not _whole(value):
            raise UsageError(f"{name} holds bytes that are no UTF-8, or half a character")
        return value

    def name(self, name: str) -> str:
        """What something is to be called: a text of `NAME_LENGTH` at most.

        Raises:
            UsageError: it is missing, empty, too long, or of another type.
        """
        value = self.text(name)
        if len(value) > NAME_LENGTH:
            raise UsageError(
                f"the {name} {value[:40] + '…'!r} has {len(value):,} characters, more than {NAME_LENGTH}",
                fix="choose a shorter one",
            )
        return value

    def words(self, name: str) -> list[str]:
        """A list of texts; empty when it is not given."""
        value = self._values.get(name) or []
        if not isinstance(value, list) or not all(isinstance(one, str) and _whole(one) for one in value):
            raise UsageError(f"{name} must be a list of texts")
        return value

    def table(self, name: str) -> dict[str, Any]:
        """A table of JSON values; empty when it is not given."""
        value = self._values.get(name) or {}
        if not isinstance(value, dict):
            raise UsageError(f"{name} must be a table")
        return value

    def number(self, name: str, default: int, *, low: int = 0, high: int = 2**53) -> int:
        value = self._values.get(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise UsageError(f"{name} must be a whole number from {low} to {high}, got {value!r}")
        return value

    def numbers(self, name: str) -> dict[str, int]:
        """A table of whole numbers; empty when it is not given."""
        value = self._values.get(name) or {}
        if not isinstance(value, dict) or not all(type(one) is int and 0 <= one < 2**53 for one in value.values()):
            raise UsageError(f"{name} must be a table of whole numbers")
        return value

    def texts(self, name: str) -> dict[str, str]:
        """A table of texts.  What is wrong is not shown: it may be secret."""
        value = self._values.get(name)
        if not isinstance(value, dict) or not all(isinstance(one, str) and _whole(one) for one in value.values()):
            raise UsageError(f"{name} must be a table of texts")
        return value

    def seconds(self, name: str, default: float, *, high: float = 86_400.0) -> float:
        value = self._values.get(name)
        if value is None:
            return default
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= high:
            raise UsageError(f"{name} must be a number of seconds from 0 to {high:g}, got {value!r}")
        return float(value)

    def given(self, name: str) -> bool:
        """Whether there is anything under that name."""
        return self._values.get(name) is not None

    def flag(self, name: str) -> bool:
        value = self._values.get(name, False)
        if not isinstance(value, bool):
            raise UsageError(f"{name} must be true or false, got {value!r}")
        return value

    def choice(self, name: str, kind: type[E], default: E) -> E:
        """A member of an enum by its value."""
        value = self._values.get(name)
        if value is None:
            return default
        try:
            return kind(value)
        except ValueError:
            allowed = ", ".join(str(member.value) for member in kind)
            raise UsageError(f"{name} can't be {value!r}; it is one of {allowed}") from None


def _whole(text: str) -> bool:
    """Whether it can be stored: JSON and command lines can carry half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def suggest(name: str, known: list[str], listing: str) -> str:
    """What to do about a name that nobody has."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}? See `{listing}`" if near else f"see `{listing}`"
