"""The smaller things that plugins register: packs, extensions, actions, routes, kinds, object types, approvals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from jackfield.api.agents import AgentService
from jackfield.api.approvals import ApprovalService
from jackfield.api.channels import HttpRoute
from jackfield.api.models import ModelService
from jackfield.api.schedule import ScheduleService
from jackfield.api.workshop import WorkshopService
from jackfield.clock import Clock
from jackfield.ids import AgentGroupId, SessionId, TurnId, UserId
from jackfield.models import Address, AgentGroup, Session
from jackfield.models.commands import SenderRole

__all__ = [
    "ActionContext",
    "ActionHandler",
    "ApprovalKind",
    "DocumentKind",
    "DocumentPack",
    "Extension",
    "ExtensionType",
    "HostContext",
    "ObjectType",
    "RouteSet",
]


class HostContext(Protocol):
    """The host's services, for extensions and the host half of tool plugins."""

    @property
    def install_id(self) -> str: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def approvals(self) -> ApprovalService:
        """Asking a person before something risky is done."""
        ...

    @property
    def schedule(self) -> ScheduleService:
        """Work at a time of its own."""
        ...

    @property
    def agents(self) -> AgentService:
        """Agents among themselves."""
        ...

    @property
    def workshop(self) -> WorkshopService:
        """What agents have besides what their runtime gives: packages, and MCP servers."""
        ...

    @property
    def models(self) -> ModelService:
        """How agents reach their models: a gateway, what was used, and what is out of use."""
        ...

    async def agent_groups(self) -> Sequence[AgentGroup]: ...

    async def notify(self, session_id: SessionId, text: str, *, subject: str = "", wake: bool = False) -> None:
        """Put a notice into a session's inbox; `wake` starts a turn for it.

        Raises:
            NotFound: no such session.
        """
        ...

    async def broadcast(self, agent_group_id: AgentGroupId, text: str, *, subject: str = "") -> int:
        """A notice to every active session of a group; the number of sessions."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionContext:
    """Whose mailbox the request lay in: identity comes from the pipe (architecture 5, rule 8)."""

    session: Session
    agent_group: AgentGroup
    host: HostContext
    turn: TurnId | None = None
    """The turn that asks, as the runner says."""
    role: SenderRole = ""
    """What the people whose messages that turn took are to the group now, as the host's own ledger knows them: the
    least of all of them (C143).  Empty for a task's or another agent's turn, and when anything is in doubt."""
    users: tuple[UserId, ...] = ()
    """These people."""
    origin: Address | None = None
    """The conversation that the turn answers."""
    files: tuple[Path, ...] = ()
    """For `ApprovalKind.apply`: copies of the files that were approved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionHandler:
    """What `register_actions` returns.  `handle` gets JSON values and returns JSON values; it must be idempotent by
    `request_id`, because a crash may deliver a request twice.  A `JackfieldError` becomes the runner's answer."""

    name: str
    handle: Callable[[ActionContext, str, dict[str, Any]], Awaitable[Any]]
    """`handle(context, request_id, arguments)`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentPack:
    """What `register_packs` returns: a folder of markdown files inside an importable package.

    The pack of a directory plugin has no package: then `package` is empty and `folder` an absolute path.
    """

    name: str
    title: str
    package: str
    folder: str = "documents"


@runtime_checkable
class Extension(Protocol):
    async def start(self, host: HostContext) -> None: ...

    async def stop(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionType:
    """What `register_extensions` returns; started only when `[extensions.<name>]` is in `jackfield.toml`."""

    name: str
    title: str
    create: Callable[[Any], Extension]
    settings: type[Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSet:
    """What `register_routes` returns: HTTP routes of an extension, below `/x/<name>/`."""

    name: str
    routes: tuple[HttpRoute, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentKind:
    """What `register_kinds` returns: a kind of document in the graph."""

    name: str
    title: str
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectType:
    """What `register_object_types` returns: a custom type of object in the graph."""

    name: str
    title: str
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalKind:
    """What `register_approvals` returns: something that a person decides, and what is done once they said yes."""

    name: str
    title: str
    apply: Callable[[ActionContext, dict[str, Any]], Awaitable[Any]]
    """`apply(context, payload)`, at most once, after the approval; a text that it returns is told to the agent, as is a
    `JackfieldError`.  `context.files` are the approved copies of the files that the request named."""
    mode: Literal["ask", "always"] = "always"
    """Who is asked, unless the group's `[permissions]` say otherwise: `ask` lets it through at once when owners and
    admins alone wrote what the running turn answers; `always` asks in any case."""
    idempotent: bool = False
    """Whether `apply` may be called again when the host ended in the middle of it; otherwise nobody does it again, and
    the agent and the person who approved are told so."""
