"""The tools suite refuses tools that would let a model down."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
from jackfield.api import Tool, ToolContext, ToolResult, ToolSet, tool
from jackfield.testing import ToolsContract

from tests.contracts.refusing import refusal


@tool
async def good(context: ToolContext, text: Annotated[str, "What to say"], count: int = 1) -> str:
    """Say something, some times."""
    sent = await context.send(text=text)
    return f"sent {sent.seq}, {count} times"


@tool
async def careless(context: ToolContext, number: str) -> str:
    """Read a number."""
    return str(int(number))


@tool
async def talkative(context: ToolContext) -> ToolResult:
    """Show how it failed."""
    return ToolResult(text="Traceback (most recent call last): ...", is_error=True)


@tool
async def anything(context: ToolContext, value: Any = None) -> str:
    """Take whatever comes."""
    return "fine"


@tool
async def stubborn(context: ToolContext) -> str:
    """Send something, whatever happens."""
    try:
        await context.send(text="x")
    except asyncio.CancelledError:
        await context.send(text="x")
    return "never"


LEFT: list[asyncio.Task[Any]] = []


@tool
async def leaver(context: ToolContext) -> str:
    """Send something in a task of its own."""
    LEFT.append(asyncio.create_task(context.send(text="x")))  # type: ignore[arg-type]  # wrong on purpose
    await asyncio.sleep(0)
    await asyncio.Event().wait()
    return "never"


KEPT: list[ToolContext] = []


@tool
async def shared(context: ToolContext) -> str:
    """Send to the context of the first call."""
    KEPT.append(context)
    await KEPT[0].send(text="x")
    return "sent"


class Suite(ToolsContract):
    plugin = "set"
    tool_set: ClassVar[ToolSet] = ToolSet(name="set", title="A set", tools=(good,))

    def item(self) -> ToolSet:
        return self.tool_set


def suite(*tools: Tool, **more: Any) -> type[Suite]:
    base = {"name": "set", "title": "A set", "tools": tools}
    return type("Bad", (Suite,), {"tool_set": ToolSet(**(base | more)), **more.pop("attributes", {})})


@pytest.mark.parametrize(
    ("bad", "id", "says"),
    [
        (suite(), "TOOL-01", "no tools"),
        (suite(good, name="other"), "TOOL-01", "other"),
        (suite(replace(good, name="Say It!")), "TOOL-02", "Say It!"),
        (suite(good, good), "TOOL-02", "twice"),
        (suite(replace(good, description="Says.")), "TOOL-03", "too little"),
        (suite(replace(good, description="Say it \u202ebackwards.")), "TOOL-03", "U+202E"),
        (suite(talkative), "TOOL-07", "shows a traceback"),
        (suite(careless), "TOOL-07", "something else than ToolFailed"),
        (suite(good, instructions="Say \x1b[2J nothing."), "TOOL-10", "U+001B"),
        (suite(good, instructions="x" * 20_000), "TOOL-10", "20000 bytes"),
    ],
)
async def test_a_bad_tool_is_refused(bad: type[Suite], id: str, says: str, tmp_path: Path) -> None:
    assert says in await refusal(bad, id, tmp_path)


async def test_a_schema_with_references_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner's own schemas have none; an engine that makes its own might."""
    monkeypatch.setattr(
        "jackfield.runner.parameters.schema_of", lambda model: {"type": "object", "properties": {"a": {"$ref": "#/x"}}}
    )
    assert "$ref" in await refusal(suite(good), "TOOL-04", tmp_path)


async def test_a_failing_example_is_refused(tmp_path: Path) -> None:
    class Bad(Suite):
        examples: ClassVar[Mapping[str, Mapping[str, Any]]] = {"good": {"text": " "}}

    assert "text is required" in await refusal(Bad, "TOOL-06", tmp_path)


async def test_a_tool_that_takes_anything_is_refused_only_for_unknown_names(tmp_path: Path) -> None:
    """Unknown parameters are the runner's to refuse, so even this tool passes."""
    await suite(anything)().test_tool_05_wrong_arguments_are_answered(tmp_path)


@pytest.mark.parametrize("bad", [stubborn, leaver])
async def test_a_tool_that_goes_on_after_its_limit_is_refused(
    bad: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jackfield.testing.waiting.BOUND", 6.0)
    monkeypatch.setattr("jackfield.runner.tools._CANCEL_GRACE", 0.1)
    assert "leaves behind: the task" in await refusal(suite(bad), "TOOL-08", tmp_path)


async def test_a_tool_that_keeps_a_context_is_refused(tmp_path: Path) -> None:
    KEPT.clear()
    one = suite(shared)
    from jackfield.testing import ToolRecorder

    other = ToolRecorder(tmp_path / "two" / "workspace")
    KEPT.append(other)

    class Bad(one):  # type: ignore[misc, valid-type]  # wrong on purpose
        def context(self, folder: Path) -> ToolRecorder:
            return other if folder.name == "two" else super().context(folder)  # type: ignore[no-any-return]  # wrong on purpose

    assert "reached the context of another" in await refusal(Bad, "TOOL-11", tmp_path)


async def test_a_good_tool_passes(tmp_path: Path) -> None:
    made = Suite()
    await made.test_tool_05_wrong_arguments_are_answered(tmp_path / "a")
    await made.test_tool_07_hostile_texts_are_answered(tmp_path / "b")
    await made.test_tool_08_the_time_limit_holds(tmp_path / "c")
    await made.test_tool_09_a_call_can_be_cancelled(tmp_path / "d")
