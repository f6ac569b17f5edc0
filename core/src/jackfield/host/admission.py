"""Whether a person may reach an agent in a chat: the facts and the plugins' word, judged by `access`.

For what comes besides messages, such as the answer to a question: it reaches the agent too, so it passes the same gate.
"""

from __future__ import annotations

import logging
import sqlite3

from jackfield.api import AccessDecision, AccessRequest, ResolvedSender
from jackfield.errors import HookFailed
from jackfield.host import access
from jackfield.host.hub import Hub
from jackfield.ids import SessionId, UserId, user_id
from jackfield.models import Address, AgentGroup, MessageReceived, MessagingGroup, Person, SenderScope
from jackfield.store import chats, groups, people, sessions, wirings

__all__ = ["admits", "ask_plugins", "namesake", "resolved_sender"]

log = logging.getLogger(__name__)

_Facts = tuple[MessagingGroup, AgentGroup, SenderScope, AccessDecision]


async def admits(
    hub: Hub, session_id: SessionId, address: Address, person: Person, user: UserId, *, local: bool
) -> bool:
    """Whether what that person does in that chat may reach the session's agent.

    The chat's policy counts, and the scope of the agent's wiring there; without a wiring everybody's words would count.
    """

    def look(db: sqlite3.Connection) -> _Facts | None:
        session = sessions.session(db, session_id)
        group = groups.agent_group(db, session.agent_group_id) if session is not None else None
        chat = chats.messaging_group_at(db, address.chat)
        if group is None or chat is None:
            return None
        wired = [wiring for wiring in wirings.wirings_of_chat(db, chat.id) if wiring.agent_group_id == group.id]
        scope = wired[0].sender_scope if wired else SenderScope.ALL
        known = people.user(db, user) is not None
        granted = access.can_access(known, people.roles_of(db, user), people.is_member(db, group.id, user), group.id)
        return chat, group, scope, granted

    facts = await hub.store.read(look)
    if facts is None:
        return False
    chat, group, scope, granted = facts
    if not granted.allowed:
        granted = await ask_plugins(hub, ResolvedSender(user_id=user, person=person), chat, group) or granted
    return access.gate(
        policy=chat.unknown_sender_policy, scope=scope, access=granted, trust=person.trust, local=local
    ).allowed


async def ask_plugins(
    hub: Hub, sender: ResolvedSender, chat: MessagingGroup, group: AgentGroup
) -> AccessDecision | None:
    """What `decide_access` says; a hook that fails says no, None leaves it to the core."""
    dispatcher = hub.plugins.dispatcher
    if not dispatcher.has("decide_access"):
        return None
    request = AccessRequest(sender=sender, messaging_group=chat, agent_group=group)
    try:
        decided = await dispatcher.first("decide_access", request=request)
    except HookFailed as problem:
        log.warning("access to %s is refused: %s", group.folder, problem)
        return AccessDecision(allowed=False, reason="hook_failed")
    return decided if isinstance(decided, AccessDecision) else None


async def resolved_sender(hub: Hub, event: MessageReceived) -> ResolvedSender:
    """Who wrote a message, as permissions see it: a plugin's word, or the sender's namesake."""
    dispatcher = hub.plugins.dispatcher
    if dispatcher.has("resolve_sender"):
        try:
            resolved = await dispatcher.first("resolve_sender", event=event)
        except HookFailed as problem:
            log.warning("the sender of a message in %s counts as unknown: %s", event.address, problem)
            return ResolvedSender(user_id=None, person=event.sender)
        if isinstance(resolved, ResolvedSender):
            return resolved
    return namesake(event)


def namesake(event: MessageReceived) -> ResolvedSender:
    """Who wrote it, by nothing but the handle."""
    handle = event.sender.handle.strip()
    found = user_id(event.address.channel_type, handle) if handle else None
    return ResolvedSender(user_id=found, person=event.sender)
