"""Pure rules: whether a person must be asked, who may decide, and whom to ask first (architecture 8; C143, C149)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from jackfield.host.approvals.kinds import Mode
from jackfield.ids import AgentGroupId, UserId
from jackfield.models import Address, Role, RoleName, Trust
from jackfield.models.commands import SenderRole

__all__ = ["Passage", "approvers", "may_decide", "passage", "preferred"]


class Passage(StrEnum):
    """What becomes of a request."""

    PASS = "pass"
    ASK = "ask"
    REFUSE = "refuse"


def passage(mode: Mode, role: SenderRole) -> Passage:
    """Whether it goes through at once, is asked about, or refused.

    `role` is the least of all the people whose messages the running turn took (C143).
    """
    if mode == "never":
        return Passage.REFUSE
    if mode == "allow" or (mode == "ask" and role in ("owner", "admin")):
        return Passage.PASS
    return Passage.ASK


def may_decide(roles: Iterable[Role], trust: Trust, agent_group_id: AgentGroupId | None, *, local: bool) -> bool:
    """Whether a person may decide for that group: its admins, global admins, owners, and the machine's own operator.

    `roles` are that person's now.  Nobody whose name nobody vouches for (C141).
    """
    if trust is Trust.OPERATOR and local:
        return True
    if trust is Trust.UNVERIFIED:
        return False
    return any(role.agent_group_id is None or role.agent_group_id == agent_group_id for role in roles)


def approvers(roles: Iterable[Role], agent_group_id: AgentGroupId | None) -> list[UserId]:
    """Who may decide, in the order in which they are asked: admins of the group, global admins, owners, each by when
    they became it (messaging.md 11.4)."""

    def rank(role: Role) -> tuple[int, int]:
        if role.role is RoleName.OWNER:
            return 2, role.granted_at
        return (1 if role.agent_group_id is None else 0), role.granted_at

    counting = [role for role in roles if role.agent_group_id in (None, agent_group_id)]
    return list(dict.fromkeys(UserId(role.user_id) for role in sorted(counting, key=rank)))


def preferred(
    people: Sequence[UserId], instances: Sequence[tuple[str, str]], origin: Address | None
) -> list[tuple[UserId, str, str]]:
    """Where to ask whom, the best first: on the origin's own channel and instance, on that channel, anywhere.

    `instances` are the channels that there are, as (type, name).  Each result is a user, a type and a name.
    """

    def distance(place: tuple[str, str]) -> int:
        if origin is None or place[0] != origin.channel_type:
            return 2
        return 0 if place[1] == origin.instance else 1

    found = [
        (distance(place), index, user, *place)
        for index, user in enumerate(people)
        for place in instances
        if user.startswith(f"{place[0]}:")
    ]
    return [(user, kind, name) for _, _, user, kind, name in sorted(found, key=lambda one: one[:2])]
