"""What people are asked about strangers and new chats, and what their answers mean.  Pure (messaging.md 1.4, 1.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jackfield.api import ApprovalChoice, ApprovalField
from jackfield.clock import UnixMs
from jackfield.ids import AgentGroupId, UserId, WiringId
from jackfield.models import (
    AgentGroup,
    EngageMode,
    IgnoredPolicy,
    MessageReceived,
    MessagingGroup,
    SenderScope,
    SessionMode,
    Trust,
    Wiring,
    WiringOrigin,
)

__all__ = [
    "ALLOW",
    "CONNECT",
    "DENY",
    "MAX_AGENTS",
    "OPEN",
    "Card",
    "cautious_wiring",
    "chat_card",
    "sender_card",
    "whom",
]

ALLOW, OPEN, DENY, CONNECT = "allow", "open", "deny", "connect"
MAX_AGENTS = 8
"""Agents that a card offers to connect; any other one is wired by command."""


@dataclass(frozen=True, slots=True)
class Card:
    """What the approval shows."""

    title: str
    fields: tuple[ApprovalField, ...]
    choices: tuple[ApprovalChoice, ...]


def whom(event: MessageReceived, user: UserId) -> UserId:
    """Who is asked about and remembered: the sender, or all together whom nobody vouches for in that chat.

    These could take another name with every message, and each would make a card of its own.
    """
    return UserId(f"{event.address.channel_type}:") if event.sender.trust is Trust.UNVERIFIED else user


def sender_card(
    event: MessageReceived,
    user: UserId,
    chat: MessagingGroup,
    asked: Sequence[AgentGroup],
    *,
    may_open: bool,
    days: int,
) -> Card:
    """About somebody unknown who wrote to agents in a chat.  `may_open` when nobody but these agents is wired there."""
    vouched = event.sender.trust is not Trust.UNVERIFIED
    choices = []
    if vouched:
        choices.append(ApprovalChoice(value=ALLOW, label="Allow", approves=True, selected_label="✅ Allowed"))
    if may_open:
        label = "Allow and open the chat" if vouched else "Open the chat to everybody"
        choices.append(ApprovalChoice(value=OPEN, label=label, approves=True, selected_label="✅ Open to everybody"))
    choices.append(ApprovalChoice(value=DENY, label="Deny", approves=False, selected_label="🚫 Denied"))
    fields = [
        ApprovalField(label="Sender", value=_person(event, user)),
        ApprovalField(label="Chat", value=_chat(chat)),
        ApprovalField(label="Agent" if len(asked) == 1 else "Agents", value=", ".join(group.name for group in asked)),
    ]
    if not vouched:
        why = "Anybody can use that name here, so only opening the chat to everybody lets them in."
        fields.append(ApprovalField(label="Who it is", value=why))
    if may_open:
        means = "Whoever writes in that chat is answered from then on, without another question."
        fields.append(ApprovalField(label="Opening the chat", value=means))
    fields.append(ApprovalField(label="Denying", value=f"Nobody is asked about them in that chat for {days} days."))
    return Card("👤 New sender", tuple(fields), tuple(choices))


def chat_card(
    event: MessageReceived, user: UserId, chat: MessagingGroup, agents: Sequence[AgentGroup], days: int
) -> Card:
    """About a chat that no agent is wired to, in which somebody addressed us."""
    vouched = event.sender.trust is not Trust.UNVERIFIED
    offered = agents[:MAX_AGENTS]
    choices = [
        ApprovalChoice(
            value=f"{CONNECT}:{group.id}",
            label=f"Connect to {_name(group, agents)}",
            approves=True,
            selected_label=f"✅ Connected to {_name(group, agents)}",
        )
        for group in offered
    ]
    choices.append(ApprovalChoice(value=DENY, label="Ignore", approves=False, selected_label="🙅 Ignored"))
    member = f"{_person(event, user)} may talk to the agent that you choose; others who write there are asked about."
    if not vouched:
        member = "Anybody can use the sender's name here; who may talk to the agent is asked next."
    fields = [
        ApprovalField(label="Chat", value=_chat(chat)),
        ApprovalField(label="Sender", value=_person(event, user)),
        ApprovalField(label="Connecting", value=member),
        ApprovalField(label="When it answers", value="When it is mentioned." if chat.is_group else "Every message."),
        ApprovalField(label="Ignoring", value=f"Nobody is asked about that chat for {days} days."),
    ]
    if len(agents) > len(offered):
        more = f"{len(agents) - len(offered)} more by `jackfield wire {chat.id} GROUP`."
        fields.append(ApprovalField(label="Other agents", value=more))
    title = "📣 Addressed in a new chat" if chat.is_group else "💬 New direct message"
    return Card(title, tuple(fields), tuple(choices))


def cautious_wiring(id: WiringId, chat: MessagingGroup, group: AgentGroupId, now: UnixMs) -> Wiring:
    """How a chat is wired that a stranger brought: known people only, and by mention where others talk.

    Whether others do is the chat's own fact; threads say nothing about it (messaging.md 17.4, pitfall 5).
    """
    return Wiring(
        id=id,
        messaging_group_id=chat.id,
        agent_group_id=group,
        engage_mode=EngageMode.MENTION_STICKY if chat.is_group else EngageMode.ALWAYS,
        engage_pattern=None,
        sender_scope=SenderScope.KNOWN,
        ignored_policy=IgnoredPolicy.ACCUMULATE if chat.is_group else IgnoredPolicy.DROP,
        session_mode=SessionMode.SHARED,
        priority=0,
        origin=WiringOrigin.CAUTIOUS,
        created_at=now,
    )


def _name(group: AgentGroup, others: Sequence[AgentGroup]) -> str:
    """The agent's, with its folder where another one is called the same."""
    alike = [one for one in others if one.name.casefold() == group.name.casefold()]
    return f"{group.name} ({group.folder})" if len(alike) > 1 else group.name


def _person(event: MessageReceived, user: UserId) -> str:
    """The id first: the name is whatever its bearer likes."""
    name = event.sender.display_name
    return f"{user}, called {name!r}" if name and name != event.sender.handle else str(user)


def _chat(chat: MessagingGroup) -> str:
    kind = "group" if chat.is_group else "direct chat"
    return f"a {kind} ({chat.address}), called {chat.name!r}" if chat.name else f"a {kind} ({chat.address})"
