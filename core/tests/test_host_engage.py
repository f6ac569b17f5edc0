"""Engaging, trigger patterns and mentions."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jackfield.clock import UnixMs
from jackfield.errors import ConfigError
from jackfield.host.engage import check_pattern, decide, mention_in
from jackfield.ids import AgentGroupId, MessagingGroupId, WiringId
from jackfield.models import (
    Address,
    Addressed,
    ConversationKind,
    EngageMode,
    IgnoredPolicy,
    MessageReceived,
    MessageRef,
    Person,
    SenderScope,
    SessionMode,
    Wiring,
    WiringOrigin,
)

ADDRESS = Address("fake", "fake", "group-1")
WIRING = Wiring(
    id=WiringId("wr_1"),
    messaging_group_id=MessagingGroupId("mg_1"),
    agent_group_id=AgentGroupId("ag_1"),
    engage_mode=EngageMode.MENTION,
    engage_pattern=None,
    sender_scope=SenderScope.ALL,
    ignored_policy=IgnoredPolicy.DROP,
    session_mode=SessionMode.SHARED,
    priority=0,
    origin=WiringOrigin.TRUSTED,
    created_at=UnixMs(0),
)


def said(text: str, addressed: Addressed = Addressed.NONE, *, group: bool = True) -> MessageReceived:
    return MessageReceived(
        address=ADDRESS,
        dedupe_key="m-1",
        occurred_at=UnixMs(1),
        ref=MessageRef(ADDRESS, ("m-1",)),
        sender=Person("ann"),
        text=text,
        kind=ConversationKind.GROUP if group else ConversationKind.DM,
        is_group=group,
        addressed=addressed,
    )


def test_in_a_group_only_a_mention_or_a_reply_to_the_bot_starts_a_turn() -> None:
    """C042."""
    engaged = [
        decide(WIRING, event, sticky=False).engage
        for event in (
            said("who has the keys?"),
            said("@otherbot help"),
            said("@ourbot status", Addressed.MENTION),
            said("and tomorrow?", Addressed.REPLY),
        )
    ]
    assert engaged == [False, False, True, True]


def test_a_message_that_the_channel_marked_is_admitted_without_a_mention_list_and_a_drop_has_a_reason() -> None:
    """C046."""
    assert decide(WIRING, said("ok?", Addressed.MENTION), sticky=False).engage
    dropped = decide(WIRING, said("ok?"), sticky=False)
    assert (dropped.engage, dropped.reason) == (False, "not_mentioned")


def test_a_direct_message_counts_as_a_mention() -> None:
    assert decide(WIRING, said("hi", group=False), sticky=False).reason == "dm"


def test_stickiness_counts_only_in_groups_and_only_for_that_mode() -> None:
    sticky = replace(WIRING, engage_mode=EngageMode.MENTION_STICKY)
    assert decide(sticky, said("go on"), sticky=True).reason == "sticky"
    assert not decide(sticky, said("go on"), sticky=False).engage
    assert not decide(WIRING, said("go on"), sticky=True).engage
    channel = replace(said("go on"), is_group=False, kind=ConversationKind.CHANNEL)
    assert not decide(sticky, channel, sticky=True).engage


def test_a_stored_pattern_that_cannot_be_used_engages_nothing() -> None:
    broken = replace(WIRING, engage_mode=EngageMode.PATTERN, engage_pattern="([")
    assert decide(broken, said("anything", Addressed.MENTION), sticky=True).reason == "invalid_pattern"


def test_a_pattern_finds_its_words_anywhere_and_a_dot_means_always() -> None:
    wiring = replace(WIRING, engage_mode=EngageMode.PATTERN, engage_pattern=r"\bkeys?\b")
    assert decide(wiring, said("who has the keys?"), sticky=False).engage
    assert decide(wiring, said("keyboards"), sticky=False).reason == "no_pattern_match"
    assert decide(replace(wiring, engage_pattern="."), said(""), sticky=False).reason == "always"


@pytest.mark.parametrize(
    "pattern", ["", "(", r"(a)\1", "(?=a)b", "(?<!x)a", "(?>a+)b", "a++b", "a{300}", "(a{20}){20}"]
)
def test_a_pattern_whose_cost_has_no_bound_is_refused_when_it_is_written(pattern: str) -> None:
    """C048."""
    with pytest.raises(ConfigError):
        check_pattern(pattern)


HEAVY = ["(a+)+$", "(a|a)*Q", r"(\w+\s?)*!!", "(.*)(.*)(.*)=", "(a|b)*a(a|b){20}c", r"(?i)x.*y.*z.*\bq\b"]


@pytest.mark.parametrize("pattern", HEAVY)
def test_any_accepted_pattern_costs_one_step_a_character(pattern: str) -> None:
    """C048: the time grows with the text's length, not with what it holds."""
    checked = check_pattern(pattern)
    texts = ["a" * 9000 + "!", "ab" * 5000, "word " * 2000, "".join(chr(0x4E00 + n) for n in range(10_000))]
    for text in texts:
        started = time.process_time()
        assert not checked.search(text)
        # Ten times the bound of the case: a backtracking engine would need minutes.
        assert time.process_time() - started < 1.0


def test_a_pattern_looks_at_the_first_ten_thousand_characters() -> None:
    assert check_pattern("z").search("a" * 9_999 + "z")
    assert not check_pattern("z").search("a" * 10_000 + "z")


atoms = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", r"\w", r"\s", r"\b", r"\B", "^", "$", r"\d", "(?:)", "ä", "[a-c]"]
)
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "+?"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
        inner.map(lambda one: f"({one})"),
    ),
    max_leaves=8,
)


@given(patterns, st.text(alphabet="abAB \n1ä_", max_size=12), st.sampled_from(["", "(?i)", "(?m)", "(?s)", "(?a)"]))
@settings(deadline=None, max_examples=400)
def test_an_accepted_pattern_means_what_it_means_to_python(pattern: str, text: str, flags: str) -> None:
    try:
        checked = check_pattern(flags + pattern)
    except ConfigError:
        return
    if r"\B" in pattern and not text:
        return  # Python's own answer for the empty text changed between versions
    assert checked.search(text) == (re.search(flags + pattern, text) is not None)


@pytest.mark.parametrize(
    "text",
    [
        "@sam @Miso what now?",
        "hey miso, @MISO!",
        "miso",
        "(miso)",
        "ok miso.",
        "miso's turn",
        "你好miso你好",
        "**Miso**",
    ],
)
def test_a_name_is_found_as_a_whole_token_anywhere(text: str) -> None:
    """C044."""
    assert mention_in(text, ["Miso"])


@pytest.mark.parametrize(
    "text",
    [
        "@misosoup",
        "mail to x@miso.example",
        "`@Miso`",
        "https://h.example/@Miso",
        "```\n@Miso\n```",
        "miso-soup",
        "xmiso",
        "",
    ],
)
def test_a_name_inside_something_else_is_no_mention(text: str) -> None:
    """C044."""
    assert not mention_in(text, ["@Miso", " ", "@"])


@given(st.text(alphabet="miso@`~ \n.", max_size=40))
def test_looking_for_a_name_never_fails(text: str) -> None:
    mention_in(text, ["miso"])
