"""The contract of tool sets: what a model may call must be described, bounded, and answer in every case."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from jackfield.api import BoundTool, Tool, ToolResult, ToolSet
from jackfield.plugins.kinds import Kind
from jackfield.testing.contracts.checks import check, nothing_left, plain_text, skip
from jackfield.testing.contracts.plugin import PluginContract
from jackfield.testing.contracts.schemas import faults_of, sample, wrong_values
from jackfield.testing.recorders import ToolRecorder
from jackfield.testing.tools import bind_tools
from jackfield.testing.waiting import BOUND, soon

__all__ = ["HOSTILE_TEXTS", "ToolsContract"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_RESULT_LIMIT = 262_144
_SCHEMA_LIMIT = 16_384
_INSTRUCTIONS_LIMIT = 16_384

HOSTILE_TEXTS = (
    "",
    " \n\t",
    "x" * 100_000,
    "</message><message to='family'>hi</message>",
    "\x00\x1b[2J\x07\u202egpj.exe\ufeff",
    "../../etc/passwd",
    "-1",
    "\ud83d lone surrogate",
)
"""What a model that was talked into something passes."""


class ToolsContract(PluginContract):
    """For a tool set.

    class TestWeather(ToolsContract):
        plugin = "weather"
        settings = {"units": "metric"}
        examples = {"forecast": {"city": "Bern"}}
        answers = {"weather.lookup": {"t": 4}}     # what the host would answer to `context.act`
    """

    kind: ClassVar[Kind] = Kind.TOOLS
    examples: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Arguments with which a tool works, by its name.  Without one, they are made from the schema."""
    answers: ClassVar[Mapping[str, Any]] = {}
    """What the host answers by an action's name: a value, or a function of the arguments."""

    def prepare(self, context: ToolRecorder) -> None:
        """Put what the examples need into the workspace."""

    # ---- what checks use

    def context(self, folder: Path) -> ToolRecorder:
        made = ToolRecorder(folder / "workspace", settings=self.settings, answers=self.answers)
        self.prepare(made)
        return made

    def tools(self) -> tuple[Tool, ...]:
        item = self.item()
        assert isinstance(item, ToolSet), f"register_tools gave {item!r}"
        return item.tools

    def bound(self, context: ToolRecorder) -> dict[str, BoundTool]:
        return bind_tools(self.tools(), context)

    def arguments(self, bound: BoundTool) -> dict[str, Any]:
        """The author's example, or what the schema asks for at least."""
        if bound.name in self.examples:
            return dict(self.examples[bound.name])
        found = sample(bound.input_schema)
        assert isinstance(found, dict)
        return found

    async def _answer(self, bound: BoundTool, arguments: dict[str, Any]) -> ToolResult:
        shown = json.dumps(arguments)[:200]
        result = await soon(bound.call(arguments), f"{bound.name}({shown}) to answer")
        assert "Traceback (most recent call last)" not in result.text, f"{bound.name}({shown}) shows a traceback"
        return result

    # ---- the checks

    @check("TOOL-01")
    def test_tool_01_the_set_is_named_and_not_empty(self) -> None:
        """The tool set has the entry point's name, a title and at least one tool, each made by `@tool`."""
        item = self.item()
        assert isinstance(item, ToolSet), f"register_tools gave {item!r}"
        assert item.name == self.plugin
        assert item.title.strip(), "title is empty"
        assert item.tools, "it has no tools"
        strangers = [one for one in item.tools if not isinstance(one, Tool)]
        assert not strangers, f"{strangers} is not decorated with @tool"

    @check("TOOL-02")
    def test_tool_02_names_are_plain_and_unique(self) -> None:
        """A tool's name is small letters, digits and underscores, at most 64, and no two tools share one."""
        names = [one.name for one in self.tools()]
        odd = [name for name in names if not _NAME.fullmatch(name)]
        assert not odd, f"engines refuse the names {odd}"
        assert len(set(names)) == len(names), f"a name is used twice: {names}"

    @check("TOOL-03")
    def test_tool_03_the_model_is_told_what_a_tool_does(self) -> None:
        """Each tool has a docstring of a sentence at least, without characters that can't be seen."""
        for one in self.tools():
            assert len(one.description.split()) >= 2, f"{one.name}: {one.description!r} tells the model too little"
            assert not plain_text(one.description), f"{one.name}: hidden characters {plain_text(one.description)}"

    @check("TOOL-04")
    def test_tool_04_schemas_are_flat(self, tmp_path: Path) -> None:
        """A tool's parameters are one JSON Schema object without references, of at most 16 KiB as JSON."""
        for bound in self.bound(self.context(tmp_path)).values():
            schema = bound.input_schema
            assert schema.get("type") == "object", f"{bound.name}: its schema is {schema.get('type')!r}, not an object"
            faults = list(faults_of(schema))
            assert not faults, f"{bound.name}: {'; '.join(faults)}"
            size = len(json.dumps(schema))
            assert size <= _SCHEMA_LIMIT, f"{bound.name}: its schema has {size} bytes"

    @check("TOOL-05")
    async def test_tool_05_wrong_arguments_are_answered(self, tmp_path: Path) -> None:
        """Missing, unknown and wrongly typed arguments get an error text; the tool itself is not run."""
        context = self.context(tmp_path)
        for bound in self.bound(context).values():
            for arguments in self._wrong(bound):
                result = await self._answer(bound, arguments)
                assert result.is_error, f"{bound.name} takes {json.dumps(arguments)[:200]} although it does not fit"
                assert len(result.text) <= 4000, f"{bound.name}: the error text has {len(result.text)} characters"

    @check("TOOL-06")
    async def test_tool_06_examples_work(self, tmp_path: Path) -> None:
        """Each tool works with its example, and answers with a text of at most 256 KiB."""
        if not self.examples:
            skip("set `examples` to show arguments with which each tool works")
        context = self.context(tmp_path)
        tools = self.bound(context)
        unknown = set(self.examples) - set(tools)
        assert not unknown, f"there are examples for tools that don't exist: {sorted(unknown)}"
        for name, bound in tools.items():
            if name in self.examples:
                result = await self._answer(bound, self.arguments(bound))
                assert not result.is_error, f"{name}: {result.text}"
                assert len(result.text.encode(errors="replace")) <= _RESULT_LIMIT, f"{name}: its result is too long"

    @check("TOOL-07")
    async def test_tool_07_hostile_texts_are_answered(self, tmp_path: Path) -> None:
        """Whatever texts a model passes, a tool works or raises `ToolFailed` with a sentence; nothing else."""
        context = self.context(tmp_path)
        for bound in self.bound(context).values():
            for text in HOSTILE_TEXTS:
                arguments = sample(bound.input_schema, text)
                if set(arguments) < set(bound.input_schema["properties"]):
                    await self._no_accident(bound, self._all_texts(bound, text))
                await self._no_accident(bound, arguments)

    @check("TOOL-08")
    async def test_tool_08_the_time_limit_holds(self, tmp_path: Path) -> None:
        """A call whose work never comes back is stopped at its limit, answered, and leaves nothing running."""
        reached = False
        for tool in self.tools():
            context = self.context(tmp_path)
            context.hang = True
            async with nothing_left(f"{tool.name}, stopped at its limit,"):
                (bound,) = bind_tools([replace(tool, timeout=0.05)], context).values()
                result = await self._answer(bound, self.arguments(bound))
            if context.entered.is_set():
                reached = True
                assert result.is_error, f"{tool.name} answers {result.text[:200]!r} although its work never ended"
        if not reached:
            skip("no tool asks the context for anything that could be made to hang")

    @check("TOOL-09")
    async def test_tool_09_a_call_can_be_cancelled(self, tmp_path: Path) -> None:
        """A cancelled call ends as cancelled, and leaves nothing running."""
        reached = False
        for tool in self.tools():
            context = self.context(tmp_path)
            context.hang = True
            async with nothing_left(f"{tool.name}, cancelled,"):
                (bound,) = bind_tools([tool], context, limit=0).values()
                call = asyncio.create_task(bound.call(self.arguments(bound)))
                entered = asyncio.create_task(context.entered.wait())
                await asyncio.wait({call, entered}, timeout=BOUND, return_when=asyncio.FIRST_COMPLETED)
                entered.cancel()
                if call.done():
                    continue
                reached = True
                call.cancel()
                await asyncio.wait({call}, timeout=BOUND)
                assert call.cancelled(), f"{tool.name} goes on although it was cancelled"
        if not reached:
            skip("no tool asks the context for anything that could be made to hang")

    @check("TOOL-10")
    def test_tool_10_instructions_are_short_and_plain(self) -> None:
        """What goes into the system prompt has at most 16 KiB and no characters that can't be seen."""
        text = self.item().instructions
        assert len(text.encode()) <= _INSTRUCTIONS_LIMIT, f"instructions have {len(text.encode())} bytes"
        assert not plain_text(text), f"instructions have hidden characters: {plain_text(text)}"

    @check("TOOL-11")
    async def test_tool_11_sessions_share_nothing(self, tmp_path: Path) -> None:
        """Two sessions that use the tools at once each reach only their own context."""
        one, two = self.context(tmp_path / "one"), self.context(tmp_path / "two")
        tools = self.bound(one), self.bound(two)
        before = _traces(two)
        for bound in tools[0].values():
            await self._answer(bound, self.arguments(bound))
        assert _traces(two) == before, "a call in one session reached the context of another"

    # ---- arguments

    def _wrong(self, bound: BoundTool) -> Iterator[dict[str, Any]]:
        good = self.arguments(bound)
        properties = bound.input_schema["properties"]
        yield {**good, "no_such_parameter": 1}
        for name in bound.input_schema.get("required", ()):
            yield {key: value for key, value in good.items() if key != name}
        for name, schema in properties.items():
            for wrong in wrong_values(schema):
                yield {**good, name: wrong}

    def _all_texts(self, bound: BoundTool, text: str) -> dict[str, Any]:
        """Every parameter given, also those that needn't be."""
        return {name: sample(inner, text) for name, inner in bound.input_schema["properties"].items()}

    async def _no_accident(self, bound: BoundTool, arguments: dict[str, Any]) -> None:
        result = await self._answer(bound, arguments)
        assert not (result.is_error and result.text == "Error: the tool failed"), (
            f"{bound.name}({json.dumps(arguments)[:200]}) raised something else than ToolFailed (see the log); "
            "the model learns nothing from that"
        )


def _traces(context: ToolRecorder) -> tuple[int, ...]:
    return (
        len(context.sent),
        len(context.edits),
        len(context.reactions),
        len(context.questions),
        len(context.requests),
    )
