"""The conversation at a terminal."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

from jackfield.errors import JackfieldError

from jackfield_channel_terminal.conversation import Conversation
from jackfield_channel_terminal.tty_screen import TtyScreen
from jackfield_channel_terminal.typed import HELP, Choose, Help, Nothing, Problem, Quit, Speak, read_line

if TYPE_CHECKING:
    from jackfield.api.client import LocalClient

    from jackfield_channel_terminal.chat import Options

__all__ = ["talk"]

_TWICE = 2.0
"""Seconds in which a second Ctrl-C on an empty line leaves."""


async def talk(client: LocalClient, options: Options, group: str | None, name: str) -> int:
    """Talk until the person leaves; the exit code."""
    screen = TtyScreen(name=name, history=client.home / "terminal_history", color=options.color)
    conversation = Conversation(client, screen, group=group, thread=options.thread, instance=options.instance)
    await conversation.open()
    await screen.note(f"Talking to {name}. Ctrl-D leaves, /help tells more.")
    reading = asyncio.create_task(conversation.run(), name="chat: read")
    asking = asyncio.create_task(_ask_and_send(conversation, screen), name="chat: ask")
    try:
        await asyncio.wait({reading, asking}, return_when=asyncio.FIRST_COMPLETED)
        if reading.done() and not asking.done():
            reading.result()  # raises what broke it
        return 0
    finally:
        screen.close()
        await conversation.close()
        for task in (asking, reading):
            task.cancel()
        await asyncio.gather(asking, reading, return_exceptions=True)


async def _ask_and_send(conversation: Conversation, screen: TtyScreen) -> None:
    sending: set[asyncio.Task[None]] = set()
    interrupted_at = float("-inf")
    try:
        while True:
            try:
                line = await screen.ask()
            except EOFError:
                return
            except KeyboardInterrupt:
                if time.monotonic() - interrupted_at < _TWICE:
                    return
                interrupted_at = time.monotonic()
                await screen.note("Press Ctrl-C again, or Ctrl-D, to leave.")
                continue
            typed = await asyncio.to_thread(read_line, line, conversation.prompt, Path.cwd())
            match typed:
                case Quit():
                    return
                case Help():
                    await screen.note(HELP)
                case Problem(text):
                    await screen.problem(text)
                case Choose(prompt_id, value):
                    await conversation.choose(prompt_id, value)
                case Speak():
                    task = asyncio.create_task(_say(conversation, screen, typed), name="chat: say")
                    sending.add(task)
                    task.add_done_callback(sending.discard)
                case Nothing():
                    pass
    finally:
        # What was typed last may not be stored yet; a moment is enough, unless the host is away.
        if sending:
            _, late = await asyncio.wait(sending, timeout=2)
            for task in late:
                task.cancel()


async def _say(conversation: Conversation, screen: TtyScreen, message: Speak) -> None:
    try:
        await conversation.say(message.text, message.files)
    except JackfieldError as problem:
        await screen.problem(str(problem))
