"""Unknown senders and new chats: asked about once, let in or remembered as denied, and their message arrives once."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from delivery_kit import Bench, open_bench
from jackfield.api import ApprovalState, ChannelInfo
from jackfield.clock import UnixMs
from jackfield.host.approvals import Approvals
from jackfield.host.approvals.engine import PENDING_LIMIT
from jackfield.host.inbox import Inbox
from jackfield.host.intake import StoredEvent
from jackfield.host.registration import Registration
from jackfield.host.registration.claiming import TRIES, UNSURE, WRONG, digest_of, is_claim, new_code
from jackfield.host.registration.strangers import DAY, PENDING_IN_CHAT
from jackfield.host.router import Router
from jackfield.host.spool import Spool
from jackfield.ids import AgentGroupId, EventId, UserId, WiringId, new_id
from jackfield.models import (
    Address,
    Addressed,
    AgentGroup,
    ConversationKind,
    EngageMode,
    IgnoredPolicy,
    Member,
    MessageReceived,
    MessageRef,
    OutMessage,
    Person,
    SenderScope,
    SessionMode,
    Trust,
    UnknownSenderPolicy,
    Wiring,
    WiringOrigin,
    dumps,
)
from jackfield.store import approvals as store_approvals
from jackfield.store import chats, claims, dms, events, groups, people, sessions, wirings
from jackfield.store.approvals import Approval, Via

ROOM = Address("fake", "fake", "room")
BOSS = UserId("fake:boss")


class Shown:
    """Nobody is shown anything; the engine itself is under test elsewhere."""

    def __init__(self) -> None:
        self.items: list[Approval] = []

    async def show(self, item: Approval, also: Address | None = None) -> bool:
        self.items.append(item)
        return True

    async def refresh(self, item: Approval) -> None: ...

    async def remind(self, item: Approval) -> None: ...

    async def mend(self) -> None: ...


class Door:
    """A router with everything behind it that decides who comes in."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.shown = Shown()
        self.said: list[tuple[str, str]] = []
        self.projected: list[str] = []
        self._numbers = itertools.count(1)
        hub, directory = bench.hub, cast(Any, bench.directory)

        async def nothing(*_: object) -> None: ...

        async def no(*_: object) -> bool:
            return False

        self.inbox = Inbox(hub, directory, Spool(hub), wake=lambda session: None, unblock=nothing, on_damaged=nothing)
        self.approvals = Approvals(hub, self.inbox, cast(Any, None), cast(Any, self.shown), nudge=lambda: None)
        self.registration = Registration(
            hub, directory, self.approvals, say=self._say, retake=self.retake, project=self._project
        )
        self.router = Router(
            hub,
            directory,
            self.inbox,
            on_action=nothing,
            on_report=nothing,
            on_text_answer=no,
            say=self._say,
            ask=self.registration.ask,
            claim=self.registration.claimed,
            before=nothing,
            ring=lambda session: False,
            wake=lambda session, origin, rung: None,
            entered=nothing,
        )

    async def _say(self, address: Address, message: OutMessage, **_: object) -> None:
        self.said.append((str(address.chat), message.text))

    async def _project(self, group: AgentGroupId) -> None:
        self.projected.append(group)

    async def retake(self) -> None:
        """What the intake does: every unfinished event is routed."""
        from jackfield.models import Event, loads

        for stored in await self.bench.hub.store.read(events.unfinished, 100):
            await self.router.route([StoredEvent(stored.id, loads(Event, stored.body))])

    async def say(
        self, text: str = "hello", *, sender: str | Person = "ann", at: Address = ROOM, **more: Any
    ) -> EventId:
        """Somebody writes, and it is routed."""
        number = next(self._numbers)
        usual: dict[str, Any] = {
            "address": at,
            "dedupe_key": f"m{number}",
            "occurred_at": UnixMs(number),
            "ref": MessageRef(at, (f"p{number}",)),
            "sender": Person(sender, display_name=sender.title()) if isinstance(sender, str) else sender,
            "text": text,
            "is_group": True,
            "addressed": Addressed.MENTION,
            "kind": ConversationKind.GROUP,
        }
        event = MessageReceived(**{**usual, **more})
        accepted = await self.bench.hub.store.write(
            events.accept, "fake", "fake", event.dedupe_key, "MessageReceived", dumps(event), self.bench.clock.now()
        )
        await self.retake()
        await self.bench.hub.store.write(lambda db: None)
        return accepted.event_id

    async def pending(self) -> list[Approval]:
        return await self.bench.hub.store.read(store_approvals.approvals, ApprovalState.PENDING)

    async def decide(self, value: str, by: str = BOSS) -> Approval:
        (item,) = await self.pending()
        await self.approvals.decide(item.id, value, by, Via.CLI)
        await self.settled()
        return await self.approvals.get(item.id)

    async def settled(self) -> None:
        while tasks := [task for task in self.bench.hub._tasks if not task.done()]:
            await asyncio.wait(tasks, timeout=30)
        await self.bench.hub.store.write(lambda db: None)

    async def inboxes(self) -> list[str]:
        """What agents got, in order."""
        rows = await self.bench.hub.store.read(
            lambda db: db.execute("SELECT state, preview FROM inbound ORDER BY ord").fetchall()
        )
        return [f"{state} {preview}" for state, preview in rows]

    async def bodies(self) -> list[str]:
        return [
            body
            for (body,) in await self.bench.hub.store.read(
                lambda db: db.execute("SELECT body FROM events WHERE body <> '' AND state = 'ignored'").fetchall()
            )
        ]

    async def audit(self) -> dict[str, int]:
        rows = await self.bench.hub.store.read(
            lambda db: db.execute("SELECT reason, sum(count) FROM drops GROUP BY reason").fetchall()
        )
        return dict(rows)

    async def agent(self, folder: str) -> AgentGroup:
        group = AgentGroup(
            id=AgentGroupId(new_id("ag")), name=folder.title(), folder=folder, created_at=self.bench.clock.now()
        )
        await self.bench.hub.store.write(groups.add_agent_group, group)
        return group

    async def wire(self, *wired: AgentGroup, policy: UnknownSenderPolicy, at: Address = ROOM, **more: Any) -> None:
        now = self.bench.clock.now()

        def put(db: Any) -> None:
            chat = chats.ensure_messaging_group(db, at, name="Room", is_group=True, policy=policy, now=now)
            for group in wired:
                usual: dict[str, Any] = {
                    "engage_mode": EngageMode.MENTION,
                    "sender_scope": SenderScope.ALL,
                    "ignored_policy": IgnoredPolicy.ACCUMULATE,
                }
                wirings.add_wiring(
                    db,
                    Wiring(
                        id=WiringId(new_id("wr")),
                        messaging_group_id=chat.id,
                        agent_group_id=group.id,
                        engage_pattern=None,
                        session_mode=SessionMode.SHARED,
                        priority=0,
                        origin=WiringOrigin.TRUSTED,
                        created_at=now,
                        **{**usual, **more},
                    ),
                )

        await self.bench.hub.store.write(put)


