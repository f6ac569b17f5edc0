"""Without a person at a terminal: send, print what is answered, end when everything is answered."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jackfield.errors import JackfieldError, NoHost, UsageError

from jackfield_channel_terminal.conversation import Conversation, Refused
from jackfield_channel_terminal.frames import Frame
from jackfield_channel_terminal.plain_screen import PlainScreen
from jackfield_channel_terminal.reasons import Reasons
from jackfield_channel_terminal.rendering import plain, rich_text
from jackfield_channel_terminal.stdin import lines_of_stdin, whole_stdin
from jackfield_channel_terminal.typed import HELP, Choose, Help, Nothing, Problem, Quit, Speak, read_line

if TYPE_CHECKING:
    from jackfield.api.client import LocalClient

    from jackfield_channel_terminal.chat import Options

__all__ = ["send_and_wait", "talk_plainly"]

_ASK_AGAIN = 0.5


def _screen(options: Options) -> PlainScreen:
    def drawn(frame: Frame) -> str:
        return rich_text(frame, width=shutil.get_terminal_size().columns, color=options.color)

    return PlainScreen(drawn if sys.stdout.isatty() and not options.plain else plain, machine=options.machine)


async def send_and_wait(client: LocalClient, options: Options, group: str | None) -> int:
    """Send the message, or each line, and wait until the chat is settled; the exit code."""
    screen = _screen(options)
    first = await _first_message(options)
    conversation = Conversation(client, screen, group=group, thread=options.thread, instance=options.instance)
    await conversation.open()
    try:
        return await _beside(conversation, _send_all(client, options, conversation, screen, first))
    except Refused as problem:
        await screen.problem(str(problem))
        return 1
    finally:
        await conversation.close()


async def _first_message(options: Options) -> str | None:
    """The one message; None when each line is one.

    Raises:
        UsageError: there is nothing to send.
    """
    if options.lines:
        return None
    text = options.message
    if text is None:
        # With only files to send, a terminal is not asked for a text.
        text = "" if options.files and sys.stdin.isatty() else await whole_stdin()
    if not text.strip() and not options.files:
        raise UsageError(
            "there is nothing to send: standard input is empty", fix="echo hello | jackfield chat, or -m TEXT"
        )
    return text


async def _send_all(
    client: LocalClient, options: Options, conversation: Conversation, screen: PlainScreen, first: str | None
) -> int:
    if first is not None:
        return await _send_one(client, options, conversation, screen, first, options.files)
    code, files = 0, options.files
    async for line in lines_of_stdin():
        if line.strip():
            code = max(code, await _send_one(client, options, conversation, screen, line, files))
            files = ()
    return code


async def _send_one(
    client: LocalClient,
    options: Options,
    conversation: Conversation,
    screen: PlainScreen,
    text: str,
    files: tuple[str, ...],
) -> int:
    since = time.time_ns() // 1_000_000
    try:
        async with asyncio.timeout(options.timeout):
            await conversation.say(text, files)
            outcome = await _settled(client, options, conversation, since)
    except TimeoutError:
        outcome = {}
    for item in outcome.get("failed", ()):
        await screen.problem(f"the turn {item['state']}: {item.get('reason') or 'no reason is known'}")
        return 1
    for item in outcome.get("parked", ()):
        await screen.problem(
            f"the message is kept and answered later ({item['reason'] or 'the agent rests after a failure'})"
        )
        return 1
    if not outcome.get("settled"):
        await screen.problem(f"no answer within {options.timeout:g} seconds; it goes on, see `jackfield message list`")
        return 1
    return 0


async def _settled(client: LocalClient, options: Options, conversation: Conversation, since: int) -> dict[str, Any]:
    """Wait until nothing of this chat is open; a host that is started again meanwhile is asked again."""
    args: dict[str, Any] = {
        "instance": options.instance,
        "platform_id": conversation.group,
        "timeout": options.timeout,
        "since": since,
    }
    while True:
        try:
            return dict(await client.call("channel.settled", args))
        except NoHost:
            if client.started_host:
                raise
            await asyncio.sleep(_ASK_AGAIN)


async def talk_plainly(client: LocalClient, options: Options, group: str | None) -> int:
    """Lines in, lines out, until the end of standard input or Ctrl-C."""
    screen = _screen(options)
    conversation = Conversation(client, screen, group=group, thread=options.thread, instance=options.instance)
    conversation.after_message = Reasons(client, conversation, screen, options.instance).look
    await conversation.open()
    try:
        return await _beside(conversation, _ask_and_send(conversation, screen, lines_of_stdin()))
    finally:
        await conversation.close()


async def _ask_and_send(conversation: Conversation, screen: PlainScreen, lines: AsyncIterator[str]) -> int:
    async for line in lines:
        match await asyncio.to_thread(read_line, line, conversation.prompt, Path.cwd()):
            case Quit():
                return 0
            case Help():
                await screen.note(HELP)
            case Problem(text):
                await screen.problem(text)
            case Choose(prompt_id, value):
                await conversation.choose(prompt_id, value)
            case Speak(text, files):
                try:
                    await conversation.say(text, files)
                except Refused as problem:
                    await screen.problem(str(problem))
            case Nothing():
                pass
    return 0


async def _beside(conversation: Conversation, work: Coroutine[Any, Any, int]) -> int:
    """Do the work while the conversation is read; if reading breaks, so does the work.

    Raises:
        JackfieldError: as either of them said.
        BrokenPipeError: nobody reads what we print.
    """
    reading = asyncio.create_task(conversation.run(), name="chat: read")
    working = asyncio.create_task(work, name="chat: send")
    try:
        await asyncio.wait({reading, working}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            reading.result()
            raise JackfieldError("the conversation ended before everything was answered")
        return working.result()
    finally:
        for task in (reading, working):
            task.cancel()
        await asyncio.gather(reading, working, return_exceptions=True)
