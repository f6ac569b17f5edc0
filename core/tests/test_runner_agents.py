"""What a runner makes of messages between agents: names, places, and what is for people only."""

from __future__ import annotations

from jackfield.clock import UnixMs
from jackfield.ids import AgentGroupId, InboundId
from jackfield.models import AGENT_CHANNEL, Address, ChatContent, Destination, DestinationKind, InboundKind, InboundRow
from jackfield.runner.addressing import CURRENT, Target, resolve
from jackfield.runner.prompt import format_prompt, name_of, parse_prompt

PARENT = AgentGroupId("ag_00000000000000000001")
ASKED_IN = Address(AGENT_CHANNEL, AGENT_CHANNEL, PARENT, "ses_00000000000000000001")
CHAT = Address("telegram", "work", "42")
DESTINATIONS = [
    Destination(name="parent", kind=DestinationKind.AGENT, display_name="Andy", agent_group_id=PARENT),
    Destination(name="family", kind=DestinationKind.CHANNEL, display_name="Family", address=CHAT),
]


def row(origin: Address, sender_id: str) -> InboundRow:
    content = ChatContent(text="hi", sender="Andy", sender_id=sender_id)
    return InboundRow(
        id=InboundId("in_00000000000000000001"),
        kind=InboundKind.CHAT,
        content=content,
        at=UnixMs(0),
        origin=origin,
        seq=2,
    )


def test_the_agent_that_asked_is_shown_by_the_name_that_its_reader_has_for_it() -> None:
    """messaging.md 11.1, appendix D.20."""
    (shown,) = parse_prompt(
        format_prompt([row(ASKED_IN, f"agent:{PARENT}")], timezone="UTC", destinations=DESTINATIONS)
    )[1:]
    assert (shown.attributes["from"], shown.attributes["sender"]) == ("parent", "Andy")
    assert name_of(ASKED_IN, []) == f"unknown:agent:{PARENT}"


def test_an_agents_answer_comes_from_that_agent_wherever_it_is_wanted() -> None:
    (shown,) = parse_prompt(format_prompt([row(CHAT, f"agent:{PARENT}")], timezone="UTC", destinations=DESTINATIONS))[
        1:
    ]
    assert shown.attributes["from"] == "parent"


def test_the_agent_that_asked_is_answered_where_it_asked_by_every_name() -> None:
    for name in ("parent", "Andy", "PARENT"):
        assert resolve(name, DESTINATIONS, ASKED_IN) == Target("parent", ASKED_IN, None, "parent")
    assert resolve(None, DESTINATIONS, ASKED_IN) == Target(CURRENT, ASKED_IN)
    assert resolve(f"unknown:agent:{PARENT}", [], ASKED_IN) == Target(CURRENT, ASKED_IN)


def test_another_agent_is_addressed_by_its_id_and_its_conversation_is_the_hosts_choice() -> None:
    target = resolve("parent", DESTINATIONS, CHAT)
    assert target == Target("parent", None, PARENT, "parent")
    assert target is not None and target.is_agent
    place = resolve("family", DESTINATIONS, ASKED_IN)
    assert place is not None and not place.is_agent