@asynccontextmanager
async def a_door(root: Path) -> AsyncIterator[Door]:
    async with open_bench(root) as bench:
        yield Door(bench)


ASKS = UnknownSenderPolicy.REQUEST_APPROVAL


# ---- unknown senders


async def test_a_stranger_is_asked_about_once_and_their_first_message_arrives_once(tmp_path: Path) -> None:
    """Appendix D.3; C145."""
    async with a_door(tmp_path / "home") as door:
        await door.wire(door.bench.group, policy=ASKS)
        first = await door.say("let me in")
        for number in range(20):
            await door.say(f"please {number}")
        (item,) = await door.pending()
        assert await door.inboxes() == []
        assert [choice.value for choice in item.choices] == ["allow", "open", "deny"]
        shown = " ".join(f"{field.label}: {field.value}" for field in item.fields)
        assert "fake:ann, called 'Ann'" in shown and "Room" in shown and "Helper" in shown and "let me in" not in shown
        assert len(await door.bodies()) == 1, "the others are not kept"
        assert await door.audit() == {"unknown_sender_request_approval": 21}
        done = await door.decide("allow")
        assert done.outcome_text == "They are answered from now on"
        assert await door.inboxes() == ["queued let me in"]
        assert await door.audit() == {"unknown_sender_request_approval": 20}, "that one was taken after all"
        again = await door.bench.hub.store.read(events.event, first)
        assert again is not None and again.state == "routed"
        await door.say("thanks")
        assert await door.inboxes() == ["queued let me in", "queued thanks"]
        members = await door.bench.hub.store.read(people.members, door.bench.group.id)
        assert [(one.user_id, one.added_by) for one in members] == [("fake:ann", BOSS)]


