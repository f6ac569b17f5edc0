"""Who may write to an agent, and that nothing of a refused sender is kept (messaging.md 1.3, 2.4)."""

from __future__ import annotations

import pytest
from jackfield.errors import NotFound

from tests.harness.exchange import Exchange


@pytest.fixture
def exchange(exchange_hall: Exchange) -> Exchange:
    return exchange_hall


def assert_refused(exchange: Exchange, chat: str, text: str, reason: str, *, kept: int = 0) -> None:
    """No agent has it; `kept` events keep their words, since somebody is asked about their senders."""
    exchange.wait_for(lambda: exchange.audit(chat).get(reason), f"the audit of {reason}, got {exchange.audit(chat)}")
    assert exchange.state_of(chat) == []
    stored = [path for path in exchange.home.sessions.rglob("inbound.db") if text.encode() in path.read_bytes()]
    assert stored == []
    assert sum(text in body for (body,) in exchange.query("SELECT body FROM events")) == kept


@pytest.mark.parametrize(
    ("policy", "reason"),
    [("strict", "unknown_sender_strict"), ("request_approval", "unknown_sender_request_approval")],
)
def test_a_stranger_is_refused_and_audited_and_stored_nowhere(exchange: Exchange, policy: str, reason: str) -> None:
    """Appendix D.3, D.4; messaging.md 17.4, pitfall 3."""
    chat = f"closed-{policy}"
    exchange.join(chat, policy=policy, ignored="accumulate")
    words = f"let me in by {policy}"
    exchange.say(chat, words, sender="mallory")
    exchange.say(chat, words, sender="mallory")
    exchange.wait_for(lambda: exchange.audit(chat).get(reason) == 2, "two refusals")
    assert_refused(exchange, chat, words, reason, kept=1 if policy == "request_approval" else 0)
    assert exchange.sent(chat) == []
    refused = [one for one in exchange.op("message.list", state="refused") if one["reason"] == reason]
    assert len(refused) == 2 and {one["text"] for one in refused} == {""}
    assert exchange.op("message.show", id=refused[0]["id"]) == refused[0]
    assert not any(one["state"] == "refused" for one in exchange.op("message.list", limit=10_000))


def test_a_refused_sender_does_not_come_in_as_context_either(exchange: Exchange) -> None:
    """messaging.md 2.4: accumulating is no way around access."""
    exchange.join("context", policy="strict", is_group=True, engage="mention", ignored="accumulate")
    exchange.say("context", "a whisper of a stranger", sender="mallory", is_group=True, addressed="none")
    assert_refused(exchange, "context", "a whisper of a stranger", "unknown_sender_strict")


def test_a_public_chat_that_wants_known_people_refuses_strangers(exchange: Exchange) -> None:
    """Appendix D.4."""
    exchange.join("known", policy="public", scope="known")
    exchange.say("known", "hello from nowhere", sender="mallory")
    assert_refused(exchange, "known", "hello from nowhere", "sender_scope")


def test_members_and_owners_are_let_in_and_out_at_once(exchange: Exchange) -> None:
    exchange.join("door", policy="strict")
    exchange.say("door", "knock", sender="mia")
    exchange.wait_for(lambda: exchange.audit("door") == {"unknown_sender_strict": 1}, "the refusal")
    exchange.op("member.add", user="postbox:mia", group="andy")
    exchange.say("door", "as a member", sender="mia")
    exchange.wait_text("door", "as a member")
    exchange.op("member.remove", user="postbox:mia", group="andy")
    exchange.say("door", "not any more", sender="mia")
    exchange.wait_for(lambda: exchange.audit("door") == {"unknown_sender_strict": 2}, "the second refusal")
    exchange.op("owner.add", user="postbox:mia")
    exchange.say("door", "as an owner", sender="mia")
    exchange.wait_text("door", "as an owner")
    exchange.op("owner.remove", user="postbox:mia")
    exchange.say("door", "once an owner", sender="mia")
    exchange.wait_for(lambda: exchange.audit("door") == {"unknown_sender_strict": 3}, "the third refusal")
    assert exchange.texts("door") == ["You said: as a member", "You said: as an owner"]


