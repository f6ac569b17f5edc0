"""`make demo`: the first conversation.

With a terminal it makes a home of its own in the user's cache folder and opens `jackfield chat`.  Without one it plays
a conversation through the whole real path - a host process, a runner process, the mock provider, the terminal channel's
own client - prints it, and fails when anything of it is missing.  However it ends, its host ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from jackfield.api.client import LocalClient
from jackfield.cli.host_access import HomeHost
from jackfield.cli.state import State
from jackfield.errors import JackfieldError
from jackfield_channel_terminal.conversation import Conversation
from jackfield_channel_terminal.rendering import plain, size_text

BOUND = 40.0
"""Seconds after which something that must happen counts as missing."""
WHOLE = 110.0
"""Seconds for the whole conversation, on a machine that is very busy; usually it takes eight."""
WIDTH = 96
AGENT, FOLDER = "Andy", "andy"
MENU = "Soup, bread, plums."

Frame = dict[str, Any]


class Missing(Exception):
    """The conversation was not what it should be."""


# ---- with a terminal


def cache_home() -> Path:
    """Where the demonstration for a person lives; it stays there until it is deleted."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(caches).expanduser().absolute() / "jackfield-demo"


def talk() -> int:
    home = cache_home()
    run(home, "init", "--name", AGENT, "--provider", "mock", "--json")
    print(f"Welcome to Jackfield. {AGENT} answers, played by the mock provider: no model, no key, no network.")
    print("Write something; or try `mock: ask Tea or coffee? | tea | coffee`, or `mock: help`. Ctrl-D leaves.")
    print(f"Everything lies in {home}; your own ~/.jackfield is not touched.\n")
    chat = subprocess.Popen([sys.executable, "-m", "jackfield.cli", "chat", FOLDER], env=environment(home))
    with Guard("kill", str(chat.pid)) as guard:
        code = None
        while code is None:
            with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is the chat's
                code = chat.wait()
        guard.dismiss()
    print()
    next_steps()
    print(f"\nTo forget this demonstration: rm -r {home}")
    return 0 if code == 130 else code


# ---- without one


