"""A whole exchange as an operator has it: a home, a host process of its own, a platform that outlives it.

The platform is the `postbox` channel: a few files.  So a test may kill the host with SIGKILL wherever it likes and then
look at what people received.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jackfield.cli.setup import group_files
from jackfield.config import template
from jackfield.config.home import Home
from jackfield.host.control import perform
from jackfield.mailbox.doorbell import short_address
from jackfield.testing.distributions import install_project

__all__ = ["BOUND", "Exchange", "prepared"]

BOUND = 60.0
"""Seconds after which a wait is a hang."""
FIXTURES = Path(__file__).parent.parent / "fixtures" / "plugins"


@dataclass
class Exchange:
    """Everything lies below `root`."""

    root: Path
    provider: str = "mock"
    provider_settings: str = ""
    host_settings: str = ""
    postbox_settings: str = ""
    plugins: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    environment: dict[str, str] = field(default_factory=dict)
    home_at: Path | None = None
    """Where the home lies, if not below `root`."""
    _said: int = 0

    @property
    def home(self) -> Home:
        return Home.find(str(self.home_at or self.root / "home"))

    @property
    def box(self) -> Path:
        return self.root / "box"

    def prepare(self) -> Exchange:
        """Make the home, the agent `andy` and the platform."""
        self.box.mkdir(parents=True)
        (self.box / "in.jsonl").touch()
        (self.box / "out.jsonl").touch()
        for name in ("postbox", *self.plugins):
            install_project(self.root / "site", FIXTURES / name)
        # What `jackfield init` does, without a process: most of a command's time is its imports.
        self.home.create()
        group_files(self.home.groups / "andy", name="andy", provider=self.provider, runtime="process")
        toml = self.home.jackfield_toml
        text = template.jackfield_toml(timezone="UTC")
        settings = self.host_settings
        if "loop_turns" not in settings:
            settings += "\nloop_turns = 0"  # the people here are as quick as programs
        text = text.replace("[host]", f"[host]\n{settings}", 1)
        text += f'\n[channels.box]\ntype = "postbox"\nfolder = "{self.box}"\n{self.postbox_settings}\n'
        toml.touch(mode=0o600)
        toml.write_text(text, encoding="utf-8")
        self.op("home.setup", name="andy", folder="andy", user=pwd.getpwuid(os.geteuid()).pw_name)
        if self.provider_settings:
            agent = self.home.groups / "andy" / "agent.toml"
            agent.write_text(
                agent.read_text(encoding="utf-8") + f"\n[providers.{self.provider}]\n{self.provider_settings}\n",
                encoding="utf-8",
            )
            self.op("group.accept", name="andy")
        return self

    def env(self, **more: str) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "JACKFIELD_HOME": str(self.home.root),
            "PYTHONPATH": str(self.root / "site"),
            "PYTHONUNBUFFERED": "1",
            **self.environment,
            **more,
        }

    def run(
        self, *arguments: str, check: bool = True, stdin: str = "", **more: str
    ) -> subprocess.CompletedProcess[str]:
        """One command of the CLI."""
        done = subprocess.run(
            [sys.executable, "-m", "jackfield.cli", *arguments],
            env=self.env(**more), input=stdin, capture_output=True, text=True, timeout=BOUND * 2, encoding="utf-8",
        )  # fmt: skip
        if check and done.returncode != 0:
            raise AssertionError(
                f"jackfield {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
            )
        return done

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json").stdout)

    def op(self, operation: str, **arguments: Any) -> Any:
        """One operation of the control socket, without a process for it; without a host, under its lock."""
        return asyncio.run(perform(self.home, operation, arguments))

    def join(self, chat: str, group: str = "andy", **options: Any) -> None:
        """`wire` by the control socket: the agent answers everybody there, unless the options say otherwise."""
        chosen = {"engage": "pattern" if "pattern" in options else "always", "policy": "public", **options}
        self.op("wire.add", chat=f"postbox:box:{chat}", group=group, **chosen)

    def add_agent(self, folder: str, settings: str = "") -> None:
        """Another agent group of the mock provider; `settings` are added to its `agent.toml`."""
        self.run("group", "add", folder.title(), "--folder", folder, "--provider", "mock")
        if settings:
            agent = self.home.groups / folder / "agent.toml"
            agent.write_text(agent.read_text(encoding="utf-8") + f"\n{settings}\n", encoding="utf-8")
            self.op("group.accept", name=folder)

    def wire(self, chat: str, *options: str) -> None:
        self.run("wire", f"postbox:box:{chat}", "andy", "--engage", "always", "--policy", "public", *options)

    # ---- the host's life

    def start(self, **environment: str) -> Exchange:
        """Start the host in a process of its own and wait until it answers."""
        log = (self.root / "host.out").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jackfield.cli", "up"], env=self.env(**environment), stdout=log, stderr=log
        )
        log.close()
        self.wait_for(lambda: self.answers() or self.process_ended(), "the host's socket")
        return self

    def answers(self) -> bool:
        """Whether a host listens: a socket file may be a dead one's."""
        import socket

        with socket.socket(socket.AF_UNIX) as probe:
            try:
                with short_address(self.home.host_sock) as address:
                    probe.connect(address)
            except OSError:
                return False
        return True

    def process_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def wait_ended(self) -> int:
        assert self.process is not None
        return self.process.wait(timeout=BOUND)

    def kill(self) -> None:
        """SIGKILL, as a power cut would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(timeout=BOUND)

    def stop(self) -> int:
        """End the host cleanly; its exit code."""
        if self.process is None or self.process_ended():
            return 0
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=BOUND)

    def sweep(self) -> None:
        """End the runners that a killed host has left and no other took up."""
        for pid in self.processes().values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # ---- the platform

    def say(self, chat: str, text: str, **more: Any) -> str:
        """Somebody writes; the platform keeps it whether or not a host runs."""
        self._said += 1
        message_id = f"m{self._said}"
        said = {"id": message_id, "chat": chat, "text": text, "at": int(time.time() * 1000), **more}
        with (self.box / "in.jsonl").open("ab") as file:
            file.write(json.dumps(said).encode() + b"\n")
        return message_id

    def click(self, chat: str, prompt: str, value: str, **more: Any) -> str:
        """Somebody chooses an answer of a question."""
        return self.say(chat, "", click=value, prompt=prompt, **more)

    def order(self, chat: str, *orders: dict[str, Any]) -> None:
        """What the platform does with the next sends to a chat."""
        path = self.box / "orders.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        known.setdefault(chat, []).extend(orders)
        path.write_text(json.dumps(known))

    def sent(self, chat: str | None = None) -> list[dict[str, Any]]:
        """What the platform received, in order."""
        # A line without its end is being written.
        lines = (self.box / "out.jsonl").read_bytes().splitlines(keepends=True)
        lines = [line for line in lines if line.endswith(b"\n")]
        items = [json.loads(line) for line in lines]
        return [item for item in items if chat is None or item["chat"] == chat]

    def texts(self, chat: str) -> list[str]:
        return [item["text"] for item in self.sent(chat) if "text" in item]

    def wait_for(self, condition: Callable[[], Any], what: str, bound: float = BOUND) -> None:
        """Look again and again until the condition holds.

        Raises:
            AssertionError: it did not within the bound; shows the end of the host's output.
        """
        until = time.monotonic() + bound
        while not condition():
            if time.monotonic() > until:
                raise AssertionError(f"waited {bound:g} s for {what}\n{self.tail()}")
            time.sleep(0.02)

    def wait_sent(self, chat: str, count: int) -> list[dict[str, Any]]:
        self.wait_for(lambda: len(self.sent(chat)) >= count, f"{count} messages to {chat}, got {self.sent(chat)}")
        return self.sent(chat)

    def wait_text(self, chat: str, text: str) -> str:
        """The first message to a chat that contains `text`."""
        self.wait_for(
            lambda: any(text in got for got in self.texts(chat)), f"{text!r} in {chat}, got {self.texts(chat)}"
        )
        return next(got for got in self.texts(chat) if text in got)

    def state_of(self, chat: str) -> list[tuple[str, str | None]]:
        """State and reason of every message of a chat, the oldest first."""
        return [
            (str(state), reason)
            for state, reason in self.query(
                "SELECT i.state, i.reason FROM inbound i JOIN wirings w ON w.id = i.wiring_id "
                f"JOIN messaging_groups m ON m.id = w.messaging_group_id WHERE m.platform_id = '{chat}' ORDER BY i.ord"
            )
        ]

    def session_of(self, chat: str) -> dict[str, Any]:
        """The newest active session of a chat."""
        found = self.query(
            "SELECT s.id FROM sessions s JOIN messaging_groups m ON m.id = s.messaging_group_id "
            f"WHERE m.platform_id = '{chat}' AND s.status = 'active' ORDER BY s.created_at DESC"
        )
        shown: dict[str, Any] = self.op("session.show", id=found[0][0])
        return shown

    def mailbox_texts(self, session: dict[str, Any]) -> list[str]:
        """Everything that the session's inbox holds, as it is stored."""
        db = sqlite3.connect(f"file:{session['folder']}/inbound.db?mode=ro", uri=True)
        try:
            return [str(row[0]) for row in db.execute("SELECT content FROM messages_in ORDER BY seq")]
        finally:
            db.close()

    def audit(self, chat: str) -> dict[str, int]:
        """Why messages of a chat were not taken, and how many."""
        return {
            str(reason): int(count)
            for reason, count in self.query(
                f"SELECT reason, sum(count) FROM drops WHERE platform_id = '{chat}' GROUP BY reason"
            )
        }

    def processes(self) -> dict[str, int]:
        """The process ids of live runners, by session; not of the init above each, which carries its command line."""
        found: dict[str, dict[int, int]] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError, IndexError):
                line = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                if b"jackfield.runner" in line and line[-1].startswith(str(self.home.root).encode()):
                    parent = int((entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
                    found.setdefault(Path(line[-1].decode()).name, {})[int(entry.name)] = parent
        return {name: next(pid for pid in family if pid not in family.values()) for name, family in found.items()}

    def tail(self) -> str:
        path = self.root / "host.out"
        return path.read_text(encoding="utf-8", errors="replace")[-4000:] if path.exists() else ""

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Look into the ledger of a host that does not run, or does."""
        db = sqlite3.connect(f"file:{self.home.state_db}?mode=ro", uri=True)
        try:
            return db.execute(sql).fetchall()
        finally:
            db.close()


@contextlib.contextmanager
def prepared(root: Path, **settings: Any) -> Iterator[Exchange]:
    """A prepared exchange for several tests; its host, started by whoever wants one, is ended well."""
    exchange = Exchange(root=root, **settings).prepare()
    yield exchange
    ended = exchange.stop()
    exchange.sweep()
    assert ended in (0, -9), f"the host did not end well\n{exchange.tail()}"
