"""Access, the command gate, session keys."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield.clock import UnixMs
from jackfield.errors import MalformedData
from jackfield.host import commands
from jackfield.host.access import can_access, gate, role_in
from jackfield.host.session_keys import effective_mode, session_key
from jackfield.ids import AgentGroupId, MessagingGroupId, UserId
from jackfield.models import Role, RoleName, SenderScope, SessionMode, Trust, UnknownSenderPolicy
from jackfield.models.commands import COMMANDS, ChatCommand, CommandAccess

OURS, OTHER = AgentGroupId("ag_ours"), AgentGroupId("ag_other")


def role(name: RoleName, group: AgentGroupId | None) -> Role:
    return Role(user_id=UserId("x:1"), role=name, agent_group_id=group, granted_by=None, granted_at=UnixMs(0))


@pytest.mark.parametrize(
    ("known", "roles", "member", "reason", "allowed"),
    [
        (False, [role(RoleName.OWNER, None)], True, "unknown_user", False),
        (True, [role(RoleName.ADMIN, OURS), role(RoleName.OWNER, None)], True, "owner", True),
        (True, [role(RoleName.ADMIN, OURS), role(RoleName.ADMIN, None)], True, "global_admin", True),
        (True, [role(RoleName.ADMIN, OURS)], False, "admin_of_group", True),
        (True, [role(RoleName.ADMIN, OTHER)], False, "not_member", False),
        (True, [role(RoleName.ADMIN, OTHER)], True, "member", True),
        (True, [], False, "not_member", False),
        (True, [role(RoleName.OWNER, OURS)], False, "not_member", False),
    ],
)
def test_access_is_decided_in_the_order_of_the_roles(
    known: bool, roles: list[Role], member: bool, reason: str, allowed: bool
) -> None:
    decision = can_access(known, roles, member, OURS)
    assert (decision.reason, decision.allowed) == (reason, allowed)


def verdict(policy: UnknownSenderPolicy, scope: SenderScope, *, known: bool, trust: Trust = Trust.PLATFORM) -> str:
    access = can_access(True, [], known, OURS)
    found = gate(policy=policy, scope=scope, access=access, trust=trust, local=False)
    return ("yes " if found.allowed else "no ") + found.reason


def test_the_chats_policy_and_the_wirings_scope_decide_about_strangers() -> None:
    policies, scopes = UnknownSenderPolicy, SenderScope
    assert verdict(policies.STRICT, scopes.ALL, known=False) == "no unknown_sender_strict"
    assert verdict(policies.REQUEST_APPROVAL, scopes.ALL, known=False) == "no unknown_sender_request_approval"
    assert verdict(policies.PUBLIC, scopes.ALL, known=False) == "yes public"
    assert verdict(policies.PUBLIC, scopes.KNOWN, known=False) == "no sender_scope"
    for policy, scope in itertools.product(policies, scopes):
        assert verdict(policy, scope, known=True) == "yes member"


def test_a_name_that_nobody_vouches_for_has_no_roles() -> None:
    """C141, C254."""
    owner = can_access(True, [role(RoleName.OWNER, None)], True, OURS)
    found = gate(
        policy=UnknownSenderPolicy.STRICT, scope=SenderScope.ALL, access=owner, trust=Trust.UNVERIFIED, local=False
    )
    assert not found.allowed
    assert role_in(owner, Trust.UNVERIFIED, local=False) == ""


def test_the_operating_systems_user_owns_a_local_chat_and_no_other() -> None:
    stranger = can_access(False, [], False, OURS)
    for local in (True, False):
        found = gate(
            policy=UnknownSenderPolicy.STRICT,
            scope=SenderScope.KNOWN,
            access=stranger,
            trust=Trust.OPERATOR,
            local=local,
        )
        assert found.allowed is local
        assert role_in(stranger, Trust.OPERATOR, local=local) == ("owner" if local else "")
    assert (
        gate(
            policy=UnknownSenderPolicy.STRICT,
            scope=SenderScope.KNOWN,
            access=stranger,
            trust=Trust.OPERATOR,
            local=True,
        ).reason
        == "local_operator"
    )


def test_a_plugins_commands_are_watched_and_go_on_as_text() -> None:
    """messaging.md 1.7: closed by default, exact tokens, and no plugin changes a row of the core's."""
    rows = [
        ChatCommand("/deploy"),
        ChatCommand("/vote", CommandAccess.MEMBER),
        ChatCommand("/ours", CommandAccess.NOBODY),
        ChatCommand("/clear", CommandAccess.MEMBER),
    ]
    added = {row.token: row for row in rows}
    assert isinstance(commands.gate("/deploy it", "member", added), commands.Denied)
    assert commands.gate("/deploy it", "admin", added) == commands.Pass()
    assert commands.gate("/deployit", "", added) == commands.Pass()
    assert isinstance(commands.gate("/vote", "", added), commands.Denied)
    assert commands.gate("/vote", "member", added) == commands.Pass()
    assert commands.gate("/ours", "owner", added) == commands.Filtered("/ours")
    assert isinstance(commands.gate("/clear", "member", added), commands.Denied)


