"""May this person talk to this agent here?  (messaging.md 1.3, 2.4; closed by default)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jackfield.api import AccessDecision
from jackfield.ids import AgentGroupId
from jackfield.models import Role, RoleName, SenderScope, Trust, UnknownSenderPolicy
from jackfield.models.commands import SenderRole

__all__ = ["REFUSALS", "Verdict", "can_access", "gate", "role_in"]


REFUSALS = ("loop", "sender_denied", "sender_scope", "unknown_sender_request_approval", "unknown_sender_strict")
"""The reasons of a `Verdict` that says no, and of who was denied or belongs to a loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a message may enter an agent's session.  `ask` tells that an owner should be asked about the sender."""

    allowed: bool
    reason: str
    ask: bool = False


def can_access(
    user_known: bool, roles: Sequence[Role], is_member: bool, agent_group_id: AgentGroupId
) -> AccessDecision:
    """What a person's roles and membership say, in this order, each with its reason code:

    `unknown_user` (no), `owner`, `global_admin`, `admin_of_group`, `member` (yes), `not_member` (no).  `roles` are all
    roles of that person; an owner's is always global.
    """
    if not user_known:
        return AccessDecision(allowed=False, reason="unknown_user")
    if any(role.role is RoleName.OWNER and role.agent_group_id is None for role in roles):
        return AccessDecision(allowed=True, reason="owner")
    if any(role.role is RoleName.ADMIN and role.agent_group_id is None for role in roles):
        return AccessDecision(allowed=True, reason="global_admin")
    if any(role.role is RoleName.ADMIN and role.agent_group_id == agent_group_id for role in roles):
        return AccessDecision(allowed=True, reason="admin_of_group")
    if is_member:
        return AccessDecision(allowed=True, reason="member")
    return AccessDecision(allowed=False, reason="not_member")


def gate(
    *, policy: UnknownSenderPolicy, scope: SenderScope, access: AccessDecision, trust: Trust, local: bool
) -> Verdict:
    """The chat's policy and the wiring's scope over what `can_access`, or a plugin, decided.

    The operating system's user on a local channel owns their chat (`local_operator`).  Somebody whose name nobody
    vouches for (`Trust.UNVERIFIED`) counts as unknown, whatever roles that name has (C141, C254).  A public chat with
    the scope `known` still keeps strangers out, without asking anyone.
    """
    if local and trust is Trust.OPERATOR:
        return Verdict(allowed=True, reason="local_operator")
    if access.allowed and trust is Trust.UNVERIFIED:
        access = AccessDecision(allowed=False, reason="unverified_sender")
    if access.allowed:
        return Verdict(allowed=True, reason=access.reason)
    match policy:
        case UnknownSenderPolicy.PUBLIC:
            if scope is SenderScope.ALL:
                return Verdict(allowed=True, reason="public")
            return Verdict(allowed=False, reason="sender_scope")
        case UnknownSenderPolicy.REQUEST_APPROVAL:
            return Verdict(allowed=False, reason="unknown_sender_request_approval", ask=True)
        case UnknownSenderPolicy.STRICT:
            return Verdict(allowed=False, reason="unknown_sender_strict")


def role_in(access: AccessDecision, trust: Trust, local: bool) -> SenderRole:
    """What the sender is to the group, for commands and the prompt.

    `access` must come from `can_access`, so that no plugin's answer makes an admin.
    """
    if local and trust is Trust.OPERATOR:
        return "owner"
    if not access.allowed or trust is Trust.UNVERIFIED:
        return ""
    roles: dict[str, SenderRole] = {"owner": "owner", "global_admin": "admin", "admin_of_group": "admin"}
    return roles.get(access.reason, "member")
