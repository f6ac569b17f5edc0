"""The kinds of things that people decide: those of plugins, and the host's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from jackfield.api import ApprovalChoice, ApprovalKind
from jackfield.errors import Conflict, NotFound
from jackfield.ids import AgentGroupId, ApprovalId, SessionId
from jackfield.models import Address
from jackfield.plugins import PluginRegistry

__all__ = ["YES_NO", "Decision", "HostKind", "Kinds", "Mode"]

Mode = Literal["ask", "always", "allow", "never"]
"""What `[permissions]` may say of a kind."""

YES_NO = (
    ApprovalChoice(value="approve", label="Approve", approves=True, selected_label="✅ Approved"),
    ApprovalChoice(value="reject", label="Reject", approves=False, selected_label="❌ Rejected"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a kind of the host's own is told: which choice was made, by whom, about what."""

    id: ApprovalId
    value: str
    """Of the choice."""
    approved: bool
    by: str
    """The user's id, or `operator`."""
    payload: dict[str, Any]
    agent_group_id: AgentGroupId | None
    session_id: SessionId | None
    origin: Address | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKind:
    """A kind of the host's own.  `apply` is called for every choice that a person makes, also for a no; the text that
    it returns is shown on the card and told to the asking session, if there is one."""

    name: str
    title: str
    apply: Callable[[Decision], Awaitable[str | None]]
    idempotent: bool = False
    """Whether `apply` may be called again after the host ended in the middle of it."""
    mode: Mode = "always"


class Kinds:
    """All kinds by name, the host's own first."""

    def __init__(self, plugins: PluginRegistry) -> None:
        self._plugins = plugins
        self._own: dict[str, HostKind] = {}

    def register(self, kind: HostKind) -> None:
        """Add one of the host's own.

        Raises:
            Conflict: there is one of that name.
        """
        if kind.name in self._own:
            raise Conflict(f"there is a kind of approval {kind.name!r} already")
        self._own[kind.name] = kind

    def names(self) -> frozenset[str]:
        """All that something is known of now."""
        return frozenset(self._own) | {kind.name for kind in self._plugins.approval_kinds()}

    def find(self, name: str) -> HostKind | ApprovalKind:
        """The kind of that name.

        Raises:
            NotFound: nothing that is loaded knows it, so nothing could be done about a yes.
        """
        own = self._own.get(name)
        if own is not None:
            return own
        offered = {kind.name: kind for kind in self._plugins.approval_kinds()}
        if name in offered:
            return offered[name]
        near = get_close_matches(name, [*self._own, *offered], n=1)
        hint = f"did you mean {near[0]!r}?" if near else "the plugin that brings it is not in use"
        raise NotFound(f"there is no kind of approval {name[:80]!r}", fix=hint)