async def test_a_deed_that_is_repeated_changes_nothing(tmp_path: Path) -> None:
    """C153: a crash comes between deciding and doing, and after it; the message still arrives once."""
    async with a_door(tmp_path / "home") as door:
        await door.wire(door.bench.group, policy=ASKS)
        await door.say("let me in")
        item = await door.decide("allow")
        kind = cast(Any, door.approvals.kinds.find("sender"))
        from jackfield.host.approvals import Decision

        decision = Decision(
            id=item.id, value="allow", approved=True, by=BOSS, payload=json.loads(item.payload),
            agent_group_id=item.agent_group_id, session_id=None, origin=item.origin,
        )  # fmt: skip
        await kind.apply(decision)
        await kind.apply(decision)
        assert kind.idempotent
        assert await door.inboxes() == ["queued let me in"]


async def test_a_denial_is_remembered_and_ends(tmp_path: Path) -> None:
    """C145: fifty posts in two days make one card; pitfall 61."""
    async with a_door(tmp_path / "home") as door:
        await door.wire(door.bench.group, policy=ASKS)
        await door.say("post 0")
        await door.decide("deny")
        assert await door.bodies() == [], "the words of the denied are forgotten"
        for number in range(50):
            door.bench.clock.seconds += 3600
            await door.say(f"post {number}")
        assert await door.pending() == [] and await door.inboxes() == []
        assert (await door.audit())["sender_denied"] == 50
        door.bench.clock.seconds += 30 * DAY / 1000
        await door.say("me again")
        assert len(await door.pending()) == 1


async def test_a_question_that_expired_is_asked_again_and_keeps_no_words(tmp_path: Path) -> None:
    """Neither yes nor no: the next message asks again."""
    async with a_door(tmp_path / "home") as door:
        await door.wire(door.bench.group, policy=ASKS)
        await door.say("let me in")
        door.bench.clock.seconds += 25 * 3600
        await door.approvals.due()
        await door.settled()
        await door.registration.sweep()
        assert await door.pending() == [] and await door.bodies() == []
        await door.say("let me in, please")
        await door.decide("allow")
        assert await door.inboxes() == ["queued let me in, please"]


async def test_opening_the_chat_lets_everybody_in(tmp_path: Path) -> None:
    async with a_door(tmp_path / "home") as door:
        await door.wire(door.bench.group, policy=ASKS, sender_scope=SenderScope.KNOWN)
        await door.say("let me in")
        await door.decide("open")
        await door.say("me too", sender="bob")
        assert await door.inboxes() == ["queued let me in", "queued me too"]


async def test_bots_are_never_asked_about(tmp_path: Path) -> None:
    """C145: also where the channel lets them in; they are unknown, and that is all."""
    async with a_door(tmp_path / "home") as door:
        section = door.bench.directory.instances["fake"].section
        door.bench.directory.instances["fake"].section = replace(section, bots="all")
        await door.wire(door.bench.group, policy=ASKS)
        await door.say("beep", sender=Person("robot", is_bot=True))
        assert await door.pending() == []
        assert await door.audit() == {"unknown_sender_request_approval": 1}


