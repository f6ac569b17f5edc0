"""A visit that shows whether the settings work: log in, join nothing, and leave."""

from __future__ import annotations

import asyncio

from jackfield.clock import Clock

from jackfield_channel_irc.session import Secrets, Session
from jackfield_channel_irc.settings import IrcSettings
from jackfield_channel_irc.socket import Socket

__all__ = ["visit"]


async def visit(settings: IrcSettings, session_secrets: Secrets, clock: Clock) -> None:
    """Connect and log in; returns when the server has let us in.

    Raises:
        ChannelError, ConfigError: why it did not.
    """
    socket = await Socket.open(settings)
    session = Session(settings, session_secrets, socket, clock)
    up = asyncio.Event()

    async def ignored(*_: object) -> None: ...

    running = asyncio.create_task(
        session.run(lambda room: None, ignored, ignored, lambda: up.set() if session.up else None)
    )
    waiting = asyncio.create_task(up.wait())
    try:
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        session.say_goodbye()
        for task in (running, waiting):
            task.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        await socket.close()
