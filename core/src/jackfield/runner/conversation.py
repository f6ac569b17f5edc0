"""One provider session and its events, kept open between turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from jackfield.api import (
    Continuation,
    Provider,
    ProviderCapabilities,
    ProviderEvent,
    ProviderInput,
    ProviderSession,
    ProviderSpec,
    SendReceipt,
    SessionClosed,
    TurnEnded,
)
from jackfield.errors import ProviderError

__all__ = ["Conversation"]

_LOG = logging.getLogger(__name__)


class Conversation:
    """Reads the provider's stream into a queue; `on_event` is called for each event that is put there."""

    def __init__(self, provider: Provider, on_event: Callable[[], None]) -> None:
        self.capabilities: ProviderCapabilities = provider.capabilities()
        self.system_prompt: str | None = None
        """The one that the open session has."""
        self._provider = provider
        self._on_event = on_event
        self._session: ProviderSession | None = None
        self._over = False
        self._events: asyncio.Queue[ProviderEvent] = asyncio.Queue()
        self._pump: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._session is not None and not self._over

    @property
    def has_events(self) -> bool:
        return not self._events.empty()

    async def open(self, spec: ProviderSpec, continuation: Continuation | None) -> None:
        """Begin or take up the conversation.

        Raises:
            ProviderError: it can't be opened.
        """
        await self.close(2.0)
        self._events = asyncio.Queue()
        self._over = False
        try:
            session = await self._provider.open(spec, continuation)
        except ProviderError:
            raise
        except Exception as problem:
            _LOG.exception("the provider's session could not be opened")
            raise ProviderError(f"could not open a session: {problem!r}", kind="engine_missing") from problem
        self._session = session
        self.system_prompt = spec.system_prompt
        self._pump = asyncio.create_task(self._read(session, self._events), name="provider events")
        # What the session has to say about itself before any input, like a lost continuation, is read first.
        for _ in range(3):
            await asyncio.sleep(0)

    async def send(self, message: ProviderInput) -> SendReceipt:
        """Hand in a prompt.

        Raises:
            ProviderError: the session is closed, or failed.
        """
        if self._session is None or self._over:
            raise ProviderError("the provider's session is closed", kind="engine_crash", retryable=True)
        try:
            return await self._session.send(message)
        except ProviderError:
            raise
        except Exception as problem:
            _LOG.exception("the provider could not take a prompt")
            raise ProviderError(
                f"the provider could not take the prompt: {problem!r}", kind="engine_crash"
            ) from problem

    async def next_event(self) -> ProviderEvent:
        return await self._events.get()

    def next_event_now(self) -> ProviderEvent | None:
        try:
            return self._events.get_nowait()
        except asyncio.QueueEmpty:
            return None

    async def interrupt(self, grace: float) -> None:
        """End the running turn.  An engine that can't be interrupted is closed instead."""
        if self._session is None:
            return
        if self.capabilities.interrupt:
            try:
                async with asyncio.timeout(grace + 2.0):
                    await self._session.interrupt(grace=grace)
                return
            except Exception:  # noqa: BLE001 - then it is ended the hard way
                _LOG.exception("the provider could not be interrupted")
        await self.close(grace)
        self._events.put_nowait(TurnEnded(outcome="interrupted"))

    def gone(self) -> None:
        """The engine closed the session itself; what is left of it is cleared away with the next `open` or `close`."""
        self._over = True

    async def compact(self) -> None:
        if self._session is not None:
            await self._session.compact()

    async def close(self, deadline: float) -> None:
        """End the session; what it still says is dropped.  Never raises for a provider that fails to close."""
        session, self._session, self.system_prompt = self._session, None, None
        pump, self._pump = self._pump, None
        if session is not None:
            try:
                async with asyncio.timeout(deadline + 2.0):
                    await session.close(deadline=deadline)
            except Exception:  # noqa: BLE001 - whatever a provider raises here, the runner goes on
                _LOG.exception("the provider's session could not be closed")
        if pump is not None:
            pump.cancel()
            await asyncio.wait({pump})

    async def _read(self, session: ProviderSession, events: asyncio.Queue[ProviderEvent]) -> None:
        try:
            async for event in session.events():
                events.put_nowait(event)
                self._on_event()
                if isinstance(event, SessionClosed):
                    return
            closed = SessionClosed(reason="the stream of events ended")
        except asyncio.CancelledError:
            raise
        except Exception as problem:  # noqa: BLE001 - it ends the turn as an event, whatever it is
            _LOG.exception("the provider's stream of events broke")
            closed = SessionClosed(reason=f"the stream of events broke: {problem!r}")
        events.put_nowait(closed)
        self._on_event()