@pytest.mark.parametrize(
    ("bots", "taken"),
    [("none", []), ("mentions", ["queued hey bot", "queued /do it"]), ("all", ["queued hey bot", "queued /do it"])],
)
async def test_a_channel_says_which_bots_are_heard(tmp_path: Path, bots: Any, taken: list[str]) -> None:
    """C228: a bot's reply to our message mentions nobody, and none is heard unless somebody said so."""
    async with a_door(tmp_path / "home") as door:
        instance = door.bench.directory.instances["fake"]
        instance.section = replace(instance.section, bots=bots)
        await door.wire(door.bench.group, policy=UnknownSenderPolicy.PUBLIC, ignored_policy=IgnoredPolicy.DROP)
        robot = Person("robot", is_bot=True)
        await door.say("hey bot", sender=robot, addressed=Addressed.MENTION)
        await door.say("/do it", sender=robot, addressed=Addressed.COMMAND)
        if bots != "all":
            await door.say("as you said", sender=robot, addressed=Addressed.REPLY)
            await door.say("talking to myself", sender=robot, addressed=Addressed.NONE)
        assert await door.inboxes() == taken


async def test_programs_are_never_asked_about(tmp_path: Path) -> None:
    """C145: a webhook's posts."""
    async with a_door(tmp_path / "home") as door:
        door.bench.directory.instances["fake"].info = ChannelInfo(type="fake", title="Fake", programs=True)
        await door.wire(door.bench.group, policy=ASKS)
        await door.say("build failed")
        await door.say("in a new chat", at=replace(ROOM, platform_id="other"))
        assert await door.pending() == []


async def test_only_who_addressed_an_agent_is_asked_about(tmp_path: Path) -> None:
    """Who talks to others in the room wants nothing of the agent."""
    async with a_door(tmp_path / "home") as door:
        await door.wire(door.bench.group, policy=ASKS)
        await door.say("just chatting", addressed=Addressed.NONE)
        assert await door.pending() == [] and await door.inboxes() == [] and await door.bodies() == []


@pytest.mark.parametrize("policy", [UnknownSenderPolicy.STRICT, UnknownSenderPolicy.PUBLIC])
async def test_other_policies_ask_nobody(tmp_path: Path, policy: UnknownSenderPolicy) -> None:
    """Appendix D.4."""
    async with a_door(tmp_path / "home") as door:
        await door.wire(door.bench.group, policy=policy, sender_scope=SenderScope.KNOWN)
        await door.say("let me in")
        assert await door.pending() == [] and await door.inboxes() == []


async def test_whom_nobody_vouches_for_makes_one_card_and_is_let_in_by_opening_only(tmp_path: Path) -> None:
    """C141, C254: a name that anybody can take grants nothing, and a new name for each message floods nobody."""
    async with a_door(tmp_path / "home") as door:
        await door.wire(door.bench.group, policy=ASKS)
        for number in range(5):
            await door.say("let me in", sender=Person(f"nick{number}", trust=Trust.UNVERIFIED))
        (item,) = await door.pending()
        assert [choice.value for choice in item.choices] == ["open", "deny"]
        await door.decide("deny")
        await door.say("let me in", sender=Person("another", trust=Trust.UNVERIFIED))
        assert await door.pending() == []
        await door.say("I am known", sender=Person("ann"))
        assert len(await door.pending()) == 1
        assert await door.bench.hub.store.read(people.users) == []


async def test_a_crowd_of_strangers_floods_nobody(tmp_path: Path) -> None:
    async with a_door(tmp_path / "home") as door:
        await door.wire(door.bench.group, policy=ASKS)
        for number in range(PENDING_IN_CHAT + 5):
            await door.say("let me in", sender=f"user{number}")
        assert len(await door.pending()) == PENDING_IN_CHAT


@pytest.mark.parametrize("agents", [1, 2])
async def test_a_crowd_of_new_chats_floods_nobody_and_holds_up_nobody(tmp_path: Path, agents: int) -> None:
    """Whoever can invite the bot to many rooms makes as many chats as they like."""
    async with a_door(tmp_path / "home") as door:
        if agents > 1:
            await door.agent("other")
        for number in range(PENDING_LIMIT + 3):
            await door.say("hi", at=Address("fake", "fake", f"room{number}"))
        assert len(await door.pending()) == PENDING_LIMIT
        assert await door.bench.hub.store.read(events.unfinished, 100) == [], "nothing is tried for ever"