def play() -> int:
    """The exit code: 1 when something of the conversation is missing."""
    root = Path(tempfile.mkdtemp(prefix="jackfield-demo-"))
    root.chmod(0o711)  # a host that is root runs its runners as somebody else, who must be able to pass
    home = root / "home"
    with Guard(sys.executable, "-m", "jackfield.cli", "--home", str(home), "down", remove=root) as guard:
        try:
            heading("A home with one agent", "jackfield init")
            run(home, "init", "--name", AGENT, "--provider", "mock", "--json", guard=guard)
            says("", f"{AGENT} is played by the mock provider: it does what `mock: ...` tells it. No model is asked.")
            heading("The host, a process of its own", "jackfield up -d")
            pid = run(home, "up", "-d", "--json", guard=guard)["pid"]
            says("", f"It runs as process {pid}.")
            # Half an event loop, left by a Ctrl-C in its making or its end, complains when it is thrown away.
            with interrupts(signal.SIG_BLOCK):
                asyncio.run(bounded(home))
        except (Missing, JackfieldError, TimeoutError) as problem:
            print(f"\nThe demonstration failed: {problem or f'it took longer than {WHOLE:g} s'}", file=sys.stderr)
            print(log_of(home), file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nstopped", file=sys.stderr)
            return 130
    print()
    next_steps()
    return 0


@contextlib.contextmanager
def interrupts(how: signal.Sigmasks) -> Iterator[None]:
    """A Ctrl-C inside the block is held back until its end (`SIG_BLOCK`), or let through (`SIG_UNBLOCK`)."""
    before = signal.pthread_sigmask(how, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


async def bounded(home: Path) -> None:
    """The whole conversation, which a Ctrl-C cancels."""
    with interrupts(signal.SIG_UNBLOCK):
        await asyncio.wait_for(conversation(home), WHOLE)


async def conversation(home: Path) -> None:
    """Everything that is said, and whether it came.

    Raises:
        Missing: something did not come, or not as it should.
    """
    async with HomeHost(State()).connect(str(home)) as client, attached(client) as screen:
        heading("A question and an answer", f"jackfield chat {FOLDER}")
        await screen.say("Hello! Is anybody there?")
        await screen.message("the answer", lambda frame: "Is anybody there?" in frame["text"])

        heading("A tool: the agent speaks while it still works", "the tool `send_message`")
        await screen.say('mock: tool send_message {"text": "One moment."} mock: say There. The tool said: {result}')
        await screen.message("what the tool sent", lambda frame: frame["text"] == "One moment.")
        await screen.message("the answer after it", lambda frame: "Message sent to" in frame["text"])

        heading("A file", "the tool `send_file`")
        await screen.say(f'mock: write menu.txt {MENU} mock: tool send_file {{"path": "menu.txt"}}')
        received = await screen.message("the file", lambda frame: bool(frame["files"]))
        await screen.message("the answer after it", lambda frame: "wrote" in frame["text"])
        check_file(received)

        heading("A question with choices, and the person's answer", "the tool `ask_user_question`")
        await screen.say("mock: ask Tea or coffee? | tea | coffee")
        asked = await screen.message("the card", lambda frame: frame["prompt"] is not None)
        await screen.choose(asked["prompt"], "coffee")
        await screen.message("what the agent was told", lambda frame: frame["text"] == "coffee")

        heading("A message that changes", "the tool `edit_message`")
        await screen.say('mock: tool send_message {"text": "Bread: in the oven"} mock: say {result}')
        await screen.message("the first version", lambda frame: frame["text"].startswith("Bread"))
        sent = await screen.message("its number", lambda frame: "(id: " in frame["text"])
        number = sent["text"].partition("(id: ")[2].partition(")")[0]
        await screen.say(f'mock: tool edit_message {{"message_id": {number}, "text": "Bread: ready"}} mock: quiet')
        await screen.edit("the second version", lambda frame: frame["text"] == "Bread: ready")

        await ledger(client)


def check_file(frame: Frame) -> None:
    (file,) = frame["files"]
    text = Path(file["path"]).read_text(encoding="utf-8")
    if text.strip() != MENU:
        raise Missing(f"the file holds {text!r}, not {MENU!r}")
    says("", f"It arrived, and reads: {text.strip()}")


async def ledger(client: LocalClient) -> None:
    """What the host has on record."""
    args = {"instance": "terminal", "platform_id": FOLDER, "timeout": BOUND}
    if not (await client.call("channel.settled", args))["settled"]:
        raise Missing("something is still on its way")
    heading("Nothing is lost: every message has an end on record", "jackfield message list")
    rows: list[Frame] = await client.call("message.list", {"limit": 100})
    states = {(row["direction"], row["state"]) for row in rows}
    if states != {("in", "completed"), ("out", "sent")}:
        raise Missing(f"the record says {sorted(states)}")
    count = {direction: sum(row["direction"] == direction for row in rows) for direction in ("in", "out")}
    says("", f"{count['in']} messages in, all completed; {count['out']} out, all sent.")


@contextlib.asynccontextmanager
async def attached(client: LocalClient) -> AsyncIterator[Screen]:
    """The terminal channel's client, as `jackfield chat` runs it."""
    screen = Screen()
    screen.conversation = Conversation(client, screen, group=FOLDER, thread=None)
    await screen.conversation.open()
    reading = asyncio.create_task(screen.conversation.run())
    try:
        yield screen
    finally:
        await screen.conversation.close()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


class Screen:
    """Prints the conversation, and lets the player wait for what comes."""

    def __init__(self) -> None:
        self.conversation: Conversation
        self._messages: asyncio.Queue[Frame] = asyncio.Queue()
        self._edits: asyncio.Queue[Frame] = asyncio.Queue()

    async def say(self, text: str) -> None:
        says("you", text)
        await self.conversation.say(text)

    async def choose(self, prompt: Frame, value: str) -> None:
        says("you", f"[{value}]")
        await self.conversation.choose(str(prompt["id"]), value)

    async def message(self, what: str, right: Callable[[Frame], bool]) -> Frame:
        """The next message.

        Raises:
            Missing: it did not come in time, or is not the right one.
        """
        return await _next(self._messages, what, right)

    async def edit(self, what: str, right: Callable[[Frame], bool]) -> Frame:
        return await _next(self._edits, what, right)

    # ---- what the conversation calls

    async def show(self, frame: Frame) -> None:
        files = [f"[file {file['name']}, {size_text(file['size'])}]" for file in frame["files"]]
        says(AGENT, "\n".join([line for line in [plain({**frame, "files": []}), *files] if line]))
        self._messages.put_nowait(frame)

    async def edited(self, message_id: str, text: str, was: str | None) -> None:
        says(AGENT, f"(changes {was!r}) {text}")
        self._edits.put_nowait({"id": message_id, "text": text})

    async def reacted(self, emoji: str, on: bool, was: str | None) -> None:
        says(AGENT, f"({emoji})")

    async def decided(self, text: str) -> None:
        says("", f"(the question now reads: {' '.join(text.split())})")

    async def note(self, text: str) -> None:
        says("", text)

    async def problem(self, text: str) -> None:
        says("", f"Problem: {text}")

    def draft(self, key: str, text: str | None) -> None: ...

    def typing(self, on: bool) -> None: ...

    def raw(self, frame: Frame) -> None: ...


async def _next(queue: asyncio.Queue[Frame], what: str, right: Callable[[Frame], bool]) -> Frame:
    try:
        frame = await asyncio.wait_for(queue.get(), BOUND)
    except TimeoutError:
        raise Missing(f"{what} did not come within {BOUND:g} s") from None
    if not right(frame):
        raise Missing(f"{what} is not as it should be: {json.dumps(frame, ensure_ascii=False)}")
    return frame


# ---- both


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "JACKFIELD_HOME": str(home)}


class Guard:
    """A process that runs `then` when this one has ended, in whatever way, and removes the folder `remove`.

    It sees the end by a pipe whose other side this process holds, and every command that it is handed to as well: so a
    host that is just being started is stopped too.  Leaving the block ends the pipe and waits for the guard.
    """

    def __init__(self, *then: str, remove: Path | None = None) -> None:
        self._arguments = [str(remove or ""), *then]

    def __enter__(self) -> Guard:
        read, self.pipe = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", GUARD, *self._arguments],
                stdin=read,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C, or a kill of the whole group, is not for it
            )
        finally:
            os.close(read)
        return self

    def dismiss(self) -> None:
        """There is nothing left to be run."""
        os.write(self.pipe, b".")

    def __exit__(self, *error: object) -> None:
        os.close(self.pipe)
        self._process.wait()


