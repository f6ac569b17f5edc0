"""The tools of a session as the model sees them, and running what it calls."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from jackfield.api import BoundTool, ProviderEvent, ToolEnded, ToolStarted

from jackfield_provider_kit.loop.blocks import ToolCall, ToolOutput
from jackfield_provider_kit.loop.mending import cut_text
from jackfield_provider_kit.loop.setup import Limits
from jackfield_provider_kit.loop.wire import ToolSpec

__all__ = ["Toolbelt"]

_AT_ONCE = 8
"""Calls of one reply that run at the same time."""
_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64
_INTERRUPTED = "The call was interrupted; whether it took effect is not known."


class Toolbelt:
    """Runs calls side by side; each is told by a pair of events, and has an output whatever happens."""

    def __init__(
        self, tools: Sequence[BoundTool], limits: Limits, results: Path, emit: Callable[[ProviderEvent], None]
    ) -> None:
        self._tools = tools
        self._limits = limits
        self._results = results
        self._emit = emit

    def specs(self) -> list[ToolSpec]:
        """What the model is told, sorted by name."""
        return [
            ToolSpec(name=name, description=tool.description, schema=tool.input_schema)
            for name, tool in sorted(self._known().items())
        ]

    def _known(self) -> dict[str, BoundTool]:
        """By the names that every API takes: letters, digits, `_` and `-`, at most 64."""
        known: dict[str, BoundTool] = {}
        for tool in self._tools:
            name = plain = _NAME.sub("_", tool.name)[:_LONGEST_NAME]
            number = 1
            while name in known:
                number += 1
                name = f"{plain[: _LONGEST_NAME - 4]}_{number}"
            known[name] = tool
        return known

    async def run(self, calls: Sequence[ToolCall], outputs: dict[str, ToolOutput]) -> None:
        """Run the calls and put what came of each into `outputs`, also when this is cancelled."""
        known = self._known()
        room = asyncio.Semaphore(_AT_ONCE)

        outputs.update((call.id, ToolOutput(call.id, _INTERRUPTED, failed=True)) for call in calls)

        async def one(call: ToolCall) -> None:
            async with room:
                outputs[call.id] = await self._one(call, known)

        tasks = [asyncio.create_task(one(call), name=f"tool {call.name}") for call in calls]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, call: ToolCall, known: dict[str, BoundTool]) -> ToolOutput:
        tool = known.get(call.name)
        name = tool.name if tool is not None else call.name
        self._emit(ToolStarted(call=call.id, name=name, summary=", ".join(call.arguments)[:200]))
        try:
            text, failed = await self._called(call, tool, known)
        except BaseException:
            self._emit(ToolEnded(call=call.id, ok=False, summary="cancelled"))
            raise
        self._emit(ToolEnded(call=call.id, ok=not failed, summary=text[:200]))
        return ToolOutput(call.id, text, failed)

    async def _called(self, call: ToolCall, tool: BoundTool | None, known: dict[str, BoundTool]) -> tuple[str, bool]:
        if tool is None:
            return f"There is no tool {call.name!r}. The tools are: {', '.join(sorted(known)) or 'none'}.", True
        if call.broken is not None:
            said = cut_text(call.broken, 500)
            return f"The arguments are not a whole JSON object, so nothing was done: {said!r}. Send them again.", True
        seconds = self._limits.tool_seconds or None
        try:
            async with asyncio.timeout(seconds):
                result = await tool.call(dict(call.arguments))
        except TimeoutError:
            return f"The call was given up after {seconds} seconds; whether it took effect is not known.", True
        return await self._bounded(call, result.text), result.is_error

    async def _bounded(self, call: ToolCall, text: str) -> str:
        """A result that is too long for the model is kept in a file; the model sees its ends (C132)."""
        limit = self._limits.result_chars
        if not limit or len(text) <= limit:
            return text
        path = self._results / f"{_NAME.sub('_', call.id)[:80]}.txt"

        def write() -> None:
            self._results.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", errors="replace")

        try:
            await asyncio.to_thread(write)
        except OSError:
            return cut_text(text, limit)
        return cut_text(text, limit, f"; the whole result is in {path}")