async def test_one_card_covers_all_agents_that_were_asked_and_no_other(tmp_path: Path) -> None:
    """1.4's caveat: with two agents wired, only the first one's approval was asked for."""
    async with a_door(tmp_path / "home") as door:
        other = await door.agent("other")
        await door.wire(door.bench.group, other, policy=ASKS)
        third = await door.agent("third")
        await door.wire(third, policy=ASKS, engage_mode=EngageMode.PATTERN)
        await door.bench.hub.store.write(
            lambda db: db.execute("UPDATE wirings SET engage_pattern = 'third' WHERE engage_mode = 'pattern'") and None
        )
        await door.say("hello both")
        (item,) = await door.pending()
        assert item.agent_group_id is None, "whoever decides must have the say over both"
        assert [choice.value for choice in item.choices] == ["allow", "deny"], "opening would concern the third, too"
        await door.decide("allow")
        assert await door.inboxes() == ["queued hello both", "queued hello both"]
        await door.say("hello third", addressed=Addressed.NONE)
        assert len(await door.pending()) == 1


async def test_what_changed_meanwhile_counts_when_the_message_is_routed_again(tmp_path: Path) -> None:
    """Roles and wirings are looked at again: an agent that is not wired any more gets nothing."""
    async with a_door(tmp_path / "home") as door:
        other = await door.agent("other")
        await door.wire(door.bench.group, other, policy=ASKS)
        await door.say("hello both")

        def unwire(db: Any) -> None:
            for wiring in wirings.wirings_of_group(db, other.id):
                wirings.remove_wiring(db, wiring.id)

        await door.bench.hub.store.write(unwire)
        await door.decide("allow")
        assert await door.inboxes() == ["queued hello both"]
        assert await door.bench.hub.store.read(people.members, other.id) == []


async def test_a_command_that_lets_somebody_in_takes_the_question_back(tmp_path: Path) -> None:
    """What waited is answered then, and the card asks nobody any more."""
    async with a_door(tmp_path / "home") as door:
        await door.wire(door.bench.group, policy=ASKS)
        await door.say("let me in")
        await door.say("me too", sender="bob")
        await door.registration.reconsider()
        assert len(await door.pending()) == 2 and await door.inboxes() == []
        now, user = door.bench.clock.now(), UserId("fake:ann")

        def add(db: Any) -> None:
            people.ensure_user(db, user, "fake", None, now)
            people.add_member(db, Member(user_id=user, agent_group_id=door.bench.group.id, added_by=None, added_at=now))

        await door.bench.hub.store.write(add)
        await door.registration.reconsider()
        assert await door.inboxes() == ["queued let me in"]
        (left,) = await door.pending()
        (chat,) = await door.bench.hub.store.read(chats.messaging_groups)
        await door.bench.hub.store.write(chats.set_policy, chat.id, UnknownSenderPolicy.PUBLIC)
        await door.registration.reconsider()
        await door.settled()
        assert (await door.approvals.get(left.id)).state is ApprovalState.CANCELLED
        assert await door.inboxes() == ["queued let me in", "queued me too"]


async def test_a_chat_that_the_operator_wires_is_asked_about_no_more(tmp_path: Path) -> None:
    async with a_door(tmp_path / "home") as door:
        await door.say("hello")
        await door.wire(door.bench.group, policy=UnknownSenderPolicy.PUBLIC)
        (chat,) = await door.bench.hub.store.read(chats.messaging_groups)
        await door.bench.hub.store.write(chats.set_policy, chat.id, UnknownSenderPolicy.PUBLIC)
        await door.registration.reconsider()
        assert await door.pending() == [] and await door.inboxes() == ["queued hello"]


# ---- new chats


