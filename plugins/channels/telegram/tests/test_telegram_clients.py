"""The fake is taken for Telegram by the two libraries that bots in Python are written with (spec 2.2)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from jackfield_channel_kit.testing.engines import find
from jackfield_channel_kit.testing.telegram import BOT_NAME, TelegramFake

CLIENTS = Path(__file__).parent / "clients"


@pytest.mark.parametrize("library", ["aiogram", "ptb"])
async def test_a_client_library_takes_the_fake_for_telegram(library: str) -> None:
    """spec 3.1: polls, clicks, edits, reactions, files both ways, albums, and every kind of refusal."""
    python = find("telegram-clients", "python")
    async with TelegramFake() as fake:
        process = await asyncio.create_subprocess_exec(
            python, str(CLIENTS / f"with_{library}.py"), fake.url, fake.token,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        try:
            async with asyncio.timeout(120):
                first = await process.stdout.readline()
                assert first == b"polling\n", (await process.stderr.read()).decode()[-3000:]
                await play(fake)
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, err.decode()[-3000:]
        told: dict[str, Any] = json.loads(out)
    assert told["me"] == BOT_NAME and told["wrong"] == "unauthorized"
    heard = {
        "text hello in private from P11",
        "edit hello!",
        "file a.bin 3",
        "text buttons in supergroup from P12",
        "click p:qst_1:0 by 12",
        "reaction 🎉",
        "member kicked",
    }
    assert set(told["heard"]) == heard and len(told["heard"]) == len(heard)  # aiogram handles them side by side
    assert told["sent"] == ["bold & plain", ["bold"]]
    assert told["document"] == ["näme.txt", 4] and told["album"] == 2
    assert told["typing"] and told["reacted"] and told["deleted"] and told["hook"] == ""
    assert "message is too long" in told["long"].lower() and "can't parse entities" in told["markup"].lower()
    assert told["flood"].endswith(" 3") and told["moved"].endswith(" -1007")
    if library == "aiogram":
        assert told["rich"] == 1 and told["draft"] is True
        assert told["conflict"].startswith("TelegramConflictError")


async def play(fake: TelegramFake) -> None:
    """What people do; each step waits until the one before was seen to be handled."""
    group = -1_001_000_000_001

    async def settled() -> None:
        last = fake.updates[-1]["update_id"] if fake.updates else 0
        await fake.until(lambda: fake.confirmed >= last, "the update to be confirmed")

    fake.moved[-7] = -1007
    message = await fake.say("hello")
    await settled()
    await fake.edit(message, "hello!")
    await settled()
    await fake.say(file=("a.bin", b"abc"))
    await settled()
    await fake.until_sent("getFile")
    await fake.say("buttons", chat=group, sender=12)
    await fake.until_sent("sendMessage")
    while (seen := await fake.seen.get()).kind != "message":
        pass
    await fake.click(group, seen.message_id, seen.buttons[0][1], by=12)
    await fake.until_sent("editMessageText")
    await fake.react(group, seen.message_id, [], ["🎉"], by=12)
    await settled()
    fake.flooded[12] = 3
    await fake.admit(group, "kicked", "member")
