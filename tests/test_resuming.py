"""A host that died in the middle of a turn comes back while people write (C086)."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jackfield.config.home import Home
from jackfield.host.application import running_host
from jackfield.host.launching import Launched, Launcher
from jackfield.mailbox import HostBell
from jackfield.models import Session

from tests.conftest import MakeExchange
from tests.harness.exchange import BOUND, Exchange

STEP = 0.01
"""Seconds between two interleavings."""
TOGETHER = 10
"""Hosts that run at the same time, each with a home of its own."""


class Watch:
    """How many runners each home had, and had at once, told by the runtime itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.alive: Counter[Path] = Counter()
        self.most: Counter[Path] = Counter()
        self.launches: Counter[Path] = Counter()
        self._tasks: list[asyncio.Task[None]] = []
        launch = Launcher.launch

        async def counted(
            launcher: Launcher, session: Session, make_bell: Callable[[Session, int | None], HostBell]
        ) -> Launched:
            home = launcher._hub.home.root
            self.launches[home] += 1
            self.alive[home] += 1
            self.most[home] = max(self.most[home], self.alive[home])
            launched = await launch(launcher, session, make_bell)
            self._tasks.append(asyncio.create_task(self._ended(home, launched)))
            return launched

        monkeypatch.setattr(Launcher, "launch", counted)

    async def _ended(self, home: Path, launched: Launched) -> None:
        await launched.handle.wait()
        self.alive[home] -= 1


def broken(make_exchange: MakeExchange) -> Exchange:
    """An exchange whose host was killed while its agent worked."""
    exchange = make_exchange()
    exchange.start()
    exchange.join("c1")
    exchange.say("c1", "hi")
    exchange.wait_sent("c1", 1)
    exchange.say("c1", "mock: hang quiet times=1 mock: say finished")
    exchange.wait_for(lambda: exchange.state_of("c1")[-1] == ("claimed", None), "the turn")
    exchange.kill()
    return exchange


def copied(exchange: Exchange, root: Path) -> Home:
    """The same home and platform elsewhere, as the kill left them."""

    def sockets(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if (Path(folder) / name).is_socket()]

    for part in ("home", "box"):
        shutil.copytree(exchange.root / part, root / part, ignore=sockets)
    toml = root / "home" / "jackfield.toml"
    toml.write_text(toml.read_text(encoding="utf-8").replace(str(exchange.box), str(root / "box")), encoding="utf-8")
    return Home.find(str(root / "home"))


def texts(root: Path) -> list[str]:
    return [json.loads(line).get("text", "") for line in (root / "box" / "out.jsonl").read_bytes().splitlines()]


def states(root: Path) -> list[tuple[Any, ...]]:
    db = sqlite3.connect(f"file:{root / 'home' / 'state.db'}?mode=ro", uri=True)
    try:
        return db.execute("SELECT state, attempts FROM inbound ORDER BY ord").fetchall()
    finally:
        db.close()


async def resume(exchange: Exchange, root: Path, delay: float) -> None:
    """Start a host there and have a greeting arrive that much later."""
    home = await asyncio.to_thread(copied, exchange, root)

    async def write() -> None:
        await asyncio.sleep(delay)
        said = {"id": "late", "chat": "c1", "text": "mock: say good morning", "at": int(time.time() * 1000)}
        with (root / "box" / "in.jsonl").open("ab") as file:
            file.write(json.dumps(said).encode() + b"\n")

    writing = asyncio.create_task(write())
    async with running_host(home), asyncio.timeout(BOUND):
        await writing
        while [state for state, _ in states(root)] != ["completed"] * 3:
            await asyncio.sleep(0.05)
        while not any("finished" in text for text in texts(root)):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(range(0, 50, 20), id="3"),
        pytest.param(range(50), id="50", marks=pytest.mark.slow),
    ],
)
async def test_what_comes_while_a_broken_turn_is_resumed_starts_no_second_runner(
    make_exchange: MakeExchange, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, steps: range
) -> None:
    """C086: at every moment from the start on, one runner at most, one answer to each."""
    exchange = await asyncio.to_thread(broken, make_exchange)
    try:
        monkeypatch.syspath_prepend(str(exchange.root / "site"))
        watch = Watch(monkeypatch)
        roots = {step: tmp_path / f"copy-{step}" for step in steps}
        for first in range(0, len(steps), TOGETHER):
            some = steps[first : first + TOGETHER]
            await asyncio.gather(*(resume(exchange, roots[step], step * STEP) for step in some))
    finally:
        # The runner that hangs still belongs to the first home, whose next host ends it.
        await asyncio.to_thread(lambda: exchange.start().stop())
    for step, root in roots.items():
        home = root / "home"
        assert (watch.most[home], watch.launches[home]) == (1, 1), f"it came {step * 10} ms after the start"
        said = "\n".join(texts(root))
        assert said.count("good morning") == 1, (step, said)
        assert said.count("finished") == 1, (step, said)
        assert states(root) == [("completed", 1), ("completed", 2), ("completed", 1)], step