async def test_a_new_chat_is_asked_about_once_and_wired_with_care(tmp_path: Path) -> None:
    """Appendix D.1, D.2; pitfall 60."""
    async with a_door(tmp_path / "home") as door:
        await door.say("just chatting", addressed=Addressed.NONE)
        assert await door.bench.hub.store.read(chats.messaging_groups) == [], "no rows anywhere"
        await asyncio.gather(*(door.say(f"hello {number}") for number in range(3)))
        (chat,) = await door.bench.hub.store.read(chats.messaging_groups)
        assert chat.unknown_sender_policy is ASKS
        assert await door.audit() == {"no_agent_wired": 3}
        (item,) = await door.pending()
        assert item.agent_group_id == door.bench.group.id
        assert [choice.value for choice in item.choices] == [f"connect:{door.bench.group.id}", "deny"]
        await door.decide(f"connect:{door.bench.group.id}")
        (wiring,) = await door.bench.hub.store.read(wirings.wirings_of_chat, chat.id)
        assert (wiring.engage_mode, wiring.sender_scope, wiring.ignored_policy, wiring.origin) == (
            EngageMode.MENTION_STICKY, SenderScope.KNOWN, IgnoredPolicy.ACCUMULATE, WiringOrigin.CAUTIOUS,
        )  # fmt: skip
        assert len(await door.inboxes()) == 1, "the first one arrives, once"
        assert door.projected == [door.bench.group.id]
        await door.say("who am I", sender="bob")
        assert len(await door.pending()) == 1, "the next stranger there is asked about"


async def test_a_direct_chat_is_wired_to_answer_every_message(tmp_path: Path) -> None:
    """Pitfall 5: by whether others are there, never by threads."""
    async with a_door(tmp_path / "home") as door:
        dm = replace(ROOM, platform_id="dm", thread_id="t1")
        await door.say("hello", at=dm, is_group=False, addressed=Addressed.DM, kind=ConversationKind.DM)
        (item,) = await door.pending()
        assert item.title == "💬 New direct message"
        await door.decide(f"connect:{door.bench.group.id}")
        (chat,) = await door.bench.hub.store.read(chats.messaging_groups)
        (wiring,) = await door.bench.hub.store.read(wirings.wirings_of_chat, chat.id)
        assert wiring.engage_mode is EngageMode.ALWAYS
        assert await door.inboxes() == ["queued hello"]


async def test_an_ignored_chat_is_remembered_and_wiring_it_takes_that_back(tmp_path: Path) -> None:
    """Appendix D.2."""
    async with a_door(tmp_path / "home") as door:
        await door.say("hello")
        await door.decide("deny")
        (chat,) = await door.bench.hub.store.read(chats.messaging_groups)
        assert chat.denied_at is not None
        assert await door.bench.hub.store.read(chats.denied_by) == {chat.id: BOSS}
        await door.say("hello again")
        assert await door.pending() == [] and await door.bodies() == []
        door.bench.clock.seconds += 31 * DAY / 1000
        await door.say("a month later")
        assert len(await door.pending()) == 1


async def test_one_of_several_agents_is_chosen_and_the_rest_is_told_of(tmp_path: Path) -> None:
    async with a_door(tmp_path / "home") as door:
        others = [await door.agent(f"agent{number}") for number in range(9)]
        await door.say("hello")
        (item,) = await door.pending()
        assert item.agent_group_id is None and len(item.choices) == 9
        assert "2 more by `jackfield wire" in " ".join(field.value for field in item.fields)
        await door.decide(f"connect:{others[0].id}")
        members = await door.bench.hub.store.read(people.members, others[0].id)
        assert [one.user_id for one in members] == ["fake:ann"]
        assert await door.bench.hub.store.read(people.members, others[1].id) == []


async def test_names_that_people_and_agents_choose_pass_for_no_others(tmp_path: Path) -> None:
    async with a_door(tmp_path / "home") as door:
        for folder in ("andy", "andy-2"):
            group = AgentGroup(id=AgentGroupId(new_id("ag")), name="Andy", folder=folder, created_at=UnixMs(1))
            await door.bench.hub.store.write(groups.add_agent_group, group)
        await door.say(
            sender=Person("mallory", display_name="Ann (fake:ann)"), conversation_name="Home (fake:fake:home)"
        )
        (item,) = await door.pending()
        shown = {field.label: field.value for field in item.fields}
        assert shown["Sender"] == "fake:mallory, called 'Ann (fake:ann)'"
        assert shown["Chat"] == "a group (fake:fake:room), called 'Home (fake:fake:home)'"
        labels = [choice.label for choice in item.choices]
        assert {"Connect to Andy (andy)", "Connect to Andy (andy-2)"} < set(labels)


