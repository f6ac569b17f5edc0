"""How people, chats and owners become known: unknown senders and new chats by a decision, the owner by a code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from jackfield.host.approvals import Approvals
from jackfield.host.channels import ChannelDirectory
from jackfield.host.hub import Hub
from jackfield.host.registration.claiming import Claiming
from jackfield.host.registration.strangers import Strangers
from jackfield.ids import AgentGroupId

__all__ = ["Claiming", "Registration", "Strangers"]


class Registration:
    """What the router needs of all this."""

    def __init__(
        self,
        hub: Hub,
        channels: ChannelDirectory,
        approvals: Approvals,
        *,
        say: Callable[..., Awaitable[None]],
        retake: Callable[[], Awaitable[None]],
        project: Callable[[AgentGroupId], Awaitable[None]],
    ) -> None:
        strangers = Strangers(hub, channels, approvals, retake=retake, project=project)
        self.ask = strangers.ask
        self.sweep = strangers.sweep
        self.reconsider = strangers.reconsider
        self.claimed = Claiming(hub, say=say).claimed
