"""What updates say: who wrote, where, to whom, and in which words."""

from __future__ import annotations

from typing import Any

import pytest
from jackfield.models import (
    ActionInvoked,
    Addressed,
    AttachmentKind,
    ConversationChange,
    ConversationChanged,
    ConversationKind,
    MessageEdited,
    MessageReceived,
    ReactionChanged,
)
from jackfield_channel_kit.prompt import PromptBook, encode
from jackfield_channel_telegram.reading import Reader

US = {"id": 700, "is_bot": True, "first_name": "Jack", "username": "JackBot"}
ANN = {"id": 11, "is_bot": False, "first_name": "Ann", "last_name": "Lee", "username": "ann"}
GROUP = {"id": -1001, "type": "supergroup", "title": "Kitchen"}
PRIVATE = {"id": 11, "type": "private", "first_name": "Ann"}


@pytest.fixture
def reader() -> Reader:
    return Reader("tg", 700, "JackBot", PromptBook())


def message(text: str = "", chat: dict[str, Any] = GROUP, **fields: Any) -> dict[str, Any]:
    made = {"message_id": 5, "date": 1_700_000_000, "chat": chat, "from": ANN, **fields}
    return made | ({"text": text} if text else {})


def received(reader: Reader, *messages: dict[str, Any], kind: str = "message") -> MessageReceived:
    (event,) = reader.events([{"update_id": number, kind: one} for number, one in enumerate(messages, 1)])
    assert isinstance(event, MessageReceived)
    return event