async def test_an_agent_that_is_gone_connects_nothing(tmp_path: Path) -> None:
    async with a_door(tmp_path / "home") as door:
        other = await door.agent("other")
        await door.say("hello")
        await door.bench.hub.store.write(groups.remove_agent_group, other.id, door.bench.clock.now())
        done = await door.decide(f"connect:{other.id}")
        assert done.outcome == "failed" and "the agent is gone" in (done.outcome_text or "")


async def test_aliases_of_who_was_let_in_find_them(tmp_path: Path) -> None:
    """C141: an alias finds, and grants nothing."""
    async with a_door(tmp_path / "home") as door:
        await door.wire(door.bench.group, policy=ASKS)
        await door.say("let me in", sender=Person("17", "Robin", aliases=("@Robin",)))
        await door.decide("allow")
        store = door.bench.hub.store
        assert await store.read(people.known_as, "fake", "@robin") == ["fake:17"]
        await door.say("I am @robin", sender=Person("99", "Robin", aliases=("@robin",)))
        await door.say("I am 17", sender=Person("98", "17", aliases=("17",)))
        assert await door.inboxes() == ["queued let me in"]


async def test_where_somebody_wrote_is_found_beside_messages_that_were_forgotten(tmp_path: Path) -> None:
    """A card goes to the chat from which its reader wrote last; of what was ignored only the key is kept."""
    async with a_door(tmp_path / "home") as door:
        dm = replace(ROOM, platform_id="dm")
        await door.wire(door.bench.group, policy=UnknownSenderPolicy.PUBLIC, at=dm, engage_mode=EngageMode.ALWAYS)
        await door.bench.hub.store.write(lambda db: db.execute("UPDATE messaging_groups SET is_group = 0") and None)
        await door.say("just chatting", addressed=Addressed.NONE)
        await door.say("hello", at=dm, is_group=False, addressed=Addressed.DM, kind=ConversationKind.DM)
        await door.say("just chatting", addressed=Addressed.NONE)
        assert await door.bench.hub.store.read(dms.seen, "ann", "fake", "fake") == dm


# ---- the owner


async def a_code(door: Door, minutes: int = 10) -> str:
    code, now = new_code(), door.bench.clock.now()
    claim = claims.Claim(digest=digest_of(code), created_at=now, expires_at=UnixMs(now + minutes * 60_000))
    await door.bench.hub.store.write(claims.add, claim)
    return code


async def owners(door: Door) -> list[str]:
    return [role.user_id for role in await door.bench.hub.store.read(people.all_roles)]


async def test_the_code_makes_its_sender_an_owner_once(tmp_path: Path) -> None:
    async with a_door(tmp_path / "home") as door:
        code = await a_code(door)
        await door.say(f" /claim {code.upper().replace('-', ' ')}", is_group=False, addressed=Addressed.DM)
        await door.say(f"/claim {code}", sender="mallory")
        assert await owners(door) == ["fake:ann"]
        asked_in = await door.bench.hub.store.read(dms.find, UserId("fake:ann"), "fake", "fake")
        assert asked_in == ROOM, "cards come to where the owner wrote"
        assert [text for _, text in door.said] == [
            "You are an owner now: you may do everything, and are asked about what needs a decision.",
            WRONG,
        ]
        stored = await door.bench.hub.store.read(lambda db: list(db.iterdump()))
        assert not any(code in line for line in stored), "neither the code nor the message with it is kept"


async def test_a_used_code_gives_nothing_back_that_was_taken_away(tmp_path: Path) -> None:
    async with a_door(tmp_path / "home") as door:
        code, store = await a_code(door), door.bench.hub.store
        for _ in range(2):
            await door.say(f"/claim {code}")
            assert await owners(door) == ["fake:ann"]
        (role,) = await store.read(people.all_roles)
        await store.write(people.revoke, UserId(role.user_id), role.role)
        await door.say(f"/claim {code}")
        assert await owners(door) == []
        assert door.said[-1][1] == WRONG


