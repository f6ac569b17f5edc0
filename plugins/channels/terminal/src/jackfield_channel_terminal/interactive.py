"""The conversation at a terminal."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from jackfield.errors import JackfieldError

from jackfield_channel_terminal.conversation import Conversation
from jackfield_channel_terminal.reasons import Reasons
from jackfield_channel_terminal.tty_screen import TtyScreen
from jackfield_channel_terminal.typed import HELP, Choose, Help, Problem, Quit, Speak, Typed, read_line

if TYPE_CHECKING:
    from jackfield.api.client import LocalClient

    from jackfield_channel_terminal.chat import Options

__all__ = ["talk"]


async def talk(client: LocalClient, options: Options, group: str | None, name: str) -> int:
    """Talk until the person leaves; the exit code."""
    screen = TtyScreen(name=name, history=client.home / "terminal_history", color=options.color)
    conversation = Conversation(client, screen, group=group, thread=options.thread, instance=options.instance)
    conversation.after_message = Reasons(client, conversation, screen, options.instance).look
    await conversation.open()
    await screen.note(f"Talking to {name}. Ctrl-D leaves, /help tells more.")
    reading = asyncio.create_task(conversation.run(), name="chat: read")
    asking = asyncio.create_task(_ask_and_send(conversation, screen), name="chat: ask")
    try:
        await asyncio.wait({reading, asking}, return_when=asyncio.FIRST_COMPLETED)
        for task in (asking, reading):
            if task.done():
                task.result()  # raises what broke it
        return 0
    finally:
        await conversation.close()
        for task in (asking, reading):
            task.cancel()
        await asyncio.gather(asking, reading, return_exceptions=True)


async def _ask_and_send(conversation: Conversation, screen: TtyScreen) -> None:
    sending: set[asyncio.Task[None]] = set()
    try:
        async with aclosing(screen.lines()) as lines:
            async for line in lines:
                typed = await asyncio.to_thread(read_line, line, conversation.prompt, Path.cwd())
                if isinstance(typed, Quit):
                    return
                if isinstance(typed, Speak):
                    task = asyncio.create_task(_say(conversation, screen, typed), name="chat: say")
                    sending.add(task)
                    task.add_done_callback(sending.discard)
                else:
                    await _obey(conversation, screen, typed)
    finally:
        # What was typed last may not be stored yet; a moment is enough, unless the host is away.
        if sending:
            _, late = await asyncio.wait(sending, timeout=2)
            for task in late:
                task.cancel()


async def _obey(conversation: Conversation, screen: TtyScreen, typed: Typed) -> None:
    match typed:
        case Help():
            await screen.note(HELP)
        case Problem(text):
            await screen.problem(text)
        case Choose(prompt_id, value):
            await conversation.choose(prompt_id, value)
        case _:
            pass


async def _say(conversation: Conversation, screen: TtyScreen, message: Speak) -> None:
    try:
        await conversation.say(message.text, message.files)
    except JackfieldError as problem:
        await screen.problem(str(problem))
