"""Groups, chats, wirings, destinations, people, sessions, notes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from jackfield.clock import SystemClock, UnixMs
from jackfield.errors import Conflict, MalformedData, NotFound
from jackfield.ids import AgentGroupId, InboundId, MessagingGroupId, SessionId, UserId, WiringId, new_id
from jackfield.models import (
    Address,
    AgentGroup,
    Destination,
    DestinationKind,
    EngageMode,
    IgnoredPolicy,
    InboundState,
    Member,
    MessagingGroup,
    Role,
    RoleName,
    SenderScope,
    SessionMode,
    SessionStatus,
    UnknownSenderPolicy,
    Wiring,
    WiringOrigin,
)
from jackfield.store import Store, chats, deliveries, groups, inbound, notes, people, sessions, wirings
from jackfield.store.opening import open_database

NOW = UnixMs(1_700_000_000_000)
CHAT = Address("telegram", "main", "-100")


def later(seconds: int) -> UnixMs:
    return UnixMs(NOW + seconds * 1000)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    db = open_database(tmp_path / "state.db", SystemClock(), backups=tmp_path)
    yield db
    db.close()


def a_group(db: sqlite3.Connection, folder: str = "scout", name: str = "Scout") -> AgentGroup:
    group = AgentGroup(id=AgentGroupId(new_id("ag")), name=name, folder=folder, created_at=NOW)
    groups.add_agent_group(db, group)
    return group


def a_chat(db: sqlite3.Connection, address: Address = CHAT, name: str | None = "Family") -> MessagingGroup:
    return chats.ensure_messaging_group(
        db, address, name=name, is_group=True, policy=UnknownSenderPolicy.STRICT, now=NOW
    )


def a_wiring(group: AgentGroup, chat: MessagingGroup, priority: int = 0, at: UnixMs = NOW) -> Wiring:
    return Wiring(
        id=WiringId(new_id("wr")),
        messaging_group_id=chat.id,
        agent_group_id=group.id,
        engage_mode=EngageMode.MENTION_STICKY,
        engage_pattern=None,
        sender_scope=SenderScope.ALL,
        ignored_policy=IgnoredPolicy.DROP,
        session_mode=SessionMode.SHARED,
        priority=priority,
        origin=WiringOrigin.TRUSTED,
        created_at=at,
    )


def a_session(db: sqlite3.Connection, group: AgentGroup, key: str = "k", now: UnixMs = NOW) -> SessionId:
    session, _ = sessions.session_for(
        db, group.id, key, mode=SessionMode.SHARED, messaging_group_id=None, thread_id=None, now=now
    )
    return session.id


# Agent groups


def test_a_group_is_added_once_and_its_folder_is_its_own(db: sqlite3.Connection) -> None:
    group = a_group(db)
    assert groups.add_agent_group(db, group) is False
    assert groups.agent_group(db, group.id) == groups.agent_group_by_folder(db, "scout") == group
    with pytest.raises(Conflict, match="scout"):
        a_group(db, folder="scout")
    with pytest.raises(Conflict):
        a_group(db, folder="Scout")  # one folder on file systems that don't tell cases apart
    with pytest.raises(MalformedData):
        a_group(db, folder="../up")


def test_groups_are_listed_by_name_and_renamed(db: sqlite3.Connection) -> None:
    second, first = a_group(db, "b", "Zoe"), a_group(db, "a", "Ada")
    assert groups.agent_groups(db) == [first, second]
    assert groups.rename_agent_group(db, second.id, "Abe").name == "Abe"
    assert [group.name for group in groups.agent_groups(db)] == ["Abe", "Ada"]
    with pytest.raises(NotFound):
        groups.rename_agent_group(db, AgentGroupId("ag_unknown"), "x")


def test_removing_a_group_ends_what_it_left_unfinished(db: sqlite3.Connection) -> None:
    group, other = a_group(db), a_group(db, "other")
    chat = a_chat(db)
    wirings.add_wiring(db, a_wiring(group, chat))
    wirings.add_destination(
        db,
        other.id,
        Destination(name="scout", kind=DestinationKind.AGENT, display_name="", agent_group_id=group.id),
        NOW,
    )
    people.ensure_user(db, UserId("telegram:1"), "telegram", None, NOW)
    people.add_member(db, Member(user_id=UserId("telegram:1"), agent_group_id=group.id, added_by=None, added_at=NOW))
    session = a_session(db, group)
    inbound.record(
        db,
        id=InboundId("in_1"),
        event_id=None,
        wiring_id=None,
        session_id=session,
        state=InboundState.QUEUED,
        preview="hi",
        now=NOW,
    )
    assert groups.remove_agent_group(db, group.id, later(1)) is True
    assert groups.remove_agent_group(db, group.id, later(1)) is False
    ended = inbound.entry(db, InboundId("in_1"))
    assert ended is not None and ended.state is InboundState.DROPPED and ended.reason == "the agent group was removed"
    assert sessions.session(db, session) is None
    assert wirings.wirings_of_chat(db, chat.id) == []
    assert wirings.destinations(db, other.id) == []
    assert chats.messaging_group(db, chat.id) is not None


# Chats


def test_a_chat_is_made_once_and_keeps_what_is_known_of_it(db: sqlite3.Connection) -> None:
    """messaging.md 17.4, pitfall 5: a group stays one."""
    chat = a_chat(db, Address("telegram", "main", "-100", "topic"))
    assert chat.address == CHAT and chat.name == "Family" and chat.is_group
    again = chats.ensure_messaging_group(
        db, CHAT, name=None, is_group=False, policy=UnknownSenderPolicy.PUBLIC, now=later(9)
    )
    assert again == chat
    renamed = chats.ensure_messaging_group(
        db, CHAT, name="Kin", is_group=True, policy=UnknownSenderPolicy.PUBLIC, now=later(9)
    )
    assert renamed == replace(chat, name="Kin")
    assert chats.messaging_group_at(db, Address("telegram", "main", "-100", "other")) == renamed
    assert chats.messaging_group_at(db, Address("telegram", "second", "-100")) is None


def test_chats_are_listed_by_channel_and_instance(db: sqlite3.Connection) -> None:
    one, two = a_chat(db), a_chat(db, Address("slack", "work", "C1"))
    three = a_chat(db, Address("telegram", "second", "-100"))
    assert chats.messaging_groups(db) == [two, one, three]
    assert chats.messaging_groups(db, "telegram") == [one, three]
    assert chats.messaging_groups(db, "telegram", "second") == [three]


def test_a_chat_s_policy_name_and_denial_change(db: sqlite3.Connection) -> None:
    chat = a_chat(db)
    assert chats.set_policy(db, chat.id, UnknownSenderPolicy.PUBLIC).unknown_sender_policy == "public"
    assert chats.rename_chat(db, chat.id, None).name is None
    assert chats.deny_chat(db, chat.id, NOW).denied_at == NOW
    with pytest.raises(NotFound):
        chats.set_policy(db, MessagingGroupId("mg_x"), UnknownSenderPolicy.PUBLIC)


def test_a_name_with_half_a_surrogate_pair_is_kept_as_far_as_it_is_text(db: sqlite3.Connection) -> None:
    chat = a_chat(db, name="fox \ud83e!")
    assert chat.name == "fox ?!"


def test_a_moved_chat_takes_everything_along(db: sqlite3.Connection) -> None:
    group, chat = a_group(db), a_chat(db)
    wirings.add_wiring(db, a_wiring(group, chat))
    new = Address("telegram", "main", "-100200")
    a_chat(db, new, name=None)  # the platform's first event from there was faster
    moved = chats.move_chat(db, chat.id, new)
    assert moved.id == chat.id and moved.address == new
    assert wirings.may_send(db, group.id, new) and not wirings.may_send(db, group.id, CHAT)
    used = a_chat(db, Address("telegram", "main", "-7"))
    wirings.add_wiring(db, a_wiring(group, used))
    with pytest.raises(Conflict, match="in use"):
        chats.move_chat(db, chat.id, used.address)


# Wirings and destinations


def test_a_wiring_brings_a_destination_named_after_the_chat(db: sqlite3.Connection) -> None:
    """messaging.md 1.2."""
    group = a_group(db)
    first, second = a_chat(db), a_chat(db, Address("slack", "w", "C1"), "family!")
    nameless = a_chat(db, Address("slack", "w", "C2"), None)
    for chat in (first, second, nameless):
        assert wirings.add_wiring(db, a_wiring(group, chat)) is True
    found = {one.name: one for one in wirings.destinations(db, group.id)}
    assert set(found) == {"family", "family-2", f"slack-{nameless.id[-8:]}"}
    assert found["family"].address == CHAT and found["family"].display_name == "Family"
    assert found["family-2"].address == second.address
    assert found[f"slack-{nameless.id[-8:]}"].display_name == "slack:w:C2"


def test_a_wiring_is_added_once(db: sqlite3.Connection) -> None:
    group, chat = a_group(db), a_chat(db)
    wiring = a_wiring(group, chat)
    assert wirings.add_wiring(db, wiring) is True
    assert wirings.add_wiring(db, wiring) is False
    with pytest.raises(Conflict, match="wired to"):
        wirings.add_wiring(db, a_wiring(group, chat))
    assert len(wirings.destinations(db, group.id)) == 1
    with pytest.raises(NotFound):
        wirings.add_wiring(db, replace(a_wiring(group, chat), messaging_group_id=MessagingGroupId("mg_x")))
    with pytest.raises(NotFound):
        wirings.add_wiring(db, replace(a_wiring(group, chat), agent_group_id=AgentGroupId("ag_x")))


def test_wirings_come_by_priority_then_age(db: sqlite3.Connection) -> None:
    chat = a_chat(db)
    made = [
        a_wiring(a_group(db, "a"), chat, priority=0, at=later(1)),
        a_wiring(a_group(db, "b"), chat, priority=0, at=later(0)),
        a_wiring(a_group(db, "c"), chat, priority=5, at=later(2)),
    ]
    for wiring in made:
        wirings.add_wiring(db, wiring)
    assert wirings.wirings_of_chat(db, chat.id) == [made[2], made[1], made[0]]
    assert wirings.wirings_of_group(db, made[0].agent_group_id) == [made[0]]


def test_a_wiring_is_updated_and_removed_but_its_destination_stays(db: sqlite3.Connection) -> None:
    group, chat = a_group(db), a_chat(db)
    wiring = a_wiring(group, chat)
    wirings.add_wiring(db, wiring)
    changed = replace(wiring, engage_mode=EngageMode.PATTERN, engage_pattern="^hey", priority=3)
    assert wirings.update_wiring(db, changed) == changed == wirings.wiring(db, wiring.id)
    wirings.stick(db, wiring.id, None, later(10), NOW)
    assert wirings.remove_wiring(db, wiring.id) is True
    assert wirings.remove_wiring(db, wiring.id) is False
    assert wirings.may_send(db, group.id, CHAT)
    assert wirings.remove_destination(db, group.id, "family") is True
    assert not wirings.may_send(db, group.id, CHAT)
    with pytest.raises(NotFound):
        wirings.update_wiring(db, changed)


def test_what_sticks_ends_and_is_kept_apart_by_thread(db: sqlite3.Connection) -> None:
    """messaging.md 17.4, pitfall 4."""
    wiring = a_wiring(a_group(db), a_chat(db))
    wirings.add_wiring(db, wiring)
    wirings.stick(db, wiring.id, "t1", later(10), NOW)
    wirings.stick(db, wiring.id, "t1", later(5), NOW)  # never shortens
    assert wirings.is_stuck(db, wiring.id, "t1", later(9))
    assert not wirings.is_stuck(db, wiring.id, "t1", later(10))
    assert not wirings.is_stuck(db, wiring.id, "t2", NOW)
    assert not wirings.is_stuck(db, wiring.id, None, NOW)
    wirings.stick(db, wiring.id, None, later(20), NOW)
    assert wirings.is_stuck(db, wiring.id, None, NOW) and not wirings.is_stuck(db, wiring.id, "", NOW)
    assert wirings.expire_sticky(db, later(10)) == 1
    assert wirings.unstick(db, wiring.id, None) is True
    assert wirings.unstick(db, wiring.id, None) is False


def test_destinations_are_added_normalised_and_once(db: sqlite3.Connection) -> None:
    group, peer = a_group(db), a_group(db, "peer", "Peer")
    a_chat(db)
    channel = Destination(name="The Family", kind=DestinationKind.CHANNEL, display_name="", address=CHAT)
    added = wirings.add_destination(db, group.id, channel, NOW)
    assert added.name == "the-family" and added.display_name == "Family"
    assert wirings.add_destination(db, group.id, channel, NOW) == added
    agent = Destination(name="the family", kind=DestinationKind.AGENT, display_name="", agent_group_id=peer.id)
    with pytest.raises(Conflict):
        wirings.add_destination(db, group.id, agent, NOW)
    assert wirings.add_destination(db, group.id, replace(agent, name="peer"), NOW).display_name == "Peer"
    with pytest.raises(NotFound):
        wirings.add_destination(db, group.id, replace(channel, address=Address("x", "y", "z")), NOW)
    with pytest.raises(MalformedData):
        wirings.add_destination(db, group.id, replace(channel, address=None), NOW)


# People


def test_a_user_keeps_an_old_name_when_the_new_one_is_unknown(db: sqlite3.Connection) -> None:
    """messaging.md 1.2."""
    id = UserId("teams:29:abc")
    assert people.ensure_user(db, id, "teams", "Ada", NOW).display_name == "Ada"
    assert people.ensure_user(db, id, "teams", None, later(1)).display_name == "Ada"
    assert people.ensure_user(db, id, "teams", "Ada L.", later(2)).display_name == "Ada L."
    user = people.user(db, id)
    assert user is not None and user.created_at == NOW and people.users(db) == [user]


def test_roles_are_granted_once_even_global_ones(db: sqlite3.Connection) -> None:
    """messaging.md 1.2: NULL never conflicts in a primary key."""
    group = a_group(db)
    ada = people.ensure_user(db, UserId("x:ada"), "x", None, NOW).id
    owner = Role(user_id=ada, role=RoleName.OWNER, agent_group_id=None, granted_by=None, granted_at=NOW)
    admin = replace(owner, role=RoleName.ADMIN, agent_group_id=group.id)
    assert [people.grant(db, role) for role in (owner, owner, admin, admin)] == [True, False, True, False]
    assert people.roles_of(db, ada) == [owner, admin] == people.all_roles(db)
    assert people.all_roles(db, AgentGroupId("ag_other")) == [owner]
    with pytest.raises(Conflict, match="owners are global"):
        people.grant(db, replace(owner, agent_group_id=group.id))
    with pytest.raises(NotFound):
        people.grant(db, replace(owner, user_id=UserId("x:nobody")))
    with pytest.raises(NotFound):
        people.grant(db, replace(admin, agent_group_id=AgentGroupId("ag_x")))
    assert people.revoke(db, ada, RoleName.OWNER) is True
    assert people.revoke(db, ada, RoleName.ADMIN) is False
    assert people.revoke(db, ada, RoleName.ADMIN, group.id) is True


def test_members_are_added_once(db: sqlite3.Connection) -> None:
    group = a_group(db)
    ada = people.ensure_user(db, UserId("x:ada"), "x", None, NOW).id
    member = Member(user_id=ada, agent_group_id=group.id, added_by=None, added_at=NOW)
    assert people.add_member(db, member) is True
    assert people.add_member(db, member) is False
    assert people.members(db, group.id) == [member] and people.is_member(db, group.id, ada)
    assert people.remove_member(db, group.id, ada) is True
    assert not people.is_member(db, group.id, ada)
    with pytest.raises(NotFound):
        people.add_member(db, replace(member, user_id=UserId("x:nobody")))


# Sessions


async def test_fifty_creators_of_one_session_get_the_same_one(tmp_path: Path) -> None:
    """messaging.md 17.4, pitfall 6."""
    store = Store(tmp_path / "state.db")
    await store.open()
    group = await store.write(a_group)

    async def create() -> tuple[SessionId, bool]:
        session, created = await store.write(
            sessions.session_for,
            group.id,
            "chat:1",
            mode=SessionMode.SHARED,
            messaging_group_id=None,
            thread_id=None,
            now=NOW,
        )
        return session.id, created

    made = await asyncio.gather(*(create() for _ in range(50)))
    assert len({id for id, _ in made}) == 1
    assert sum(created for _, created in made) == 1
    await store.close()


def test_the_database_itself_refuses_a_second_active_session_under_a_key(db: sqlite3.Connection) -> None:
    a_session(db, a_group(db))
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(
            "INSERT INTO sessions (id, agent_group_id, key, mode, status, created_at, last_active_at) "
            "SELECT 'ses_2', agent_group_id, key, mode, status, 0, 0 FROM sessions"
        )


def test_a_closed_session_frees_its_key(db: sqlite3.Connection) -> None:
    group = a_group(db)
    first = a_session(db, group)
    assert sessions.close_session(db, first, later(1)) is True
    assert sessions.close_session(db, first, later(1)) is False
    second = a_session(db, group, now=later(2))
    assert second != first
    assert [one.id for one in sessions.sessions(db)] == [second, first]
    assert [one.id for one in sessions.sessions(db, status=SessionStatus.CLOSED, agent_group_id=group.id)] == [first]
    assert [one.id for one in sessions.sessions(db, limit=1)] == [second]


def test_a_session_needs_a_group_and_a_key(db: sqlite3.Connection) -> None:
    """C126."""
    with pytest.raises(NotFound):
        sessions.session_for(
            db,
            AgentGroupId("ag_x"),
            "k",
            mode=SessionMode.SHARED,
            messaging_group_id=None,
            thread_id=None,
            now=NOW,
        )
    with pytest.raises(sqlite3.IntegrityError):
        a_session(db, a_group(db), key="")


def test_epochs_only_grow(db: sqlite3.Connection) -> None:
    id = a_session(db, a_group(db))
    assert [sessions.begin_epoch(db, id, later(n)) for n in range(3)] == [1, 2, 3]
    session = sessions.session(db, id)
    assert session is not None and session.epoch == 3 and session.last_active_at == later(2)
    with pytest.raises(NotFound):
        sessions.begin_epoch(db, SessionId("ses_x"), NOW)


def test_cursors_only_grow_each_for_itself(db: sqlite3.Connection) -> None:
    id = a_session(db, a_group(db))
    assert sessions.cursors(db, id) == sessions.OutCursor()
    sessions.move_cursors(db, id, sessions.OutCursor(5, 2, 7))
    sessions.move_cursors(db, id, sessions.OutCursor(3, 9, 1))
    assert sessions.cursors(db, id) == sessions.OutCursor(5, 9, 7)
    sessions.touch_session(db, id, later(5))
    sessions.touch_session(db, id, later(3))
    session = sessions.session(db, id)
    assert session is not None and session.last_active_at == later(5)


def test_sessions_and_scopes_are_parked_until_a_moment(db: sqlite3.Connection) -> None:
    id = a_session(db, a_group(db))
    sessions.park(db, id, later(60), "rate_limited")
    session = sessions.session(db, id)
    assert session is not None and (session.parked_until, session.parked_reason) == (later(60), "rate_limited")
    assert sessions.parked_due(db, later(59)) == []
    assert [one.id for one in sessions.parked_due(db, later(60))] == [id]
    assert sessions.unpark(db, id) is True and sessions.unpark(db, id) is False
    sessions.park_scope(db, "credential", "claude/main", later(30), "billing")
    sessions.park_scope(db, "credential", "claude/main", later(40), "auth")
    scope = sessions.parked_scope(db, "credential", "claude/main")
    assert scope is not None and (scope.until, scope.reason) == (later(40), "auth")
    assert sessions.parked_scope(db, "provider", "claude/main") is None
    assert sessions.parked_scopes(db) == [scope] and sessions.parked_scopes(db, later(39)) == []
    assert sessions.unpark_scope(db, "credential", "claude/main") is True
    sessions.park(db, id, later(10), "x")
    sessions.park_scope(db, "provider", "p", later(10), "x")
    assert sessions.unpark_due(db, later(9)) == 0
    assert sessions.unpark_due(db, later(10)) == 2


def test_notes_are_replaced_and_removed(db: sqlite3.Connection) -> None:
    assert notes.get(db, "install_id") is None
    notes.set(db, "install_id", "a")
    notes.set(db, "install_id", "b")
    assert notes.get(db, "install_id") == "b"
    assert notes.remove(db, "install_id") is True and notes.remove(db, "install_id") is False


def test_every_module_s_public_names_exist() -> None:
    for module in (chats, deliveries, groups, inbound, notes, people, sessions, wirings):
        assert all(hasattr(module, name) for name in module.__all__)
