"""The webhook: Telegram calls, and is answered when the event is stored."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from jackfield.api import RawRequest, RawResponse
from jackfield.errors import ConfigError, JackfieldError
from jackfield.models import ActionInvoked, ChannelState, MessageReceived
from jackfield.testing import ManualClock
from jackfield_channel_kit.prompt import encode
from jackfield_channel_kit.testing.telegram import TelegramFake
from jackfield_channel_telegram.settings import TelegramSettings
from pydantic import ValidationError
from running import HOOK_SECRET, Running, running

URL = "https://bots.example/channels/tg"
HOOK: dict[str, Any] = {"server_url": URL, "webhook": True, "webhook_secret": "hook"}


async def call(line: Running, body: Any, secret: str | None = HOOK_SECRET) -> int:
    (route,) = line.channel.http_routes()
    headers = (("X-Telegram-Bot-Api-Secret-Token", secret),) if secret is not None else ()
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = RawRequest(method="POST", path="", query="", headers=headers, body=raw, peer="127.0.0.1")
    answer: RawResponse = await route.handle(request)
    return answer.status


async def update(fake: TelegramFake) -> Mapping[str, Any]:
    """The newest update, which Telegram would post."""
    return fake.updates.pop()


async def test_telegram_is_told_where_to_call(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path, **HOOK):
        said = fake.sent("setWebhook")[0].json()
        assert (said["url"], said["secret_token"]) == (URL, HOOK_SECRET)
        assert "message_reaction" in said["allowed_updates"] and not fake.sent("getUpdates")


async def test_a_call_is_answered_when_its_event_is_stored(tmp_path: Path) -> None:
    """channels.md R2."""
    async with TelegramFake() as fake, running(fake, tmp_path, **HOOK) as line:
        await fake.say("hi")
        with line.context.held():
            work = asyncio.create_task(call(line, await update(fake)))
            await line.context.until(lambda: line.context.waiting == 1, "accept to be called")
            assert not work.done()
        assert await work == 200
        assert line.texts == ["hi"]


async def test_what_can_not_be_stored_is_not_acknowledged(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path, **HOOK) as line:
        await fake.say("hi")
        message = await update(fake)
        line.context.fail(JackfieldError("the disk is full"))
        with pytest.raises(JackfieldError):  # the host makes a 503 of it, and Telegram calls again
            await call(line, message)
        line.context.mend()
        assert await call(line, message) == 200 == await call(line, message)
        assert line.texts == ["hi"]


@pytest.mark.parametrize("secret", [None, "", "wrong", HOOK_SECRET[:-1], HOOK_SECRET + "x"])
async def test_strangers_are_refused(tmp_path: Path, secret: str | None) -> None:
    """C224."""
    async with TelegramFake() as fake, running(fake, tmp_path, **HOOK) as line:
        await fake.say("hi")
        assert await call(line, await update(fake), secret) == 401
        assert not line.context.offered


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"[" * 100_000, b"1"])
async def test_nonsense_is_refused(tmp_path: Path, body: bytes) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path, **HOOK) as line:
        assert await call(line, body) == 400


async def test_an_update_of_a_strange_form_is_taken_and_left_out(tmp_path: Path) -> None:
    """Refused, Telegram would send it for a day and hold the others back."""
    async with TelegramFake() as fake, running(fake, tmp_path, **HOOK) as line:
        for strange in ({}, {"update_id": 1, "message": 5}, {"update_id": 2, "message": {"media_group_id": "x"}}):
            assert await call(line, strange) == 200
        assert not line.context.offered


async def test_the_files_of_an_album_that_come_together_are_one_message(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path, **HOOK) as line:
        await fake.album(["a.png", "b.png"], caption="look")
        assert await asyncio.gather(*(call(line, one) for one in fake.updates)) == [200, 200]
        (event,) = line.context.events
        assert isinstance(event, MessageReceived) and event.text == "look"
        assert [one.name for one in event.attachments] == ["a.png", "b.png"]


async def test_a_click_over_the_webhook_is_answered(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path, **HOOK) as line:
        await fake.click(11, 5, encode("qst_1", 0))
        assert await call(line, await update(fake)) == 200
        await line.see("answer")
        assert isinstance(line.context.events[0], ActionInvoked)


async def test_a_webhook_that_another_program_took_is_set_again(tmp_path: Path) -> None:
    clock = ManualClock()
    async with TelegramFake() as fake, running(fake, tmp_path, clock=clock, **HOOK) as line:
        await clock.until_sleeping()
        fake.webhook["url"] = "https://other.example/"
        await clock.advance(300)
        await line.context.until(
            lambda: any(one.state is ChannelState.RECONNECTING for one in line.context.statuses), "the loss to be told"
        )
        await clock.until_sleeping()
        await clock.advance(2)
        await fake.until_sent("setWebhook", 2)


async def test_before_it_is_ready_and_after_the_stop_calls_are_put_off(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path, **HOOK) as line:
        await line.channel.stop()
        await fake.say("hi")
        assert await call(line, await update(fake)) == 503
        assert fake.webhook["url"] == URL, "Telegram would drop what comes meanwhile"


async def test_an_address_that_telegram_can_not_call_is_refused_at_once(tmp_path: Path) -> None:
    async with TelegramFake() as fake:
        settings = {**HOOK, "server_url": "http://127.0.0.1:8787/channels/tg", "api_url": "https://api.telegram.org"}
        with pytest.raises(ConfigError, match="https only") as caught:
            async with running(fake, tmp_path, **settings):
                pass
        assert "public_url" in str(caught.value.fix)
        with pytest.raises(ConfigError, match="HTTP server"):
            async with running(fake, tmp_path, **{**HOOK, "server_url": None}):
                pass


@pytest.mark.parametrize("given", [{"webhook": True}, {"webhook_secret": "hook"}])
def test_webhook_and_secret_belong_together(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="belong together"):
        TelegramSettings.model_validate({"token": "bot", **given})


async def test_the_check_says_who_we_are_and_what_is_wrong(tmp_path: Path) -> None:
    async with TelegramFake() as fake, running(fake, tmp_path) as line:
        health = await line.channel.check(line.context)
        assert health.ok and "@jack_test_bot" in health.detail and "privacy mode" in health.detail
        fake.webhook["url"] = "https://old.example/"
        assert "removed at the start" in (await line.channel.check(line.context)).detail
        fake.revoked = True
        health = await line.channel.check(line.context)
        assert not health.ok and "BotFather" in str(health.fix)
        line.context.secrets.clear()
        assert "no secret 'bot'" in (await line.channel.check(line.context)).detail
