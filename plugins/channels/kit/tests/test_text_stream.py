"""A message that grows by edits."""

from __future__ import annotations

import pytest
from jackfield.clock import UnixMs
from jackfield.errors import BadContent, RateLimited, Transient
from jackfield.models import OutMessage, TextUnit
from jackfield_channel_kit.text.split import rendered_parts
from jackfield_channel_kit.text.stream import CUT_OFF, EditStream, completed


class Hand:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.at = 100.0

    def now(self) -> UnixMs:
        return UnixMs(int(self.at * 1000))

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


class Chat:
    """A platform's edge: messages by id, and what fails next."""

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}
        self.calls: list[str] = []
        self.keys: list[str | None] = []
        self.fails: list[Exception] = []

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.fails:
            raise self.fails.pop(0)

    async def send(self, text: str, key: str | None) -> str:
        self._called("send")
        self.keys.append(key)
        self.messages[f"m{len(self.keys)}"] = text
        return f"m{len(self.keys)}"

    async def edit(self, message_id: str, text: str) -> None:
        self._called("edit")
        self.messages[message_id] = text

    async def delete(self, message_id: str) -> None:
        self._called("delete")
        del self.messages[message_id]


def shown(text: str) -> list[str]:
    return [part for _, part in rendered_parts(text, 100, TextUnit.UTF16, "telegram-html")]


def stream(chat: Chat, clock: Hand, *, deletes: bool = True, limit_parts: int = 4) -> EditStream:
    delete = chat.delete if deletes else None
    return EditStream(chat.send, chat.edit, delete, interval=1.0, clock=clock, render=shown, limit_parts=limit_parts)


async def test_the_first_update_sends_and_later_ones_edit_no_faster_than_the_interval() -> None:
    chat, clock = Chat(), Hand()
    growing = stream(chat, clock)
    for text in ("Hello", "Hello **wo", "Hello **world", "Hello **world**"):
        await growing.update(text)
        clock.at += 0.5
    assert chat.calls == ["send", "edit"] and chat.messages == {"m1": "Hello <b>world</b>"}
    result = await growing.finish(OutMessage(text="Hello **world**!"), idempotency_key="k")
    assert chat.messages == {"m1": "Hello <b>world</b>!"} and result.ids == ("m1",)


async def test_equal_text_is_never_sent_again() -> None:
    """C058."""
    chat, clock = Chat(), Hand()
    growing = stream(chat, clock)
    await growing.update("Done.")
    await growing.finish(OutMessage(text="Done."), idempotency_key="k")
    assert chat.calls == ["send"]
    chat.fails = [BadContent("message is not modified")]
    result = await growing.finish(OutMessage(text="Done!"), idempotency_key="k")
    assert result.ids == ("m1",) and chat.calls == ["send", "edit"]


async def test_a_long_text_flows_into_further_messages() -> None:
    chat, clock = Chat(), Hand()
    growing = stream(chat, clock, limit_parts=2)
    text = "word " * 70
    await growing.update(text)
    assert len(chat.messages) == 2
    result = await growing.finish(OutMessage(text=text), idempotency_key="k")
    assert result.ids == ("m1", "m2", "m3", "m4") and chat.keys == [None, None, "k:3", "k:4"]
    assert " ".join(chat.messages.values()).split() == text.split()


async def test_messages_that_the_final_text_does_not_need_go() -> None:
    chat, clock = Chat(), Hand()
    growing = stream(chat, clock)
    await growing.update("word " * 50)
    result = await growing.finish(OutMessage(text="short"), idempotency_key="k")
    assert chat.messages == {"m1": "short"} and result.ids == ("m1",)


async def test_a_rate_limit_slows_the_updates_down() -> None:
    chat, clock = Chat(), Hand()
    growing = stream(chat, clock)
    await growing.update("a")
    clock.at += 1
    chat.fails = [RateLimited("slow down", retry_after=5.0)]
    await growing.update("ab")
    clock.at += 4
    await growing.update("abc")
    assert chat.calls == ["send", "edit"]
    clock.at += 1
    await growing.update("abcd")
    clock.at += 1.5
    await growing.update("abcde")
    assert chat.messages == {"m1": "abcd"}
    chat.fails = [RateLimited("slow down", retry_after=5.0)]
    with pytest.raises(RateLimited):
        await growing.finish(OutMessage(text="end"), idempotency_key="k")


async def test_what_failed_half_way_goes_on_where_it_was() -> None:
    chat, clock = Chat(), Hand()
    growing = stream(chat, clock)
    await growing.update("start")
    text = "word " * 40
    chat.fails = [None, Transient("gone")][1:]
    with pytest.raises(Transient):
        await growing.finish(OutMessage(text=text), idempotency_key="k")
    result = await growing.finish(OutMessage(text=text), idempotency_key="k")
    assert len(result.ids) == 2 and " ".join(chat.messages.values()).split() == text.split()


async def test_an_aborted_message_is_taken_away_or_marked() -> None:
    chat, clock = Chat(), Hand()
    growing = stream(chat, clock)
    await growing.update("half an ans")
    await growing.abort()
    assert chat.messages == {}
    marked = stream(chat, clock, deletes=False)
    await marked.update("half an **ans")
    await marked.abort()
    assert list(chat.messages.values()) == ["half an <b>ans</b>\n\n<i>(cut off)</i>"] and CUT_OFF == "*(cut off)*"


@pytest.mark.parametrize(
    ("partial", "expected"),
    [
        ("**bo", "**bo**"),
        ("a **b *c", "a **b *c***"),
        ("x `co", "x `co`"),
        ("```py\nx = 1", "```py\nx = 1\n```"),
        ("```py\nx\n``", "```py\nx\n```"),
        ("see [link", "see"),
        ("see [l](http://x", "see"),
        ("snake_ca", "snake_ca"),
        ("2 * 3", "2 * 3"),
        ("a **", "a "),
        ("done **b** x", "done **b** x"),
        ("```\na\n```\n**b", "```\na\n```\n**b**"),
    ],
)
def test_what_is_open_is_closed_for_the_eye(partial: str, expected: str) -> None:
    assert completed(partial).rstrip() == expected.rstrip()