def test_admin_commands_need_the_exact_token_and_an_admin() -> None:
    assert commands.gate("  /CLEAR now", "admin") == commands.Command("/clear")
    assert isinstance(commands.gate("/clear", "member"), commands.Denied)
    assert isinstance(commands.gate("/clear", ""), commands.Denied)
    assert commands.gate("/clearx", "owner") == commands.Pass()
    assert commands.gate("please /clear", "owner") == commands.Pass()
    assert commands.gate("/help", "owner") == commands.Filtered("/help")
    assert commands.gate("/foo bar", "") == commands.Pass()
    assert commands.gate("/stop", "member") == commands.Command("/stop")
    assert commands.gate("", "owner") == commands.gate("/", "owner") == commands.Pass()


@given(st.text(max_size=20), st.sampled_from(["owner", "admin", "member", ""]))
def test_nobody_below_admin_gets_an_admin_command_through(text: str, sender: str) -> None:
    for token, rule in COMMANDS.items():
        found = commands.gate(token + text, sender)  # type: ignore[arg-type]  # only its trust is read
        if isinstance(found, commands.Command) and COMMANDS[found.token].access is CommandAccess.ADMIN:
            assert sender in ("owner", "admin") and rule is COMMANDS[found.token]


CHAT, OTHER_CHAT = MessagingGroupId("mg_1"), MessagingGroupId("mg_2")


def test_a_group_chat_with_threads_has_a_session_for_each_thread_and_a_direct_chat_one() -> None:
    assert effective_mode(SessionMode.SHARED, threaded=True, is_group=True) is SessionMode.PER_THREAD
    assert effective_mode(SessionMode.SHARED, threaded=True, is_group=False) is SessionMode.SHARED
    assert effective_mode(SessionMode.SHARED, threaded=False, is_group=True) is SessionMode.SHARED
    assert effective_mode(SessionMode.AGENT_SHARED, threaded=True, is_group=True) is SessionMode.AGENT_SHARED


def test_a_key_is_never_made_from_missing_parts() -> None:
    """C126."""
    for mode in (SessionMode.SHARED, SessionMode.PER_THREAD):
        for missing in (None, MessagingGroupId(""), MessagingGroupId(" ")):
            with pytest.raises(MalformedData):
                session_key(mode, missing, "t")
    with pytest.raises(MalformedData):
        session_key(SessionMode.PER_THREAD, CHAT, " ")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(SessionMode)), st.sampled_from([CHAT, OTHER_CHAT]), st.none() | st.text(min_size=1)
        )
    )
)
def test_two_conversations_never_share_a_key(
    conversations: list[tuple[SessionMode, MessagingGroupId, str | None]],
) -> None:
    """C126."""
    keys: dict[str, tuple[object, ...]] = {}
    for mode, chat, thread in conversations:
        if thread is not None and not thread.strip():
            continue
        identity: tuple[object, ...] = (mode, chat, thread)
        if mode is SessionMode.SHARED:
            identity = (mode, chat)
        elif mode is SessionMode.AGENT_SHARED:
            identity = (mode,)
        assert keys.setdefault(session_key(mode, chat, thread).key, identity) == identity
