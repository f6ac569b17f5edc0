"""Who stands behind a turn: the least of all the people whose messages it took."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from delivery_kit import Bench, open_bench
from hypothesis import given
from hypothesis import strategies as st
from jackfield.api import ActionContext, ActionHandler, ChannelInfo, ResolvedSender, hookimpl
from jackfield.clock import UnixMs
from jackfield.host.actions import Actions
from jackfield.host.authority import NOBODY, Authority, authority, least
from jackfield.ids import EventId, InboundId, OutboundId, RequestId, TurnId, UserId, new_id
from jackfield.models import (
    ActionRequest,
    Address,
    InboundState,
    Member,
    MessageReceived,
    MessageRef,
    OutboundKind,
    OutboundRow,
    Person,
    Role,
    RoleName,
    Session,
    Trust,
)
from jackfield.models.codec import dumps
from jackfield.models.commands import SenderRole
from jackfield.store import events, inbound, people

TURN = TurnId("trn_now")


@dataclass
class Town:
    bench: Bench
    chat: Address
    session: Session

    async def person(self, handle: str, role: SenderRole) -> None:
        bench, user = self.bench, UserId(f"fake:{handle}")

        def make(db: Any) -> None:
            people.ensure_user(db, user, "fake", None, bench.clock.now())
            if role in ("owner", "admin"):
                group = bench.group.id if role == "admin" else None
                people.grant(
                    db,
                    Role(
                        user_id=user, role=RoleName(role), agent_group_id=group, granted_by=None, granted_at=UnixMs(1)
                    ),
                )
            elif role == "member":
                people.add_member(
                    db, Member(user_id=user, agent_group_id=bench.group.id, added_by=None, added_at=UnixMs(1))
                )

        await bench.hub.store.write(make)

    async def message(
        self,
        handle: str | None,
        *,
        turn: TurnId | None = TURN,
        state: InboundState = InboundState.CLAIMED,
        trust: Trust = Trust.PLATFORM,
        address: Address | None = None,
        bot: bool = False,
    ) -> InboundId:
        """A message of the ledger; without a handle a task or notice."""
        now, id = self.bench.clock.now(), InboundId(new_id("in"))
        at = address or self.chat
        event = MessageReceived(
            address=at,
            dedupe_key=id,
            occurred_at=now,
            ref=MessageRef(at, (id,)),
            sender=Person(handle or "-", is_bot=bot, trust=trust),
            text="do it",
        )

        def enter(db: Any) -> None:
            event_id: EventId | None = None
            if handle is not None:
                kind = MessageReceived.__name__
                event_id = events.accept(db, "fake", "fake", id, kind, dumps(event), now).event_id
            inbound.record(
                db, id=id, event_id=event_id, wiring_id=None, session_id=self.session.id, state=InboundState.QUEUED,
                preview="", now=now,
            )  # fmt: skip
            inbound.set_state(db, id, state, now, turn=turn)

        await self.bench.hub.store.write(enter)
        return id

    async def ask(self, turn: TurnId | None = TURN) -> Authority:
        return await authority(self.bench.hub, cast(Any, self.bench.directory), self.session, turn)


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with open_bench(tmp_path / "home") as bench:
        chat = await bench.chat("c-1")
        made = Town(bench, chat, await bench.session(chat))
        for handle, role in (("olga", "owner"), ("adam", "admin"), ("mia", "member"), ("sam", "")):
            await made.person(handle, cast(SenderRole, role))
        yield made


async def test_one_sender_counts_with_their_role_now(town: Town) -> None:
    for handle, role in (("olga", "owner"), ("adam", "admin"), ("mia", "member"), ("sam", ""), ("stranger", "")):
        id = await town.message(handle)
        assert await town.ask() == Authority(cast(SenderRole, role), (UserId(f"fake:{handle}"),), town.chat)
        await town.bench.hub.store.write(inbound.set_state, id, InboundState.COMPLETED, town.bench.clock.now())


async def test_a_turn_of_an_owner_and_a_member_is_a_members(town: Town) -> None:
    """C143: one owner and one member message in a batch."""
    await town.message("olga")
    await town.message("mia")
    assert await town.ask() == Authority("member", (UserId("fake:olga"), UserId("fake:mia")), town.chat)


async def test_what_else_the_runner_has_in_work_counts_whatever_it_says_of_its_turn(town: Town) -> None:
    """A hostile runner can't leave a member's message out by naming another turn for it."""
    await town.message("olga")
    await town.message("mia", turn=TurnId("trn_other"))
    assert (await town.ask()).role == "member"


@pytest.mark.parametrize("state", [InboundState.QUEUED, InboundState.COMPLETED, InboundState.FAILED])
async def test_a_turn_that_does_not_run_stands_for_nobody(town: Town, state: InboundState) -> None:
    await town.message("olga", state=state)
    assert await town.ask() == NOBODY
    assert await town.ask(TurnId("trn_unknown")) == NOBODY
    assert await town.ask(None) == NOBODY


async def test_a_turn_that_took_nothing_stands_for_nobody_while_an_owners_runs(town: Town) -> None:
    """A hostile runner names a turn that there is not, or that is over, for its request."""
    over = await town.message("mia", turn=TurnId("trn_over"))
    await town.bench.hub.store.write(inbound.set_state, over, InboundState.COMPLETED, town.bench.clock.now())
    await town.message("olga")
    for turn in (TurnId("trn_unknown"), TurnId("trn_over"), None):
        assert await town.ask(turn) == NOBODY
    assert (await town.ask()).role == "owner"


async def test_a_task_a_notice_or_an_agents_words_stand_for_nobody(town: Town) -> None:
    await town.message("olga")
    await town.message(None)
    assert await town.ask() == Authority("", (UserId("fake:olga"),), town.chat)


async def test_a_name_that_nobody_vouches_for_stands_for_nobody(town: Town) -> None:
    """C141."""
    await town.message("olga", trust=Trust.UNVERIFIED)
    assert (await town.ask()).role == ""


async def test_a_role_that_was_taken_away_counts_no_more(town: Town) -> None:
    await town.message("olga")
    await town.bench.hub.store.write(people.revoke, UserId("fake:olga"), RoleName.OWNER)
    assert (await town.ask()).role == ""


async def test_programs_that_write_are_nobody(town: Town) -> None:
    await town.message("olga", bot=True)
    assert (await town.ask()).role == ""


async def test_who_writes_by_a_channel_of_programs_is_nobody(town: Town) -> None:
    await town.message("olga")
    instance = town.bench.directory.instances["fake"]
    instance.info = ChannelInfo(type="fake", title="Fake", programs=True)
    assert (await town.ask()).role == ""


async def test_the_operator_of_the_machine_is_an_owner_on_a_local_channel_only(town: Town) -> None:
    await town.message("root", trust=Trust.OPERATOR)
    assert (await town.ask()).role == ""
    town.bench.directory.instances["fake"].info = ChannelInfo(type="fake", title="Fake", local=True)
    assert (await town.ask()).role == "owner"


async def test_plugins_say_who_a_sender_is(town: Town) -> None:
    class Linked:
        @hookimpl
        async def resolve_sender(self, event: MessageReceived) -> ResolvedSender:
            return ResolvedSender(user_id=UserId("fake:olga"), person=event.sender)

    town.bench.plugins.use(("linked", Linked()))
    await town.message("olga-at-work")
    assert await town.ask() == Authority("owner", (UserId("fake:olga"),), town.chat)


async def test_a_turn_that_the_ledger_learns_of_a_moment_later_is_waited_for(town: Town) -> None:
    import asyncio

    asking = asyncio.ensure_future(town.ask())
    await asyncio.sleep(0)
    await town.message("olga")
    assert (await asking).role == "owner"


ROLES: tuple[SenderRole, ...] = ("", "member", "admin", "owner")


@given(st.lists(st.sampled_from(ROLES), max_size=8))
def test_the_least_role_is_no_more_than_any_of_them(roles: list[SenderRole]) -> None:
    found = least(roles)
    assert all(ROLES.index(found) <= ROLES.index(role) for role in roles)
    assert found in [*roles, ""]
    assert all(least(list(order)) == found for order in itertools.islice(itertools.permutations(roles), 24))


# ---- actions


def request(name: str) -> OutboundRow:
    content = ActionRequest(request_id=RequestId(new_id("req")), name=name, arguments="{}")
    return OutboundRow(
        id=OutboundId(new_id("out")), kind=OutboundKind.ACTION, content=content, at=UnixMs(1), epoch=1, turn=TURN
    )


async def test_an_action_hears_who_stands_behind_the_turn(town: Town) -> None:
    heard: list[ActionContext] = []

    async def handle(context: ActionContext, request_id: str, arguments: dict[str, Any]) -> None:
        heard.append(context)

    actions = Actions(town.bench.hub, cast(Any, town.bench.directory), cast(Any, None))
    actions.register(ActionHandler(name="look", handle=handle))
    await town.message("olga")
    await actions.handle(town.session, town.bench.group, request("look"))
    found = heard[0]
    assert (found.turn, found.role, found.users, found.origin) == (TURN, "owner", (UserId("fake:olga"),), town.chat)


async def test_an_action_of_a_tool_set_that_the_group_does_not_have_is_refused(town: Town) -> None:
    """A hostile runner writes its requests itself."""
    done: list[str] = []

    async def handle(context: ActionContext, request_id: str, arguments: dict[str, Any]) -> None:
        done.append(request_id)

    plugins = town.bench.plugins
    plugins.handlers = {"make": ActionHandler(name="make", handle=handle)}
    plugins.owners = {"make": frozenset({"agents"})}
    actions = Actions(town.bench.hub, cast(Any, town.bench.directory), cast(Any, None))
    refused = await actions.handle(town.session, town.bench.group, request("make"))
    assert (refused.status, json.loads(refused.body)["code"]) == ("error", "NotAllowed")
    assert done == []
    folder = town.bench.hub.home.groups / town.bench.group.folder
    folder.mkdir(parents=True)
    (folder / "agent.toml").write_text('tools = ["messaging", "agents"]\n')
    town.bench.hub._agents.clear()
    assert (await actions.handle(town.session, town.bench.group, request("make"))).status == "ok"
    assert len(done) == 1