def test_an_admin_is_let_in_and_gives_orders_and_a_member_does_not(exchange: Exchange) -> None:
    """Architecture 8: an admin of one group is none of another; the audit is shown to the operator."""
    exchange.join("ranks", policy="strict")
    assert exchange.op("admin.add", user="postbox:ada", group="andy", name="Ada")["changed"]
    assert not exchange.op("admin.add", user="postbox:ada", group="andy")["changed"]
    assert [(one["user"], one["group"]) for one in exchange.op("admin.list")] == [("postbox:ada", "andy")]
    exchange.say("ranks", "/clear", sender="ada")
    exchange.wait_text("ranks", "Session cleared.")
    exchange.op("admin.remove", user="postbox:ada", group="andy")
    exchange.say("ranks", "and now", sender="ada")
    exchange.wait_for(lambda: exchange.audit("ranks") == {"unknown_sender_strict": 1}, "the refusal")
    (drop,) = [one for one in exchange.op("channel.drops") if one["chat"] == "postbox:box:ranks"]
    assert (drop["sender"], drop["group"], drop["count"]) == ("ada", "andy", 1)
    with pytest.raises(NotFound):
        exchange.op("admin.remove", user="postbox:ada", group="andy")


def test_a_name_that_the_platform_does_not_vouch_for_is_nobodys(exchange: Exchange) -> None:
    """C141, C254."""
    exchange.op("member.add", user="postbox:olga", group="andy")
    exchange.join("forged", policy="strict")
    exchange.say("forged", "I am Olga, really", sender="olga", trust="unverified")
    assert_refused(exchange, "forged", "I am Olga, really", "unknown_sender_strict")


def test_a_handle_that_looks_like_somebodys_id_is_not_theirs(exchange: Exchange) -> None:
    """messaging.md 1.3: what holds a colon was taken for a full id; C141."""
    exchange.op("member.add", user="postbox:otto", group="andy")
    exchange.join("colon", policy="strict")
    exchange.say("colon", "I am Otto", sender="postbox:otto", name="otto", aliases=["otto", "postbox:otto"])
    assert_refused(exchange, "colon", "I am Otto", "unknown_sender_strict")
    exchange.op("member.add", user="postbox:29:abc", group="andy")
    exchange.say("colon", "a handle of Teams", sender="29:abc")
    exchange.wait_text("colon", "a handle of Teams")


def test_a_channel_cannot_claim_that_its_sender_is_the_operator(exchange: Exchange) -> None:
    exchange.join("claimed", policy="strict")
    exchange.say("claimed", "I am root", sender="root", trust="operator")
    assert_refused(exchange, "claimed", "I am root", "unknown_sender_strict")


def test_what_bots_write_starts_no_turn(exchange: Exchange) -> None:
    """C228: nor does their answer to us, however often it comes; C232: nor a bridge's copy from another chat."""
    exchange.join("bots")
    exchange.join("bridged")
    exchange.say("bridged", "hi")
    exchange.wait_sent("bridged", 1)
    for _ in range(20):
        exchange.say("bots", "beep", sender="robot", is_bot=True, addressed="reply")
    exchange.say("bots", "[bridged] ann: hi", sender="bridge", is_bot=True)
    exchange.wait_for(
        lambda: exchange.query("SELECT COUNT(*) FROM events WHERE state = 'ignored' AND reason = 'bot'") == [(21,)],
        "the events' ends",
    )
    assert exchange.state_of("bots") == [] and exchange.texts("bots") == []
    assert exchange.texts("bridged") == ["You said: hi"]


def test_a_message_of_its_own_that_comes_back_starts_no_turn(exchange: Exchange) -> None:
    """C092."""
    exchange.join("echo")
    exchange.say("echo", "hello")
    sent = exchange.wait_sent("echo", 1)[0]
    exchange.wait_for(lambda: exchange.query("SELECT 1 FROM sent_messages LIMIT 1"), "the record of the send")
    exchange.say("echo", sent["text"], id=sent["id"], sender="somebody")
    exchange.say("echo", "a new one")
    exchange.wait_text("echo", "a new one")
    assert exchange.texts("echo") == ["You said: hello", "You said: a new one"]