GUARD = """
import shutil, subprocess, sys
remove, *then = sys.argv[1:]
if not sys.stdin.buffer.read():
    subprocess.run(then, stdin=subprocess.DEVNULL)
if remove:
    shutil.rmtree(remove, ignore_errors=True)
"""


def run(home: Path, *arguments: str, guard: Guard | None = None) -> Any:
    """A command of the program; what it prints, as JSON.

    Raises:
        Missing: it failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", "jackfield.cli", *arguments],
        env=environment(home), stdin=subprocess.DEVNULL, capture_output=True, text=True, encoding="utf-8", timeout=60,
        pass_fds=() if guard is None else (guard.pipe,),
    )  # fmt: skip
    if done.returncode != 0:
        raise Missing(f"jackfield {' '.join(arguments)} ended with {done.returncode}: {done.stderr or done.stdout}")
    return json.loads(done.stdout)


def log_of(home: Path) -> str:
    """The end of the host's log."""
    with contextlib.suppress(OSError):
        return (home / "logs" / "host.jsonl").read_text(encoding="utf-8", errors="replace")[-3000:]
    return ""


def heading(title: str, by: str) -> None:
    print(f"\n{title}  ({by})", flush=True)


def says(who: str, text: str) -> None:
    """Somebody's words, wrapped and indented; nobody's are a remark."""
    for number, line in enumerate(text.splitlines() or [""]):
        lead = f"  {who if number == 0 else '':<6}"
        wrapped = textwrap.wrap(
            line, WIDTH, initial_indent=lead, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False
        )
        print("\n".join(wrapped), flush=True)


def next_steps() -> None:
    place = Path(sys.executable).with_name("jackfield")
    found = shutil.which("jackfield")
    program = "jackfield" if found is not None and Path(found) == place else os.path.relpath(place)
    print("Next, in a home of your own:")
    steps = {
        f"{program} init": "make ~/.jackfield with a first agent",
        f"{program} chat": "talk to it",
        f"{program} plugin list": "see which providers and channels are installed",
        f"{program} group set {FOLDER} provider NAME": "a real model: as soon as its provider plugin is installed",
        f"{program} channel setup TYPE": "a real channel: as soon as its plugin is installed",
        f"{program} wire CHAT {FOLDER}": f"and {AGENT} answers in that chat",
    }
    longest = max(map(len, steps))
    for command, meaning in steps.items():
        print(f"  {command.ljust(longest)}   {meaning}")
    print("docs/operators/start.md goes on from here; docs/plugins/writing.md is for those who write plugins.")


if __name__ == "__main__":
    sys.exit(talk() if sys.stdin.isatty() and sys.stdout.isatty() else play())
