"""`make bench B=providers`: what each provider adds to the model's own time, and what it takes, as a table.

The model is the played one, in a process of its own; each provider runs in a process of its own, too, and has its
turns and bare requests (the same path, nothing but a socket) by turns.  Added: the median of the turns less that of
the bare requests.  Memory: what the process and its children hold once the turns are over (PSS), less what it held
before the provider was loaded.  Ends with what `anthropic` adds, in ms; the target is at most 15.

A provider that is installed and stands in `ENTRIES` takes part; another one joins by one entry there.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jackfield.api import Provider, ProviderInput, ProviderSession, ProviderSpec, ProviderType, TurnEnded
from jackfield_provider_kit.played import Asked, Reply, played

TURNS = int(os.environ.get("BENCH_ROUNDS", "60"))
WARM_UP = 5
TEXT = "An answer of the length that people in chats are used to, in a few pieces. " * 3
PROMPT = "How are you?"


@dataclass(frozen=True)
class Entry:
    """How a provider is opened on the model at `url`, and the path of its wire for the bare requests."""

    settings: Callable[[str], Mapping[str, Any]]
    path: str | None


ENTRIES: dict[str, Entry] = {
    "mock": Entry(lambda url: {"reply": TEXT}, None),
    "anthropic": Entry(lambda url: {"api_key": "k", "base_url": url, "model": "m"}, "/v1/messages"),
    "openai": Entry(lambda url: {"api_key": "k", "base_url": f"{url}/v1", "model": "m"}, "/v1/chat/completions"),
}


def installed(name: str) -> ProviderType | None:
    """The provider of that name, loaded; None when it is not installed."""
    for point in entry_points(group="jackfield.providers", name=name):
        kinds: list[ProviderType] = point.load().register_providers()
        return next(kind for kind in kinds if kind.name == name)
    return None


def held() -> float:
    """MB that this process and its children hold, shared pages by their share."""
    return sum(_pss(pid) for pid in (os.getpid(), *_children(os.getpid()))) / 1024


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            for child in (task / "children").read_text(encoding="utf-8").split():
                found += [int(child), *_children(int(child))]
    return found


def _pss(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


class Bare:
    """Requests by nothing but a socket."""

    def __init__(self, url: str, path: str) -> None:
        self._host, self._port = urlsplit(url).hostname, urlsplit(url).port
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": PROMPT}]}).encode()
        self._request = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def once(self) -> float:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        began = time.perf_counter()
        self._streams[1].write(self._request)
        await self._streams[0].readuntil(b"0\r\n\r\n")
        return time.perf_counter() - began


async def one_turn(session: ProviderSession, events: Any, number: int) -> float:
    """Seconds from the prompt to the end of its turn."""
    began = time.perf_counter()
    await session.send(ProviderInput(id=f"m{number}", text=PROMPT))
    async for event in events:
        if isinstance(event, TurnEnded):
            if event.outcome != "ok":
                raise SystemExit(f"the turn ended as {event.outcome}: {event.error}")
            break
    return time.perf_counter() - began


async def measure(name: str, url: str) -> None:
    """In the child: the figures of one provider, as a line of JSON; nothing when it is not there."""
    before = held()
    kind = installed(name)
    if kind is None:
        return
    entry = ENTRIES[name]
    model, values = kind.settings_model(), dict(entry.settings(url))
    provider: Provider = kind.create(values if model is None else model.model_validate(values))
    if not (await provider.probe()).ok:
        return
    with tempfile.TemporaryDirectory() as folder:
        system = "You are andy. " * 200
        spec = ProviderSpec(session_id="s", cwd=folder, state_dir=folder, system_prompt=system, env=dict(os.environ))
        began = time.perf_counter()
        session = await provider.open(spec, None)
        events = session.events()
        await one_turn(session, events, 0)
        first = time.perf_counter() - began
        bare = Bare(url, entry.path) if entry.path is not None else None
        turns, bares = [], []
        for number in range(1, TURNS + WARM_UP):
            turns.append(await one_turn(session, events, number))
            bares.append(await bare.once() if bare is not None else 0.0)
        took = held() - before
        await session.close(deadline=10)
    turn, model_time = (statistics.median(times[WARM_UP:]) * 1000 for times in (turns, bares))
    print(json.dumps({"first": first, "turn": turn, "model": model_time, "added": turn - model_time, "held": took}))


def serve(urls: multiprocessing.Queue[str]) -> None:
    """The model's process."""

    async def main() -> None:
        async with played(decide) as model:
            urls.put(model.url)
            await asyncio.Event().wait()

    asyncio.run(main())


def decide(asked: Asked) -> Reply:
    return Reply(text=TEXT)


def main() -> None:
    if len(sys.argv) == 3:
        asyncio.run(measure(sys.argv[1], sys.argv[2]))
        return
    urls: multiprocessing.Queue[str] = multiprocessing.Queue()
    model = multiprocessing.Process(target=serve, args=(urls,), daemon=True)
    model.start()
    url = urls.get(timeout=60)
    print(f"{TURNS} turns each. ms: the median turn, the model alone, added. s: from opening to the first turn's end.")
    print(f"{'provider':<12}{'turn':>8}{'model':>8}{'added':>8}{'first':>8}{'MB':>8}")
    added: dict[str, float] = {}
    for name in ENTRIES:
        command = [sys.executable, "-m", "benchmarks.providers", name, url]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300, check=True)
        if not done.stdout.strip():
            print(f"{name:<12}not installed")
            continue
        got = json.loads(done.stdout.strip().splitlines()[-1])
        added[name] = got["added"]
        figures = (f"{got[column]:>8.2f}" for column in ("turn", "model", "added", "first"))
        print(f"{name:<12}{''.join(figures)}{got['held']:>8.1f}")
    model.terminate()
    print(f"added by anthropic, median ms (target at most 15): {added['anthropic']:.2f}")


if __name__ == "__main__":
    main()
