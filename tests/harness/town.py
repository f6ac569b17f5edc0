"""Every channel at once: real homeserver and IRC servers, the fakes of the rest, and one exchange that joins them.

The platforms live in a thread with an event loop of its own, so they outlive any host, and a test reads like one of a
single exchange.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import tomlkit
from aiohttp import ClientError, ClientSession, ClientTimeout
from jackfield.errors import JackfieldError
from jackfield.host.control import Client
from jackfield_channel_kit.testing.irc import Inspircd, Ngircd
from jackfield_channel_kit.testing.synapse import Synapse

from tests.harness.exchange import BOUND, Exchange
from tests.harness.lines import IrcLine, Line, MatrixLine, SlackLine, TelegramLine, WebhookLine

__all__ = ["LONG", "Town", "town"]

T = TypeVar("T")
LONG = 150.0
"""Seconds after which something that takes a dozen runners' start counts as hung."""


class Town:
    """The lines by name, and their exchange."""

    def __init__(self, exchange: Exchange, lines: Iterable[Line], synapse: Synapse) -> None:
        self.exchange = exchange
        self.lines = {line.name: line for line in lines}
        self.synapse = synapse
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._ingress = ""

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Something in the platforms' loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LONG)

    def open(self) -> None:
        self.do(self.synapse.start())
        for line in self.lines.values():
            self.do(line.open(self._post))
        toml = self.exchange.home.jackfield_toml
        document = tomlkit.parse(toml.read_text(encoding="utf-8"))
        document["ingress"] |= {"port": 0, "public_url": "https://jackfield.example.test"}
        for line in self.lines.values():
            document["channels"][line.name] = {"type": line.type, **line.settings}
            if line.secrets:
                self.exchange.op("secret.import", values=line.secrets, kind="channel-token")
        toml.write_text(tomlkit.dumps(document), encoding="utf-8")
        for line in self.lines.values():
            self.exchange.op("wire.add", chat=line.address, group="andy", engage="always", policy="public")

    def close(self) -> None:
        for line in self.lines.values():
            self.do(line.close())
        self.do(self.synapse.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(BOUND)
        self._loop.close()

    async def _post(self, instance: str, headers: Mapping[str, str], body: bytes) -> int:
        """To the host's HTTP server, wherever it listens now."""
        try:
            async with ClientSession(timeout=ClientTimeout(total=10)) as session:
                url = f"{self._ingress}/channels/{instance}"
                async with session.post(url, headers=headers, data=body) as answer:
                    return answer.status
        except (ClientError, OSError, ValueError):
            # Not by `op`: without a host that would take its lock, and a host that starts meanwhile would be refused.
            client = Client(self.exchange.home)
            with contextlib.suppress(JackfieldError, OSError, TypeError, KeyError):
                await client.open()
                try:
                    self._ingress = (await client.call("status", {}))["ingress"]["address"]
                finally:
                    await client.close()
            return 0

    # ---- what people do and see

    def start(self) -> None:
        """Start the host and wait until every channel is ready."""
        self.exchange.start()
        self.until_states(dict.fromkeys(self.lines, "ready"))

    def write(self, name: str, text: str) -> None:
        self.do(self.lines[name].write(text))

    def shown(self, name: str) -> list[str]:
        return self.do(self.lines[name].shown())

    def count_shown(self) -> int:
        return sum(len(self.shown(name)) for name in self.lines)

    def until_shown(self, wanted: Mapping[str, Iterable[str]]) -> None:
        """Wait until each line has shown all of these."""

        def all_shown(name: str, texts: Iterable[str]) -> bool:
            return set(texts) <= set(self.shown(name))

        for name, texts in wanted.items():
            self.exchange.wait_for(
                partial(all_shown, name, texts),
                f"{list(texts)} on {name}, got {self.shown(name)}",
                LONG,
            )

    def until_taken(self, names: Iterable[str], words: str) -> None:
        """Wait until the host holds a message with these words on each of the lines."""
        query = f"SELECT instance FROM events WHERE body LIKE '%' || '{words}' || '%'"
        self.exchange.wait_for(
            lambda: set(names) <= {instance for (instance,) in self.exchange.query(query)},
            f"{words!r} to be taken on {list(names)}",
        )

    def states(self) -> dict[str, str]:
        return {one["name"]: one["state"] for one in self.exchange.op("status")["channels"]}

    def until_states(self, wanted: Mapping[str, str]) -> None:
        self.exchange.wait_for(lambda: wanted.items() <= self.states().items(), f"the states {wanted}", LONG)

    def until_settled(self) -> None:
        """Wait until nothing waits any more."""
        queries = (
            "SELECT 1 FROM inbound WHERE state IN ('queued', 'claimed', 'retrying', 'parked')",
            "SELECT 1 FROM deliveries WHERE state IN ('pending', 'sending', 'retrying', 'waiting')",
            "SELECT 1 FROM events WHERE state IN ('received')",
        )
        self.exchange.wait_for(
            lambda: not any(self.exchange.query(query) for query in queries), "an end for everything", LONG
        )


@contextlib.contextmanager
def town(folder: Path) -> Iterator[Town]:
    """A town whose host nobody has started yet; everything is ended with it."""
    synapse = Synapse(folder / "synapse")
    lines = [
        TelegramLine("tg-one"),
        TelegramLine("tg-two"),
        TelegramLine("tg-hook", webhook=True),
        SlackLine("sl-socket"),
        SlackLine("sl-events", events=True),
        MatrixLine("mx-one", synapse),
        MatrixLine("mx-two", synapse),
        IrcLine("irc-ng", Ngircd(folder / "ngircd")),
        IrcLine("irc-insp", Inspircd(folder / "inspircd")),
        WebhookLine("wh"),
    ]
    # Tests write at a machine's pace.
    exchange = Exchange(root=folder / "x", host_settings="max_runners = 16\nloop_turns = 0").prepare()
    made = Town(exchange, lines, synapse)
    try:
        made.open()
        yield made
    finally:
        ended = exchange.stop()
        made.close()
    assert ended in (0, -9), f"the host did not end well\n{exchange.tail()}"
