"""Which messages share a session: three modes, with threads and without (messaging.md 2.5, appendix D.6, D.7; C050)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.exchange import Exchange, prepared


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    root = tmp_path_factory.mktemp("threads")
    with prepared(
        root, host_settings="max_runners = 16", postbox_settings="threads = true\ntext_limit = 60"
    ) as exchange:
        yield exchange.start()


def sessions_of(exchange: Exchange, chat: str) -> set[tuple[str, str | None]]:
    return set(
        exchange.query(
            "SELECT s.id, s.thread_id FROM sessions s JOIN messaging_groups m ON m.id = s.messaging_group_id "
            f"WHERE m.platform_id = '{chat}'"
        )
    )


def test_each_thread_of_a_group_has_its_own_session_and_gets_its_own_answers(exchange: Exchange) -> None:
    """Appendix D.6."""
    exchange.join("forum", is_group=True)
    for thread in ("t1", "t2", None):
        exchange.say("forum", f"in {thread}", is_group=True, addressed="none", thread=thread)
    got = {(item["thread"], item["text"]) for item in exchange.wait_sent("forum", 3)}
    assert got == {(thread, f"You said: in {thread}") for thread in ("t1", "t2", None)}
    assert {thread for _, thread in sessions_of(exchange, "forum")} == {"t1", "t2", None}


def test_the_threads_of_a_direct_chat_share_one_session_but_answers_go_where_they_belong(exchange: Exchange) -> None:
    """Appendix D.6."""
    exchange.join("direct")
    exchange.say("direct", "one", thread="a")
    exchange.say("direct", "two", thread="b")
    got = {(item["thread"], item["text"]) for item in exchange.wait_sent("direct", 2)}
    assert got == {("a", "You said: one"), ("b", "You said: two")}
    assert len(sessions_of(exchange, "direct")) == 1


def test_an_agent_may_share_one_session_over_all_its_chats(exchange: Exchange) -> None:
    """Appendix D.7."""
    exchange.add_agent("sharon")
    exchange.join("x", "sharon", session="agent-shared")
    exchange.join("y", "sharon", session="agent-shared", is_group=True)
    exchange.say("x", "from x")
    exchange.say("y", "from y", is_group=True, thread="t9", addressed="none")
    assert exchange.wait_sent("x", 1)[0]["text"] == "You said: from x"
    answer = exchange.wait_sent("y", 1)[0]
    assert (answer["text"], answer["thread"]) == ("You said: from y", "t9")
    assert len(sessions_of(exchange, "x")) + len(sessions_of(exchange, "y")) == 1


def test_every_part_every_file_and_every_reaction_stays_in_the_thread(exchange: Exchange) -> None:
    """C050."""
    exchange.join("stay", is_group=True)
    exchange.say(
        "stay",
        'mock: write note.txt hello mock: tool send_file {"path": "note.txt"} '
        'mock: tool send_message {"text": "by tool"} mock: say ' + "many words " * 15,
        is_group=True, addressed="mention", thread="1700.55",
    )  # fmt: skip
    exchange.wait_for(lambda: len(exchange.sent("stay")) >= 5, f"file, message and parts, got {exchange.sent('stay')}")
    assert {item["thread"] for item in exchange.sent("stay")} == {"1700.55"}


def test_attention_won_in_one_thread_is_for_that_thread(exchange: Exchange) -> None:
    """Bug B of messaging.md 2.3."""
    exchange.join("listen", is_group=True, engage="mention-sticky")
    exchange.say("listen", "@bot", is_group=True, addressed="mention", thread="t1")
    exchange.wait_text("listen", "@bot")
    exchange.say("listen", "elsewhere", is_group=True, addressed="none", thread="t2")
    exchange.say("listen", "go on", is_group=True, addressed="none", thread="t1")
    exchange.wait_text("listen", "go on")
    exchange.wait_for(lambda: exchange.audit("listen") == {"no_agent_engaged": 1}, "the audit of the other thread")
    assert not any("elsewhere" in text for text in exchange.texts("listen"))


def test_two_people_never_share_a_direct_session(exchange: Exchange) -> None:
    """C126."""
    exchange.join("dm-jo")
    exchange.join("dm-di")
    exchange.say("dm-jo", "I am jo", sender="jo")
    exchange.say("dm-di", "mock: recall", sender="di")
    exchange.wait_sent("dm-jo", 1)
    assert "jo" not in exchange.wait_sent("dm-di", 1)[0]["text"]
    assert sessions_of(exchange, "dm-jo").isdisjoint(sessions_of(exchange, "dm-di"))
