"""Every hook, with its exact arguments.  `docs/plugins/hooks.md` has one heading for each; a test holds that.

**Registration** hooks are ordinary functions, called once when the plugin is loaded; they return what they offer.
**Message path** hooks are `async`, each call is isolated and bounded at 5 s:

- *deciding*: the first answer that is not None wins; one that raises or takes too long means "no";
- *observing*: all are called, what they return is ignored, failures are logged and counted;
- *composing*: each gets the value so far and returns the next; a failing one is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pluggy

from jackfield import API_VERSION

if TYPE_CHECKING:
    # Only for the annotations: a provider that marks one function must not pay for every room of the API.
    from collections.abc import Callable

    from jackfield.api.channels import ChannelType
    from jackfield.api.decisions import (
        AccessDecision,
        AccessRequest,
        DeliveredPart,
        EngageDecision,
        EngageRequest,
        EnqueuedMessage,
        InboundVerdict,
        OutboundPart,
        OutboundVerdict,
        PromptRequest,
        ResolvedSender,
        TurnSummary,
    )
    from jackfield.api.plugins import (
        ActionHandler,
        ApprovalKind,
        DocumentKind,
        DocumentPack,
        ExtensionType,
        ObjectType,
        RouteSet,
    )
    from jackfield.api.providers import ProviderType
    from jackfield.api.runtimes import RuntimeType
    from jackfield.api.tools import ToolSet
    from jackfield.models import ActivityRow, Event, MessageReceived
    from jackfield.models.commands import ChatCommand

__all__ = ["API_VERSION", "HOOKS", "PROJECT", "HookKind", "HookSpecs", "hookimpl"]

PROJECT = "jackfield"
_spec = pluggy.HookspecMarker(PROJECT)
_marker = pluggy.HookimplMarker(PROJECT)

F = TypeVar("F", bound="Callable[..., Any]")


def hookimpl(function: F | None = None, *, tryfirst: bool = False, trylast: bool = False) -> Any:
    """Mark a function of your plugin as the implementation of the hook with its name."""
    if function is None:
        return lambda wrapped: hookimpl(wrapped, tryfirst=tryfirst, trylast=trylast)
    return cast(Any, _marker(tryfirst=tryfirst, trylast=trylast)(function))


class HookKind(StrEnum):
    REGISTRATION = "registration"
    DECIDING = "deciding"
    OBSERVING = "observing"
    COMPOSING = "composing"


class HookSpecs:
    """The specifications.  An implementation may take fewer arguments, never other ones."""

    # ---- registration

    @_spec
    def register_channels(self) -> Sequence[ChannelType]:
        """Channels that this plugin brings."""
        return ()

    @_spec
    def register_providers(self) -> Sequence[ProviderType]:
        """Agent providers that this plugin brings."""
        return ()

    @_spec
    def register_runtimes(self) -> Sequence[RuntimeType]:
        """Runtimes that this plugin brings."""
        return ()

    @_spec
    def register_tools(self) -> Sequence[ToolSet]:
        """Tool sets that this plugin brings."""
        return ()

    @_spec
    def register_packs(self) -> Sequence[DocumentPack]:
        """Document packs that this plugin brings."""
        return ()

    @_spec
    def register_extensions(self) -> Sequence[ExtensionType]:
        """Host services that this plugin brings."""
        return ()

    @_spec
    def register_actions(self) -> Sequence[ActionHandler]:
        """Handlers in the host for requests that tools make with `context.act`."""
        return ()

    @_spec
    def register_routes(self) -> Sequence[RouteSet]:
        """HTTP routes below `/x/<name>/`."""
        return ()

    @_spec
    def register_kinds(self) -> Sequence[DocumentKind]:
        """Kinds of documents."""
        return ()

    @_spec
    def register_object_types(self) -> Sequence[ObjectType]:
        """Types of objects in the graph."""
        return ()

    @_spec
    def register_approvals(self) -> Sequence[ApprovalKind]:
        """Kinds of approvals, with what to do once a person said yes."""
        return ()

    @_spec
    def register_commands(self) -> Sequence[ChatCommand]:
        """Chat commands that the host's gate watches: who may send them to an agent, as text.

        A token that the core or another plugin has is refused, with the plugin.  Without `access` a command is for
        admins.
        """
        return ()

    # ---- deciding

    @_spec
    async def resolve_sender(self, event: MessageReceived) -> ResolvedSender | None:
        """Who is it?  Without an answer the core takes `<channel type>:<handle>`."""

    @_spec
    async def decide_access(self, request: AccessRequest) -> AccessDecision | None:
        """May this person talk to this agent here?  Asked after roles and members said neither yes nor no."""

    @_spec
    async def decide_engage(self, request: EngageRequest) -> EngageDecision | None:
        """Shall this message start a turn?  Without an answer the wiring's engage mode decides."""

    @_spec
    async def intercept_inbound(self, event: MessageReceived) -> InboundVerdict | None:
        """Take a message away before it is routed."""

    @_spec
    async def intercept_outbound(self, part: OutboundPart) -> OutboundVerdict | None:
        """Guard: allow or block a message that is about to leave.  A guard that fails blocks it."""

    # ---- observing

    @_spec
    async def event_accepted(self, event: Event) -> None:
        """An event was stored."""

    @_spec
    async def message_enqueued(self, message: EnqueuedMessage) -> None:
        """A message lies in a session's inbox."""

    @_spec
    async def turn_ended(self, turn: TurnSummary) -> None:
        """A turn ended, well or not."""

    @_spec
    async def message_delivered(self, part: DeliveredPart) -> None:
        """A part was sent."""

    @_spec
    async def message_failed(self, part: DeliveredPart) -> None:
        """A part failed for good."""

    @_spec
    async def activity_recorded(self, session_id: str, activity: ActivityRow) -> None:
        """An agent used a tool, ran a command or used a secret."""

    # ---- composing

    @_spec
    async def compose_prompt(self, request: PromptRequest, text: str) -> str:
        """Add to the system prompt of a session whose runner is about to start.

        `text` is what other plugins have added so far.  It comes after the group's own words and the instructions of
        the tool sets; more than 64 KiB are left out.
        """
        return text

    @_spec
    async def tool_instructions(self, tool_set: str, text: str) -> str:
        """Change the instructions of a tool set, as they go into the system prompt of a runner that is to start."""
        return text

    @_spec
    async def compose_outbound(self, part: OutboundPart, text: str) -> str:
        """Change the text of a message that is about to leave, after the guards allowed it (C187)."""
        return text


def _kind_of(name: str) -> HookKind:
    if name.startswith("register_"):
        return HookKind.REGISTRATION
    if name.startswith(("decide_", "resolve_", "intercept_")):
        return HookKind.DECIDING
    if name in ("compose_prompt", "tool_instructions", "compose_outbound"):
        return HookKind.COMPOSING
    return HookKind.OBSERVING


HOOKS: dict[str, HookKind] = {name: _kind_of(name) for name in vars(HookSpecs) if not name.startswith("_")}
"""Every hook's name and kind."""