async def test_a_claim_reaches_no_agent_and_no_plugin(tmp_path: Path) -> None:
    async with a_door(tmp_path / "home") as door:
        await door.wire(door.bench.group, policy=UnknownSenderPolicy.PUBLIC, engage_mode=EngageMode.ALWAYS)
        code = await a_code(door)
        for text in (f"/claim {code}", "/claim", "@bot /CLAIM nothing", "<@U1> /claim x"):
            await door.say(text)
        assert await door.inboxes() == []
        assert await owners(door) == ["fake:ann"]
        assert "write to me directly" in door.said[0][1]
        await door.say("/claims are many")
        assert await door.inboxes() == ["queued /claims are many"]


async def test_a_stranger_cannot_use_up_or_cancel_the_code(tmp_path: Path) -> None:
    """messaging.md 13.6: any four digits cancelled the pairing."""
    async with a_door(tmp_path / "home") as door:
        code = await a_code(door)
        for number in range(50):
            await door.say(f"/claim wrong-{number:05}", sender="mallory")
        assert len(door.said) == TRIES, "after that there is no answer"
        await door.say(f"/claim {code}", sender="mallory")
        assert await owners(door) == [], "nor does the right code help who has tried too often"
        await door.say(f"/claim {code}", sender="olga")
        assert await owners(door) == ["fake:olga"]


async def test_a_code_ends_and_a_new_one_takes_its_place(tmp_path: Path) -> None:
    async with a_door(tmp_path / "home") as door:
        first = await a_code(door)
        second = await a_code(door)
        await door.say(f"/claim {first}")
        door.bench.clock.seconds += 601
        await door.say(f"/claim {second}")
        assert await owners(door) == []


async def test_a_code_does_not_live_longer_because_the_clock_was_set_back(tmp_path: Path) -> None:
    async with a_door(tmp_path / "home") as door:
        code, now = await a_code(door), door.bench.clock.now()
        store, earlier = door.bench.hub.store, UnixMs(now - 86_400_000)
        assert not await store.write(claims.use, digest_of(code), UserId("fake:ann"), earlier)
        assert await store.write(claims.use, digest_of(code), UserId("fake:ann"), UnixMs(now - 1000))


async def test_whom_nobody_vouches_for_claims_nothing(tmp_path: Path) -> None:
    """C254: a forged sender."""
    async with a_door(tmp_path / "home") as door:
        code = await a_code(door)
        await door.say(f"/claim {code}", sender=Person("boss", trust=Trust.UNVERIFIED))
        assert await owners(door) == [] and door.said == [(str(ROOM), UNSURE)]


def test_a_code_is_long_and_read_without_mistakes() -> None:
    codes = {new_code() for _ in range(2000)}
    assert len(codes) == 2000
    assert not set("".join(codes)) & set("01ilo")
    assert len(digest_of("x")) == 64 and digest_of("abcde-fghjk") == digest_of(" ABCDE FGHJK ")
    assert is_claim("/claim") and not is_claim("claim x") and not is_claim("a /claim x")


@pytest.mark.parametrize("ended", [False, True])
async def test_of_two_agents_the_one_that_was_asked_about_gets_the_message_afterwards(
    tmp_path: Path, ended: bool
) -> None:
    """1.4's caveat; a conversation that was ended meanwhile does not get it a second time."""
    async with a_door(tmp_path / "home") as door:
        other, now, ann = await door.agent("other"), door.bench.clock.now(), UserId("fake:ann")

        def add(db: Any) -> None:
            people.ensure_user(db, ann, "fake", None, now)
            people.add_member(db, Member(user_id=ann, agent_group_id=door.bench.group.id, added_by=None, added_at=now))

        await door.bench.hub.store.write(add)
        await door.wire(door.bench.group, other, policy=ASKS)
        await door.say("hello both")
        assert await door.inboxes() == ["queued hello both"]
        if ended:
            (first,) = await door.bench.hub.store.read(
                lambda db: [one for (one,) in db.execute("SELECT session_id FROM inbound")]
            )
            await door.bench.hub.store.write(sessions.close_session, first, now)
        await door.decide("allow")
        assert await door.inboxes() == ["queued hello both"] * (1 if ended else 2)
        await door.say("and now")
        assert (await door.inboxes())[-2:] == ["queued and now"] * 2
