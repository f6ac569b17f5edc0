"""Deliveries under random failures and a host that dies again and again."""

from __future__ import annotations

import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from delivery_kit import Bench, open_bench
from jackfield.api import SendResult
from jackfield.errors import Ambiguous, RateLimited, Transient
from jackfield.models import OutMessage, loads


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path / "home") as made:
        yield made


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_fails_and_however_often_the_host_dies_nothing_is_lost_or_overtaken(
    bench: Bench, seed: int
) -> None:
    chance = random.Random(seed)

    async def arrived_unseen() -> SendResult:
        raise Ambiguous("the answer was lost")

    failures: list[Any] = [
        Transient("refused"),
        RateLimited("slow", retry_after=3),
        RateLimited("slow", retry_after=5, scope="account"),
        Ambiguous("no answer"),
        TimeoutError(),
        KeyError("a fault of the adapter"),
        arrived_unseen,
    ]
    bench.channel.script = [chance.choice(failures) if chance.random() < 0.4 else None for _ in range(40)]
    bench.channel.seconds = {"c-1": 0.3}
    texts: dict[str, list[str]] = {}
    sessions = []
    for number in range(3):
        chat = await bench.chat(f"c-{number}")
        sessions += [(chat, await bench.session(chat, f"{number}{letter}")) for letter in "ab"]
    for number in range(24):
        chat, session = chance.choice(sessions)
        texts.setdefault(chat.platform_id, []).append(f"m{number}")
        await bench.post(session, chat, f"m{number}")
        if number in (8, 16):
            await bench.crash()
    await bench.quiet()
    failed = set()
    for _, session in sessions:
        failed |= {loads(OutMessage, part.content).text for part in await bench.parts(session) if part.reason}
    for platform_id, wanted in texts.items():
        calls = [call for call in bench.channel.arrived if call.address.platform_id == platform_id]
        seen: dict[str, int] = {}
        for call in calls:
            assert call.text not in seen or call.message.maybe_duplicate
            seen[call.text] = seen.get(call.text, 0) + 1
        assert set(wanted) - failed <= set(seen)
        assert list(seen) == [text for text in wanted if text in seen]
