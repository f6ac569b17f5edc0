"""Writing to a person first (messaging.md 1.6)."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from approval_kit import CardDesk, open_card_desk
from jackfield.host.dms import DirectChats
from jackfield.ids import UserId, new_id
from jackfield.models import Address, MessageReceived, MessageRef, OpenDm, Person, Trust, UnknownSenderPolicy
from jackfield.models.codec import dumps
from jackfield.store import chats, dms, events

OLGA = UserId("fake:olga")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[CardDesk]:
    async with open_card_desk(tmp_path / "home") as made:
        yield made


async def find(desk: CardDesk, user: UserId = OLGA, channel: str = "fake", instance: str = "fake") -> str | None:
    found = await DirectChats(desk.bench.hub, cast(Any, desk.bench.directory)).ensure(user, channel, instance)
    return None if found is None else found.platform_id


async def wrote(
    desk: CardDesk, chat: str, handle: str = "olga", *, group: bool = False, trust: Any = "platform"
) -> None:
    """Somebody wrote there once."""
    at, now = Address("fake", "fake", chat), desk.bench.clock.now()
    event = MessageReceived(
        address=at,
        dedupe_key=new_id("kk"),
        occurred_at=now,
        ref=MessageRef(at, ("m",)),
        sender=Person(handle, trust=Trust(trust)),
        text="hello",
        is_group=group,
    )
    kind = MessageReceived.__name__
    await desk.bench.hub.store.write(events.accept, "fake", "fake", event.dedupe_key, kind, dumps(event), now)


async def test_a_chat_is_opened_once_and_known_from_then_on(desk: CardDesk) -> None:
    assert await find(desk) == "dm-olga"
    assert await find(desk) == "dm-olga"
    assert desk.channel.opened == ["olga"]
    chat = await desk.bench.hub.store.read(chats.messaging_group_at, Address("fake", "fake", "dm-olga"))
    assert chat is not None
    assert (chat.is_group, chat.unknown_sender_policy) == (False, UnknownSenderPolicy.STRICT)


async def test_where_names_change_hands_the_channel_is_asked_each_time(tmp_path: Path) -> None:
    """A nick of yesterday may be somebody else's today."""
    async with open_card_desk(tmp_path / "home", open_dm=OpenDm.PRIOR_CONTACT) as desk:
        assert await find(desk) == "dm-olga"
        desk.channel.refuses.add("olga")
        await wrote(desk, "alone")
        assert await find(desk) is None
        assert desk.channel.opened == ["olga", "olga"]


async def test_each_instance_has_a_chat_of_its_own_and_none_stands_in_for_another(desk: CardDesk) -> None:
    assert await find(desk) == "dm-olga"
    assert await find(desk, instance="second") is None
    assert await find(desk, channel="other") is None
    desk.bench.directory.instances["fake"].ready.clear()
    assert await find(desk) is None, "not while the channel can't send"


async def test_a_handle_may_hold_colons(desk: CardDesk) -> None:
    assert await find(desk, UserId("fake:29:abc")) == "dm-29:abc"


async def test_where_no_chat_can_be_opened_the_one_counts_from_which_they_wrote(desk: CardDesk) -> None:
    desk.channel.refuses.add("olga")
    assert await find(desk) is None
    await wrote(desk, "group", group=True)
    await wrote(desk, "spoofed", trust="unverified")
    await wrote(desk, "theirs", "otto")
    assert await find(desk) is None
    await wrote(desk, "alone")
    assert await find(desk) == "alone"


async def test_a_chat_that_turned_out_to_be_a_group_is_none(desk: CardDesk) -> None:
    desk.channel.refuses.add("olga")
    await desk.bench.chat("club", group=True)
    await wrote(desk, "club")
    assert await find(desk) is None


async def test_a_channel_that_opens_none_is_not_asked(tmp_path: Path) -> None:
    async with open_card_desk(tmp_path / "home", open_dm=OpenDm.NO) as desk:
        assert await find(desk) is None
        assert desk.channel.opened == []


async def test_whatever_opening_a_chat_raises_nobody_is_reached_then(
    desk: CardDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(person: Person) -> Address:
        raise KeyError("no such person")

    async def elsewhere(person: Person) -> Address:
        return Address("other", "fake", "x")

    monkeypatch.setattr(desk.channel, "open_dm", broken)
    assert await find(desk) is None
    assert desk.bench.hub.troubles == {"channel fake": 1}
    monkeypatch.setattr(desk.channel, "open_dm", elsewhere)
    assert await find(desk) is None


async def test_a_forgotten_chat_is_looked_for_anew(desk: CardDesk) -> None:
    await find(desk)
    await desk.bench.hub.store.write(dms.forget, OLGA, "fake", "fake")
    await find(desk)
    assert desk.channel.opened == ["olga", "olga"]
