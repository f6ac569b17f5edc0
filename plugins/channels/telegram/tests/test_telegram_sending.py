"""What the core sends, as people see it and as the Bot API is asked."""

from __future__ import annotations

import asyncio
import logging
import sys
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from jackfield.api import ActionReply
from jackfield.errors import BadContent, ChatNotFound, Migrated, RateLimited, SendNotAllowed, TooLarge, Unsupported
from jackfield.models import (
    ActionInvoked,
    Attachment,
    Card,
    CardField,
    CardLink,
    Choice,
    MessageReceived,
    MessageRef,
    OutFile,
    OutMessage,
    Person,
    Prompt,
)
from jackfield.testing import ManualClock
from jackfield_channel_kit.limits import Buckets
from jackfield_channel_kit.testing.telegram import TelegramFake
from jackfield_channel_kit.testing.telegram_wire import utf16
from jackfield_channel_telegram.api import rates
from jackfield_channel_telegram.reactions import chosen
from running import GROUP, PRIVATE, chat, running

TABLE = "# Prices\n\n| what | how much |\n| --- | --- |\n| tea & <cake> | $5 |\n\n- one\n- two"


async def send(line, message: OutMessage | str, number: int = PRIVATE, thread: int | None = None):  # type: ignore[no-untyped-def]  # the fixture's type is its own
    message = OutMessage(text=message) if isinstance(message, str) else message
    return await line.channel.send(chat(number, thread), message, idempotency_key="dl_1")


def refused(code: int, description: str) -> dict[str, object]:
    return {"ok": False, "error_code": code, "description": description}


def file(folder: Path, name: str, data: bytes, mime: str | None = None) -> OutFile:
    path = folder / f"source-{len(list(folder.iterdir()))}"
    path.write_bytes(data)
    return OutFile(name=name, path=str(path), size=len(data), mime=mime)


# ---- text


async def test_a_table_goes_as_a_rich_message_and_plain_words_as_an_ordinary_one(tmp_path: Path) -> None:
    """spec 1.10."""
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        await send(line, "just **words** & <b>raw</b>")
        assert fake.sent("sendMessage")[0].json() == {
            "chat_id": PRIVATE,
            "text": "just <b>words</b> &amp; &lt;b&gt;raw&lt;/b&gt;",
            "parse_mode": "HTML",
        }
        await send(line, TABLE)
        rich = fake.sent("sendRichMessage")[0].json()["rich_message"]["html"]
        assert "<h1>Prices</h1>" in rich and "<td>tea &amp; &lt;cake&gt;</td>" in rich and "<thead>" not in rich


async def test_a_refused_rich_message_goes_as_an_ordinary_one(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        refusal = refused(400, "Bad Request: can't parse rich message")
        fake.fail_next(400, refusal, method="sendRichMessage")
        result = await send(line, TABLE)
        assert len(result.ids) == 1 and "tea & <cake>" in (await line.see("message")).text
        await send(line, TABLE)
        assert len(fake.sent("sendRichMessage")) == 2, "one refusal is no reason to give rich messages up"


async def test_a_server_without_rich_messages_is_asked_once(tmp_path: Path) -> None:
    """A long rich message becomes as many ordinary ones as it takes, and all ids come back."""
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        fake.unknown_methods = {"sendRichMessage"}
        words = " ".join(f"w{number}" for number in range(2000))
        result = await send(line, words)
        assert len(result.ids) == 3 == len(fake.sent("sendMessage"))
        await send(line, TABLE)
        assert len(fake.sent("sendRichMessage")) == 1


@pytest.mark.parametrize("rich", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        "**x** & y < z\n" * 900,
        "🎩" * 6300,
        "```py\n" + "row = f(1)\n" * 900 + "```",
        "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 2500,
    ],
    ids=["escaped", "utf16", "code", "table"],
)  # fmt: skip
async def test_each_part_fits_after_rendering(tmp_path: Path, text: str, rich: bool) -> None:
    """C021, C025, C027: what is sent is measured, in Telegram's own units."""
    async with TelegramFake() as fake, running(fake, tmp_path, rich=rich) as line:
        parts = line.channel.split(chat(), OutMessage(text=text))
        for part in parts:
            result = await line.channel.send(chat(), part, idempotency_key="dl_1")
            assert len(result.ids) == 1, "a part of a split message became several"
        for request in fake.sent("sendMessage"):
            assert utf16(request.json()["text"]) <= 4096
        for request in fake.sent("sendRichMessage"):
            assert len(request.json()["rich_message"]["html"]) <= 32_768