def entity(kind: str, text: str, part: str, **fields: Any) -> dict[str, Any]:
    start = len(text[: text.index(part)].encode("utf-16-le")) // 2
    return {"type": kind, "offset": start, "length": len(part.encode("utf-16-le")) // 2, **fields}


def test_a_sender_is_known_by_number_and_the_name_is_an_alias(reader: Reader) -> None:
    event = received(reader, message("hi", PRIVATE))
    assert (event.sender.handle, event.sender.display_name, event.sender.aliases) == ("11", "Ann Lee", ("@ann",))
    assert (event.kind, event.is_group, event.addressed) == (ConversationKind.DM, False, Addressed.DM)


@pytest.mark.parametrize(
    ("text", "part", "addressed"),
    [
        ("🎩 @jackbot, look", "@jackbot", Addressed.MENTION),
        ("mail jack@JackBot.example", None, Addressed.NONE),
        ("@jackbot2 look", "@jackbot2", Addressed.NONE),
        ("@JackBot", None, Addressed.NONE),
    ],
)
def test_only_a_marked_mention_of_our_name_addresses_us(
    reader: Reader, text: str, part: str | None, addressed: Addressed
) -> None:
    """C044: the platform's own mark counts, in UTF-16 units, in any case; the letters alone don't."""
    entities = [entity("mention", text, part)] if part else []
    assert received(reader, message(text, entities=entities)).addressed is addressed


def test_a_mention_without_a_name_addresses_by_number(reader: Reader) -> None:
    event = received(reader, message("Jack, look", entities=[entity("text_mention", "Jack, look", "Jack", user=US)]))
    assert (event.addressed, event.mentions) == (Addressed.MENTION, ("700",))


@pytest.mark.parametrize(
    ("text", "command", "shown", "addressed"),
    [
        ("/clear@JackBot", "/clear@JackBot", "/clear", Addressed.COMMAND),
        ("/clear@jackbot now *or* never", "/clear@jackbot", "/clear now \\*or\\* never", Addressed.COMMAND),
        ("/clear", "/clear", "/clear", Addressed.COMMAND),
        ("/set_timer 5", "/set_timer", "/set_timer 5", Addressed.NONE),
        ("/clear@other_bot", "/clear@other_bot", "/clear@other_bot", Addressed.NONE),
    ],
)
def test_a_command_is_ours_when_it_says_so_and_stays_an_exact_token(
    reader: Reader, text: str, command: str, shown: str, addressed: Addressed
) -> None:
    """Messaging.md 17.4, pitfall 13."""
    event = received(reader, message(text, entities=[entity("bot_command", text, command)]))
    assert (event.text, event.addressed) == (shown, addressed)


def test_a_command_keeps_the_markup_behind_it(reader: Reader) -> None:
    text = "/ask@JackBot what is 🎩 bold"
    entities = [entity("bot_command", text, "/ask@JackBot"), entity("bold", text, "bold")]
    assert received(reader, message(text, entities=entities)).text == "/ask what is 🎩 **bold**"


def test_a_reply_to_us_addresses_us_but_not_from_a_bot(reader: Reader) -> None:
    """C228."""
    ours = {"message_id": 4, "date": 1, "chat": GROUP, "from": US, "text": "as I said"}
    event = received(reader, message("why?", reply_to_message=ours))
    assert event.addressed is Addressed.REPLY
    assert event.reply_to is not None
    assert (event.reply_to.platform_id, event.reply_to.text) == ("4", "as I said")
    bot = {**ANN, "is_bot": True}
    event = received(reader, message("why?", reply_to_message=ours, **{"from": bot}))
    assert event.addressed is Addressed.NONE and event.sender.is_bot


def test_what_somebody_quotes_is_the_part_that_they_chose(reader: Reader) -> None:
    long = {"message_id": 4, "date": 1, "chat": GROUP, "from": ANN, "text": "one two three"}
    event = received(reader, message("this", reply_to_message=long, quote={"text": "two", "position": 4}))
    assert event.reply_to is not None and event.reply_to.text == "two"


def test_a_topic_is_a_thread_and_its_first_message_no_reply(reader: Reader) -> None:
    """A bot that opened the topic would be meant by everything in it."""
    root = {"message_id": 3, "date": 1, "chat": GROUP, "from": US, "forum_topic_created": {"name": "x"}}
    event = received(reader, message("hi", message_thread_id=3, is_topic_message=True, reply_to_message=root))
    assert (event.address.thread_id, event.addressed, event.reply_to) == ("3", Addressed.NONE, None)


def test_a_chain_of_replies_is_no_topic(reader: Reader) -> None:
    assert received(reader, message("hi", message_thread_id=3)).address.thread_id is None


def test_an_anonymous_admin_is_the_group_and_a_channel_itself(reader: Reader) -> None:
    """spec 3.1: `from` names a helper account then, which everybody shares."""
    anonymous = {"id": 1087968824, "is_bot": True, "first_name": "Group", "username": "GroupAnonymousBot"}
    event = received(reader, message("hi", sender_chat=GROUP, author_signature="chef", **{"from": anonymous}))
    assert (event.sender.handle, event.sender.display_name, event.sender.is_bot) == ("-1001", "Kitchen (chef)", False)
    post = message(
        "news", {"id": -1002, "type": "channel", "title": "News"}, sender_chat={"id": -1002, "title": "News"}
    )
    del post["from"]
    event = received(reader, post, kind="channel_post")
    assert (event.kind, event.sender.handle, event.is_group) == (ConversationKind.CHANNEL, "-1002", True)


def test_our_own_message_is_marked(reader: Reader) -> None:
    """C230."""
    assert received(reader, message("hi", **{"from": US})).sender.is_self


def test_an_album_is_one_message_with_its_caption_and_every_file(reader: Reader) -> None:
    sizes = [
        {"file_id": "small", "width": 90, "height": 90},
        {"file_id": "big", "file_unique_id": "u", "width": 900, "height": 900},
    ]
    one = message(photo=sizes, caption="two things", media_group_id="g")
    two = message(message_id=6, document={"file_id": "doc", "file_name": "a.pdf", "file_size": 3}, media_group_id="g")
    event = received(reader, one, two)
    assert (event.text, event.ref.ids, event.dedupe_key) == ("two things", ("5", "6"), "m:-1001:5")
    assert [(a.name, a.kind, a.token) for a in event.attachments] == [
        ("photo-5.jpg", AttachmentKind.IMAGE, "big"),
        ("a.pdf", AttachmentKind.FILE, "doc"),
    ]


def test_what_has_no_text_is_told_in_words(reader: Reader) -> None:
    event = received(reader, message(location={"latitude": 1.5, "longitude": -2}))
    assert event.text == "[location: 1.5, -2]"
    assert received(reader, message(dice={"emoji": "🎲", "value": 4})).text == "[dice 🎲: 4]"


@pytest.mark.parametrize("fields", [{"new_chat_photo": []}, {"pinned_message": {}}, {"forum_topic_created": {}}])
def test_service_messages_say_nothing(reader: Reader, fields: dict[str, Any]) -> None:
    assert reader.events([{"update_id": 1, "message": message(**fields)}]) == []


def test_both_messages_of_a_move_are_the_same_event(reader: Reader) -> None:
    old, new = {"id": -7, "type": "group", "title": "K"}, {"id": -1007, "type": "supergroup", "title": "K"}
    (one,) = reader.events([{"update_id": 1, "message": message(chat=old, migrate_to_chat_id=-1007)}])
    (two,) = reader.events([{"update_id": 2, "message": message(chat=new, migrate_from_chat_id=-7)}])
    for event in (one, two):
        assert isinstance(event, ConversationChanged) and event.new_address is not None
        assert event.change is ConversationChange.MIGRATED
        assert (event.address.platform_id, event.new_address.platform_id) == ("-7", "-1007")
    assert one.dedupe_key == two.dedupe_key


def test_edits_in_one_second_are_two_and_the_same_edit_is_one(reader: Reader) -> None:
    """C056."""
    made = [
        reader.events([{"update_id": n, "edited_message": message(text, edit_date=1_700_000_009)}])[0]
        for n, text in enumerate(("a", "b", "b"))
    ]
    assert all(isinstance(one, MessageEdited) for one in made)
    assert made[0].dedupe_key != made[1].dedupe_key == made[2].dedupe_key


def test_reactions_are_told_by_who_added_and_removed_what(reader: Reader) -> None:
    """C064."""
    change = {
        "chat": GROUP, "message_id": 5, "user": ANN, "date": 1_700_000_000,
        "old_reaction": [{"type": "emoji", "emoji": "👍"}],
        "new_reaction": [{"type": "emoji", "emoji": "🎉"}, {"type": "paid"}],
    }  # fmt: skip
    events = reader.events([{"update_id": 8, "message_reaction": change}])
    found = [(one.emoji, one.added, one.user.handle) for one in events if isinstance(one, ReactionChanged)]
    assert found == [("👍", False, "11"), ("🎉", True, "11"), ("⭐", True, "11")]
    assert len({one.dedupe_key for one in events}) == 3


def test_a_click_gives_the_value_and_after_a_restart_the_number(reader: Reader) -> None:
    query = {"id": "q1", "from": ANN, "message": message("?", chat=GROUP), "data": encode("qst_1", 1)}
    (event,) = reader.events([{"update_id": 1, "callback_query": query}])
    assert isinstance(event, ActionInvoked) and (event.prompt_id, event.value, event.responder) == ("qst_1", "#1", "q1")
    reader.prompts.sent("qst_1", ["yes", "no"])
    (event,) = reader.events([{"update_id": 1, "callback_query": query}])
    assert isinstance(event, ActionInvoked) and event.value == "no"


@pytest.mark.parametrize("data", ["", "q:qst_1:0", "p:qst_1:x", "p::0", "p:" + "x" * 80 + ":0"])
def test_a_forged_button_is_no_answer(reader: Reader, data: str) -> None:
    query = {"id": "q1", "from": ANN, "message": message("?"), "data": data}
    assert reader.events([{"update_id": 1, "callback_query": query}]) == []


def test_being_thrown_out_is_told_and_a_promotion_is_not(reader: Reader) -> None:
    def change(old: str, new: str) -> list[Any]:
        member = {
            "chat": GROUP,
            "from": ANN,
            "date": 1,
            "old_chat_member": {"status": old},
            "new_chat_member": {"status": new},
        }
        return [one.change for one in reader.events([{"update_id": 1, "my_chat_member": member}])]  # type: ignore[union-attr]  # these events have one

    assert change("left", "member") == [ConversationChange.ADDED]
    assert change("administrator", "kicked") == [ConversationChange.REMOVED]
    assert change("member", "administrator") == []