async def test_refused_markup_is_told_and_plain_text_goes_without_a_parser(tmp_path: Path) -> None:
    """channels.md R7: the core sends once more, plain."""
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        refusal = refused(400, "Bad Request: can't parse entities: no")
        fake.fail_next(400, refusal, method="sendMessage")
        with pytest.raises(BadContent):
            await send(line, "*hi*")
        await send(line, OutMessage(text="*hi* _a_b <c>", plain=True))
        sent = fake.sent("sendMessage")[-1].json()
        assert "parse_mode" not in sent and "<c>" in sent["text"]


async def test_an_answer_goes_to_its_topic_as_a_quiet_reply(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        asked = await fake.say("?", chat=GROUP, thread=7)
        ref = MessageRef(chat(GROUP, 7), (str(asked["message_id"]),))
        await send(line, OutMessage(text="!", reply_to=ref, silent=True), GROUP, 7)
        seen = await line.see("message")
        assert (seen.thread, seen.message["reply_to_message"]["text"]) == (7, "?")
        assert fake.sent("sendMessage")[0].json()["disable_notification"] is True
        gone = MessageRef(chat(GROUP, 7), ("99999",))
        assert (await send(line, OutMessage(text="!", reply_to=gone), GROUP, 7)).ids, (
            "a deleted question ate the answer"
        )


async def test_what_shows_nothing_is_refused(tmp_path: Path) -> None:
    """Silence would count as sent."""
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        with pytest.raises(BadContent):
            await send(line, " \n ")


# ---- refusals


async def test_a_group_that_moved_is_told_with_its_new_place(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        await fake.migrate(-7, -1007)
        with pytest.raises(Migrated) as caught:
            await send(line, "hi", -7)
        assert caught.value.new_platform_id == "-1007"


async def test_the_wait_is_the_one_that_telegram_asks_for(tmp_path: Path) -> None:
    """C077."""
    async with TelegramFake() as fake, running(fake, tmp_path, pacing=True) as line:
        body = {"ok": False, "error_code": 429, "description": "Too Many Requests", "parameters": {"retry_after": 31}}
        fake.fail_next(429, body, method="sendMessage")
        for _ in range(2):  # the second is not even tried
            with pytest.raises(RateLimited) as caught:
                await send(line, "hi")
            assert 30 < caught.value.retry_after <= 31
        assert len(fake.sent("sendMessage")) == 1
        await send(line, "another chat", 12)


async def test_the_limits_of_chats_and_groups_are_kept() -> None:
    """C083: one a second to a chat, twenty a minute to a group."""
    clock = ManualClock()
    buckets = Buckets(rates, patience=100.0)
    times: list[float] = []

    async def work(name: str, count: int) -> None:
        for _ in range(count):
            await buckets.take(name, clock)
            times.append(clock.monotonic() - 1000.0)

    task = asyncio.create_task(work(str(GROUP), 25))
    await clock.until_sleeping()
    await clock.advance(120)
    await task
    assert all(later - earlier >= 1.0 for earlier, later in pairwise(times))
    assert times[20] >= 60.0
    times.clear()
    task = asyncio.create_task(work("11", 25))
    await clock.until_sleeping()
    await clock.advance(120)
    await task
    assert times[-1] - times[0] == pytest.approx(24.0)


async def test_the_token_is_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """C133: it is part of every URL, also of files."""
    caplog.set_level(logging.DEBUG)
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        errors: list[BaseException] = []
        fake.drop_after_send(method="sendMessage")
        fake.fail_next(404, "no", method="documents")
        for call in (send(line, "hi"), _read(line, Attachment("u", "a", token="nowhere"))):
            with pytest.raises(Exception) as caught:
                await call
            errors.append(caught.value)
        secret = fake.token.split(":")[1]
        told = [
            *map(repr, errors),
            *map(str, errors),
            repr(line.channel),
            *caplog.messages,
            *map(repr, line.context.statuses),
        ]
        assert not [one for one in told if secret in one]


# ---- edits


async def test_an_edit_of_a_split_message_edits_adds_and_removes_parts(tmp_path: Path) -> None:
    """channels.md R8."""
    async with TelegramFake() as fake, running(fake, tmp_path, rich=False) as line:
        long = " ".join(f"w{number}" for number in range(2000))
        ids = (await send(line, long)).ids
        assert len(ids) == 3
        shorter = await line.channel.edit(MessageRef(chat(), ids), OutMessage(text=long[:5000]))
        assert shorter.ids == ids[:2] and (PRIVATE, int(ids[2])) not in fake.messages
        longer = await line.channel.edit(MessageRef(chat(), shorter.ids), OutMessage(text=long))
        assert longer.ids[:2] == ids[:2] and len(longer.ids) == 3
        assert "".join(fake.messages[PRIVATE, int(one)]["text"] for one in longer.ids).replace(" ", "") == long.replace(
            " ", ""
        )


async def test_an_edit_that_changes_nothing_is_fine(tmp_path: Path) -> None:
    """C058."""
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        ids = (await send(line, "Done.")).ids
        assert (await line.channel.edit(MessageRef(chat(), ids), OutMessage(text="Done."))).ids == ids
        assert len(fake.messages) == 1


async def test_an_edit_keeps_files_and_changes_the_caption(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        files = (file(tmp_path, "a.bin", b"1"), file(tmp_path, "b.bin", b"2"))
        ids = (await send(line, OutMessage(text="befor", files=files))).ids
        assert len(ids) == 2
        assert (await line.channel.edit(MessageRef(chat(), ids), OutMessage(text="before"))).ids == ids
        assert fake.messages[PRIVATE, int(ids[0])]["caption"] == "before"


async def test_an_ordinary_message_may_become_a_rich_one_and_back(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        ids = (await send(line, "words")).ids
        ref = MessageRef(chat(), ids)
        await line.channel.edit(ref, OutMessage(text=TABLE))
        assert "rich_message" in fake.messages[PRIVATE, int(ids[0])]
        await line.channel.edit(ref, OutMessage(text="words again"))
        assert fake.messages[PRIVATE, int(ids[0])]["text"] == "words again"


async def test_deleting_what_is_gone_is_fine(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        ref = MessageRef(chat(), (await send(line, "x")).ids)
        await line.channel.delete(ref)
        await line.channel.delete(ref)
        assert not fake.messages


# ---- reactions, typing, people


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("thumbs_up", "👍"), ("+1", "👍"), (":+1:", "👍"), ("👍", "👍"), ("👍🏽", "👍"), ("-1", "👎"),
        ("❤️", "❤"), ("❤", "❤"), ("☃️", "☃"), ("✍️", "✍"), ("🤷‍♂️", "🤷‍♂"),
    ],
)  # fmt: skip
def test_a_reaction_is_known_by_its_spellings(written: str, meant: str) -> None:
    """C060, C062."""
    assert chosen(written) == meant


@pytest.mark.parametrize("written", ["white_check_mark", "✅", "not_an_emoji", "1️⃣", ""])
def test_an_unknown_reaction_is_refused_with_some_that_exist(written: str) -> None:
    """C060."""
    with pytest.raises(Unsupported) as caught:
        chosen(written)
    assert "👍" in str(caught.value.fix)


async def test_a_private_chat_is_opened_by_number_only(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        assert await line.channel.open_dm(Person("42")) == chat(42)
        with pytest.raises(ChatNotFound):
            await line.channel.open_dm(Person("-1001"))
        fake.fail_next(403, refused(403, "Forbidden: bot can't initiate conversation"), method="sendMessage")
        with pytest.raises(SendNotAllowed, match="initiate"):
            await send(line, "hi", 42)


# ---- files


@pytest.mark.parametrize(
    "name", ["报告 – Q3.pdf", "résumé (final).docx", "ملف.txt", "🚀.png", 'a"b;c.txt', "e\u0301.txt"]
)
async def test_a_file_keeps_its_name_both_ways(tmp_path: Path, name: str) -> None:
    """C069."""
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        await send(line, OutMessage(files=(file(tmp_path, name, b"data"),)))
        assert (await line.see("message")).files == ((name, b"data"),)
        await fake.say(file=(name, b"data"))
        await line.context.until(lambda: bool(line.context.events), "the file")
        (event,) = line.context.events
        assert isinstance(event, MessageReceived) and event.attachments[0].name == name
        assert await _read(line, event.attachments[0]) == b"data"


async def test_a_name_with_line_ends_injects_nothing(tmp_path: Path) -> None:
    """C069."""
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        await send(line, OutMessage(files=(file(tmp_path, "x\r\nSet-Cookie: a=b.txt", b"data"),)))
        ((name, data),) = (await line.see("message")).files
        assert data == b"data" and name.startswith("x")


async def _read(line, attachment: Attachment) -> bytes:  # type: ignore[no-untyped-def]  # the fixture's type is its own
    async with line.channel.open_attachment(attachment) as chunks:
        return b"".join([chunk async for chunk in chunks])


async def test_files_go_as_albums_of_one_kind(tmp_path: Path) -> None:
    """Pictures are shown; a mixture goes as documents, which Telegram takes in one album."""
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        pictures = tuple(file(tmp_path, f"{n}.png", b"p%d" % n, "image/png") for n in range(2))
        result = await send(line, OutMessage(text="look", files=pictures))
        assert len(result.ids) == 2 and (await line.see("message")).text == "look"
        await send(line, OutMessage(files=(*pictures, file(tmp_path, "a.pdf", b"f", "application/pdf"))))
        seen = await line.see("message")
        assert seen.files == (("0.png", b"p0"), ("1.png", b"p1"), ("a.pdf", b"f"))
        await send(line, OutMessage(files=pictures[:1]))
        assert len(fake.sent("sendPhoto")) == 1
        many = OutMessage(text="x" * 2000, files=pictures * 6)
        parts = line.channel.split(chat(), many)
        assert [(len(part.text), len(part.files)) for part in parts] == [(2000, 0), (0, 10), (0, 2)]


async def test_a_picture_that_telegram_can_not_show_goes_as_a_file(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        fake.fail_next(400, refused(400, "Bad Request: PHOTO_INVALID_DIMENSIONS"), method="sendPhoto")  # fmt: skip
        await send(line, OutMessage(files=(file(tmp_path, "wide.png", b"p", "image/png"),)))
        assert (await line.see("message")).files == (("wide.png", b"p"),)
        assert len(fake.sent("sendDocument")) == 1


async def test_what_is_too_large_is_told_both_ways(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        big = tmp_path / "big"
        with big.open("wb") as stream:
            stream.truncate(50_000_001)
        with pytest.raises(TooLarge):
            await send(line, OutMessage(files=(OutFile("big", str(big), 50_000_001),)))
        assert not fake.sent("sendDocument")
        with pytest.raises(SendNotAllowed, match="can't be read"):
            await send(line, OutMessage(files=(OutFile("gone", str(tmp_path / "gone"), 1),)))
        stored = fake.store("huge", bytes(20 * 1024 * 1024 + 1))
        with pytest.raises(TooLarge):
            await _read(line, Attachment("u", "huge", token=stored["file_id"]))


# ---- questions


PROMPT = Prompt(
    id="qst_0123456789abcdefghij",
    title="Deploy",
    question="Shall I?",
    choices=(Choice("yes", "Yes"), Choice("no", "No")),
)


async def test_a_click_is_answered_at_once_under_a_slow_core(tmp_path: Path) -> None:
    """The spinner goes although nobody has decided; the payload fits Telegram's 64 bytes."""
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        await send(line, OutMessage(prompt=PROMPT))
        seen = await line.see("message")
        assert seen.text == "Deploy\n\nShall I?" and [label for label, _ in seen.buttons] == ["Yes", "No"]
        assert all(len(data.encode()) <= 64 for _, data in seen.buttons)
        query = await fake.click(PRIVATE, seen.message_id, seen.buttons[0][1])
        answer = await line.see("answer")
        assert (answer.emoji, answer.text) == (query, "")
        (event,) = line.context.events
        assert isinstance(event, ActionInvoked) and event.value == "yes" and event.source is not None
        await line.channel.answer(str(event.responder), event.source, ActionReply(text="Yes, **go**", accepted=True))
        done = await line.see("edit")
        assert done.text == "Yes, go" and not done.buttons


async def test_who_may_not_choose_is_told_so_and_the_question_stays(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        await send(line, OutMessage(prompt=PROMPT), GROUP)
        seen = await line.see("message")
        await fake.click(GROUP, seen.message_id, seen.buttons[0][1], by=12)
        await line.context.until(lambda: bool(line.context.events), "the click")
        (event,) = line.context.events
        assert isinstance(event, ActionInvoked)
        await line.channel.answer(str(event.responder), event.source, ActionReply(text="Not yours.", accepted=False))
        assert (await line.see("answer")).text == "Not yours."
        assert fake.messages[GROUP, seen.message_id]["reply_markup"]


async def test_a_late_decision_leaves_nothing_behind(tmp_path: Path) -> None:
    """The core may take longer than a spinner."""
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        await send(line, OutMessage(prompt=PROMPT))
        seen = await line.see("message")
        query = await fake.click(PRIVATE, seen.message_id, seen.buttons[0][1])
        await line.see("answer")
        await line.channel.answer(query, None, ActionReply(text="Too late.", accepted=False))
        assert not line.channel._clicks and len(fake.sent("answerCallbackQuery")) == 1


async def test_a_forged_button_gets_its_spinner_taken_and_no_event(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        sent = await send(line, "x")
        await fake.click(PRIVATE, int(sent.ids[0]), "give me the keys")
        await line.see("answer")
        assert not line.context.events


async def test_a_stale_click_breaks_nothing(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        await send(line, OutMessage(prompt=PROMPT))
        seen = await line.see("message")
        stale = {
            "ok": False,
            "error_code": 400,
            "description": "Bad Request: query is too old and response timeout expired",
        }
        fake.fail_next(400, stale, method="answerCallbackQuery")
        await fake.click(PRIVATE, seen.message_id, seen.buttons[1][1])
        await fake.until_sent("answerCallbackQuery")
        await fake.say("and on")
        await line.until_texts("and on")


async def test_an_id_that_fits_no_button_is_refused(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        with pytest.raises(Unsupported, match="64 bytes"):
            await send(line, OutMessage(prompt=Prompt("q" * 70, "", "?", PROMPT.choices)))


async def test_a_card_has_its_fields_links_and_picture(tmp_path: Path) -> None:
    card = Card(
        "Build",
        "ok",
        (CardField("took", "3 s"),),
        "https://x.example/a.png",
        (CardLink("Log", "https://x.example/log"),),
    )
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        await send(line, OutMessage(card=card))
        seen = await line.see("message")
        assert seen.text == "Build\n\nok\n\ntook: 3 s" and seen.buttons == (("Log", "https://x.example/log"),)
        assert fake.sent("sendMessage")[0].json()["link_preview_options"]["url"] == card.image_url


# ---- streams


async def test_a_private_answer_grows_as_a_draft(tmp_path: Path) -> None:
    """spec 1.10."""
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        stream = line.channel.open_stream(chat())
        await stream.update("one **tw")
        assert (await line.see("draft", "message")).text == "one tw"
        await stream.update("throttled")
        result = await stream.finish(OutMessage(text="one **two**"), idempotency_key="dl_1")
        seen = await line.see("draft", "message")
        assert (seen.kind, seen.text, str(seen.message_id)) == ("message", "one two", result.ids[0])
        assert not fake.sent("editMessageText") and len(fake.sent("sendRichMessageDraft")) == 1


async def test_a_server_without_drafts_gets_edits(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        fake.unknown_methods = {"sendRichMessageDraft"}
        stream = line.channel.open_stream(chat())
        await stream.update("one")
        result = await stream.finish(OutMessage(text=TABLE), idempotency_key="dl_1")
        assert "rich_message" in fake.messages[PRIVATE, int(result.ids[0])] and len(fake.messages) == 1
        await line.channel.open_stream(chat()).update("again")
        assert len(fake.sent("sendRichMessageDraft")) == 1


async def test_an_answer_in_a_group_grows_by_edits_and_an_aborted_one_goes(tmp_path: Path) -> None:
    clock = ManualClock()
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        line.context._clock = clock
        stream = line.channel.open_stream(chat(GROUP), reply_to=MessageRef(chat(GROUP), ("7",)))
        await stream.update("one")
        (first,) = fake.sent("sendMessage")
        assert first.json()["reply_parameters"]["message_id"] == 7
        await stream.update("one two")  # too soon
        assert not fake.sent("editMessageText")
        await clock.advance(3.2)
        await stream.update("one two three")
        assert (await line.see("edit")).text == "one two three"
        await stream.abort()
        assert not fake.messages


async def test_every_connection_goes_through_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C238: polls, sends and uploads; the server's name exists only behind the proxy."""
    for name in ("HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with TelegramFake() as fake:
        monkeypatch.setenv("http_proxy", fake.url)
        async with running(fake, tmp_path, api_url="http://telegram.invalid") as line:
            await fake.say("hello")
            await line.until_texts("hello")
            await line.channel.send(chat(), OutMessage(text="hi"), idempotency_key="1")
            path = tmp_path / "a.txt"
            path.write_bytes(b"data")
            file = OutFile(name="a.txt", path=str(path), size=4)
            await line.channel.send(chat(), OutMessage(files=(file,)), idempotency_key="2")
            assert (await line.see("message")).text == "hi"
        hosts = {request.headers["host"] for request in fake.requests}
        assert hosts == {"telegram.invalid"}
