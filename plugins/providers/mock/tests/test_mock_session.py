"""What the mock does as a provider."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import pytest
from jackfield.api import (
    Compacting,
    Continuation,
    ContinuationChanged,
    ContinuationLost,
    InputTaken,
    Notice,
    Provider,
    ProviderEvent,
    ProviderInput,
    ProviderSession,
    ProviderSpec,
    RateLimitedUntil,
    Retrying,
    SessionClosed,
    SessionReady,
    TextDelta,
    TextDiscarded,
    TextDone,
    Thinking,
    ToolEnded,
    ToolProgress,
    ToolResult,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
)
from jackfield.errors import ProviderError, ProviderErrorKind
from jackfield_provider_mock import plugin

BOUND = 30.0


@dataclass
class FakeTool:
    name: str
    answer: Callable[[dict[str, Any]], ToolResult] = lambda arguments: ToolResult(text=f"did {arguments}")
    description: str = "A tool."
    input_schema: dict[str, Any] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    forever: bool = False

    async def call(self, arguments: dict[str, Any]) -> ToolResult:
        self.calls.append(arguments)
        if self.forever:
            await asyncio.Event().wait()
        return self.answer(arguments)


class Talk:
    """A session and everything it has told."""

    def __init__(self, session: ProviderSession) -> None:
        self.session = session
        self.seen: list[ProviderEvent] = []
        self._stream = session.events()
        self._number = 0

    async def until(self, kind: type[Any]) -> Any:
        async def read() -> Any:
            async for event in self._stream:
                self.seen.append(event)
                if isinstance(event, kind):
                    return event
            raise AssertionError(f"the stream ended without {kind.__name__}")

        return await asyncio.wait_for(read(), BOUND)

    async def send(self, text: str, when: Any = "after_turn") -> str:
        self._number += 1
        return await self.session.send(ProviderInput(id=f"m{self._number}", text=text, when=when))

    async def ask(self, text: str) -> TurnEnded:
        await self.send(text)
        ended: TurnEnded = await self.until(TurnEnded)
        return ended

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.seen if isinstance(event, kind)]

    @property
    def continuation(self) -> Continuation:
        changed: ContinuationChanged = self.of(ContinuationChanged)[-1]
        return changed.continuation


def spec(folder: Path, *tools: FakeTool, **more: Any) -> ProviderSpec:
    work = folder / "group" / "workspace"
    work.mkdir(parents=True, exist_ok=True)
    return ProviderSpec(
        session_id="ses_x",
        cwd=str(work),
        state_dir=str(folder / "state"),
        system_prompt="You are a mock.",
        tools=tools,
        **more,
    )


@asynccontextmanager
async def talk(
    folder: Path, *tools: FakeTool, settings: dict[str, Any] | None = None, continuation: Continuation | None = None
) -> AsyncIterator[Talk]:
    provider: Provider = plugin.create(settings or {})
    session = await provider.open(spec(folder, *tools), continuation)
    assert isinstance(session, ProviderSession)
    talking = Talk(session)
    try:
        yield talking
    finally:
        await session.close(deadline=5)
        await session.close(deadline=5)
    await talking.until(SessionClosed)
    left = [task for task in asyncio.all_tasks() if (task.get_name() or "").startswith("mock")]
    assert left == []


async def test_it_echoes_by_default(tmp_path: Path) -> None:
    async with talk(tmp_path) as t:
        ended = await t.ask('<message id="2" sender="Eve">a &lt; b</message>')
        assert (ended.outcome, ended.reply, ended.inputs) == ("ok", "You said: a < b", ("m1",))
        assert isinstance(t.seen[0], SessionReady)
        assert t.of(TurnStarted) == [TurnStarted(cause="input", inputs=("m1",))]
        assert "".join(event.text for event in t.of(TextDelta)) == t.of(TextDone)[0].text == ended.reply


async def test_every_message_of_a_batch_is_in_the_echo(tmp_path: Path) -> None:
    async with talk(tmp_path) as t:
        ended = await t.ask("<messages><message>one</message><message>two</message></messages>")
        assert ended.reply == "You said: one\ntwo"


async def test_without_streaming_there_are_no_deltas(tmp_path: Path) -> None:
    settings = {"stream": False, "reply": "{turn}/{inputs} {last}"}
    assert not plugin.create(settings).capabilities().text_deltas
    async with talk(tmp_path, settings=settings) as t:
        assert (await t.ask("hi")).reply == "1/1 hi"
        assert t.of(TextDelta) == []


async def test_a_tool_s_result_is_said_unless_something_else_is(tmp_path: Path) -> None:
    tool = FakeTool("add", lambda arguments: ToolResult(text=str(arguments["a"] + 1)))
    async with talk(tmp_path, tool) as t:
        assert (await t.ask('mock: tool add {"a": 1}')).reply == "2"
        assert (await t.ask('mock: tool add {"a": 2} mock: say it is {result}')).reply == "it is 3"
        assert (await t.ask("mock: say the {result}")).reply == "the {result}"
        assert tool.calls == [{"a": 1}, {"a": 2}]
        assert [event.ok for event in t.of(ToolEnded)] == [True, True]
        assert [event.name for event in t.of(ToolStarted)] == ["add", "add"]


async def test_a_silent_command_is_answered_with_done_unless_quiet_is_asked_for(tmp_path: Path) -> None:
    async with talk(tmp_path, FakeTool("x")) as t:
        assert (await t.ask("mock: think hm mock: sleep 0")).reply == "done"
        assert (await t.ask("mock: think hm mock: quiet")).reply is None
        assert (await t.ask("mock: tool x mock: quiet")).reply is None


async def test_an_unknown_tool_is_an_error_that_names_the_known(tmp_path: Path) -> None:
    async with talk(tmp_path, FakeTool("add")) as t:
        ended = await t.ask("mock: tool subtract")
        assert ended.reply is not None and "'subtract'" in ended.reply and "add" in ended.reply
        assert t.of(ToolEnded)[0].ok is False


async def test_asking_goes_through_the_tool(tmp_path: Path) -> None:
    tool = FakeTool("ask_user_question", lambda arguments: ToolResult(text="tea"))
    async with talk(tmp_path, tool) as t:
        assert (await t.ask("mock: ask What to drink? | tea | coffee")).reply == "tea"
        assert tool.calls[0]["options"] == ["tea", "coffee"]


@pytest.mark.parametrize("kind", get_args(ProviderErrorKind))
async def test_every_kind_of_failure_can_be_had(tmp_path: Path, kind: str) -> None:
    async with talk(tmp_path) as t:
        ended = await t.ask(f"mock: fail {kind} retry_after=7 status=429 message_for_user='sorry'")
        assert ended.outcome == "error" and ended.error is not None
        assert (ended.error.kind, ended.error.retry_after, ended.error.status) == (kind, 7.0, 429)
        assert ended.error.message_for_user == "sorry" and not ended.error.tools_ran
        assert (await t.ask("still there?")).outcome == "ok"


async def test_a_failure_after_a_tool_says_that_tools_ran(tmp_path: Path) -> None:
    async with talk(tmp_path, FakeTool("x")) as t:
        ended = await t.ask("mock: tool x mock: fail server")
        assert ended.error is not None and ended.error.tools_ran and ended.error.retryable


async def test_a_failure_with_times_passes_in_the_end_also_over_restarts(tmp_path: Path) -> None:
    text = "mock: fail overloaded times=2"
    async with talk(tmp_path) as t:
        assert (await t.ask(text)).outcome == "error"
    async with talk(tmp_path, continuation=t.continuation) as again:
        assert (await again.ask(text)).outcome == "error"
        assert (await again.ask(text)).reply == "recovered after 2 x overloaded"


async def test_a_script_is_played_in_order_and_not_beyond_a_failure_that_is_tried_again(tmp_path: Path) -> None:
    script = [
        {"actions": [{"say": "first {last}"}]},
        {"actions": [{"fail": "overloaded", "times": 1}, {"say": "second"}]},
        {"match": "bye", "actions": [{"say": "ciao"}]},
    ]
    async with talk(tmp_path, settings={"script": script}) as t:
        assert (await t.ask("a")).reply == "first a"
        assert (await t.ask("b")).outcome == "error"
        assert (await t.ask("b")).reply == "second"
        assert (await t.ask("bye")).reply == "ciao"
        assert (await t.ask("c")).reply == "You said: c"


async def test_a_script_may_lie_in_the_group_s_folder(tmp_path: Path) -> None:
    opened = spec(tmp_path)
    (Path(opened.cwd).parent / "play.toml").write_text('[[steps]]\nactions = [{ say = "from a file" }]\n')
    async with talk(tmp_path, settings={"script": "play.toml"}) as t:
        assert (await t.ask("x")).reply == "from a file"


@pytest.mark.parametrize(
    "text", ["[[steps]]\nactions = [{ sing = 'x' }]", "steps = ", "[[steps]]\nmatch = 'x'\nactions=[]"]
)
async def test_a_script_that_can_not_be_used_says_why(tmp_path: Path, text: str) -> None:
    (Path(spec(tmp_path).cwd) / "play.toml").write_text(text)
    with pytest.raises(ProviderError, match=r"play\.toml") as caught:
        await plugin.create({"script": "play.toml"}).open(spec(tmp_path), None)
    assert caught.value.kind == "config" and caught.value.fix


async def test_a_missing_script_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="workspace"):
        await plugin.create({"script": "none.toml"}).open(spec(tmp_path), None)


async def test_input_during_a_turn_joins_it_at_the_next_action(tmp_path: Path) -> None:
    tool = FakeTool("slow", forever=False)
    async with talk(tmp_path, tool) as t:
        await t.send("mock: think hm mock: sleep 60 mock: say one")
        await t.until(Thinking)
        assert await t.send("mock: say two", when="now") == "injected"
        ended = await t.until(TurnEnded)
        assert ended.inputs == ("m1", "m2")
        assert ended.reply == "one\n\ntwo"
        assert t.of(InputTaken) == [InputTaken(inputs=("m2",))]


async def test_input_for_after_the_turn_gets_one_of_its_own(tmp_path: Path) -> None:
    async with talk(tmp_path) as t:
        assert await t.send("mock: note x mock: sleep 0.01") == "started"
        assert await t.send("two") == "queued"
        first, second = await t.until(TurnEnded), await t.until(TurnEnded)
        assert (first.inputs, second.inputs) == (("m1",), ("m2",))
        assert second.reply == "You said: two"


async def test_input_that_a_failed_turn_did_not_take_is_not_lost(tmp_path: Path) -> None:
    async with talk(tmp_path) as t:
        await t.send("mock: think x mock: fail server")
        assert await t.send("two", when="next_boundary") == "injected"
        failed, then = await t.until(TurnEnded), None
        if failed.inputs == ("m1",):
            then = await t.until(TurnEnded)
            assert then.reply == "You said: two"
        assert {*failed.inputs, *(then.inputs if then else ())} == {"m1", "m2"}


@pytest.mark.parametrize(
    "text", ["mock: say a mock: hang", "mock: say a mock: tool slow", "mock: say a mock: sleep 600"]
)
async def test_an_interrupt_ends_the_turn(tmp_path: Path, text: str) -> None:
    async with talk(tmp_path, FakeTool("slow", forever=True)) as t:
        await t.send(text)
        await t.until(TextDone)
        await t.session.interrupt(grace=BOUND)
        ended = await t.until(TurnEnded)
        assert (ended.outcome, ended.reply) == ("interrupted", "a")
        assert (await t.ask("next")).reply == "You said: next"


async def test_an_interrupt_before_the_first_step_ends_the_turn_too(tmp_path: Path) -> None:
    async with talk(tmp_path) as t:
        await t.send("x")
        await t.session.interrupt(grace=BOUND)
        assert (await t.until(TurnEnded)).outcome == "interrupted"


async def test_an_interrupt_without_a_turn_does_nothing(tmp_path: Path) -> None:
    async with talk(tmp_path) as t:
        await t.session.interrupt(grace=1)
        assert (await t.ask("x")).outcome == "ok"


async def test_a_closed_session_takes_nothing(tmp_path: Path) -> None:
    async with talk(tmp_path) as t:
        await t.send("mock: hang")
        await t.session.close(deadline=5)
        assert await t.send("more") == "rejected"


async def test_a_conversation_is_taken_up_again_by_its_token(tmp_path: Path) -> None:
    async with talk(tmp_path) as t:
        await t.ask("my name is Eve")
    async with talk(tmp_path, continuation=t.continuation) as again:
        reply = (await again.ask("mock: recall")).reply
        assert reply is not None and "< my name is Eve" in reply and "> You said: my name is Eve" in reply
        assert again.of(ContinuationLost) == []


@pytest.mark.parametrize("token", ["mock_00000000000000000000", "../../etc/passwd", ""])
async def test_an_unknown_conversation_is_reported_lost(tmp_path: Path, token: str) -> None:
    """C124."""
    async with talk(tmp_path, continuation=Continuation(provider="mock", token=token)) as t:
        assert (await t.ask("mock: recall")).reply == "I remember nothing."
        assert len(t.of(ContinuationLost)) == 1
        assert t.continuation.token != token


async def test_losing_a_conversation_begins_another(tmp_path: Path) -> None:
    async with talk(tmp_path) as t:
        await t.ask("remember me")
        first = t.continuation.token
        await t.ask("mock: lose")
        assert t.continuation.token != first
        await t.ask("mock: lose restart")
    async with talk(tmp_path, continuation=t.continuation) as again:
        await again.ask("x")
        assert len(again.of(ContinuationLost)) == 1


async def test_the_smaller_events_can_be_had(tmp_path: Path) -> None:
    async with talk(tmp_path) as t:
        await t.ask("mock: think deep mock: note chatter mock: retry 0 server mock: limit 9 mock: compact mock: say x")
        assert t.of(Thinking) == [Thinking(text="deep")]
        assert t.of(Notice) == [Notice(level="info", text="chatter", code="mock")]
        assert t.of(Retrying) == [Retrying(attempt=1, delay=0.0, kind="server")]
        assert t.of(RateLimitedUntil) == [RateLimitedUntil(seconds=9.0)]
        assert [event.phase for event in t.of(Compacting)] == ["started", "ended"]
        usage = t.of(Usage)
        assert len(usage) == 1 and usage[0].scope == "turn" and usage[0].output == 1


async def test_a_stream_may_be_withdrawn(tmp_path: Path) -> None:
    script = [{"actions": [{"stream": ["a", "b"], "every": 0, "cut": True}, {"stream": "c d", "every": 0}]}]
    async with talk(tmp_path, settings={"script": script}) as t:
        assert (await t.ask("x")).reply == "c d"
        assert t.of(TextDiscarded) == [TextDiscarded(block=0)]
        assert t.of(TextDone) == [TextDone(block=1, text="c d")]


async def test_it_can_speak_of_its_own_accord(tmp_path: Path) -> None:
    async with talk(tmp_path) as t:
        await t.ask("mock: later 0 tick mock: say wait")
        ended = await t.until(TurnEnded)
        assert (ended.reply, ended.inputs) == ("tick", ())
        assert t.of(TurnStarted)[-1] == TurnStarted(cause="engine")


async def test_files_are_written_below_the_workspace_only(tmp_path: Path) -> None:
    async with talk(tmp_path) as t:
        assert (await t.ask("mock: write notes/a.txt hello")).reply == "wrote 5 bytes to notes/a.txt"
        assert "outside" in str((await t.ask("mock: write ../../x hello")).reply)
    assert not (tmp_path / "x").exists()


async def test_it_shows_what_it_was_given(tmp_path: Path) -> None:
    async with talk(tmp_path, FakeTool("add")) as t:
        assert (await t.ask("mock: show system")).reply == "You are a mock."
        assert (await t.ask("mock: show tools")).reply == "add: A tool."


_CRASH = """
import asyncio, sys
from pathlib import Path
from jackfield.api import *
from jackfield_provider_mock import plugin
async def main():
    folder = sys.argv[1]
    spec = ProviderSpec(session_id="s", cwd=folder, state_dir=folder, system_prompt="")
    session = await plugin.create({}).open(spec, None)
    await session.send(ProviderInput(id="1", text=sys.argv[2]))
    async for event in session.events():
        if isinstance(event, TurnEnded):
            break
asyncio.run(main())
"""


_PLAIN = ("defaults", "memory", "plugin", "prompt", "provider", "say", "session", "turn")


@pytest.mark.parametrize(("text", "status"), [("mock: crash", -signal.SIGKILL), ("mock: crash 9", 9)])
def test_a_crash_ends_the_process_and_keeps_the_conversation(tmp_path: Path, text: str, status: int) -> None:
    done = subprocess.run([sys.executable, "-c", _CRASH, str(tmp_path), text], timeout=60, check=False)
    assert done.returncode == status
    (stored,) = (tmp_path / "mock").glob("*.jsonl")
    assert text in stored.read_text()


def test_the_plugin_module_imports_neither_pydantic_models_nor_the_session() -> None:
    code = (
        "import sys, jackfield_provider_mock.plugin; "
        "print(sorted(m for m in sys.modules if m.startswith('jackfield_provider_mock.') or m == 'pydantic'))"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "['jackfield_provider_mock.defaults', 'jackfield_provider_mock.plugin']"


def test_a_plain_answer_needs_neither_scripts_nor_commands(tmp_path: Path) -> None:
    code = _CRASH.replace("asyncio.run(main())", "asyncio.run(main()); print(*sys.modules)")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), "hello"], timeout=60, check=True, capture_output=True, text=True
    )
    loaded = {name for name in done.stdout.split() if name.startswith("jackfield_provider_mock.") or name == "pydantic"}
    assert loaded == {f"jackfield_provider_mock.{name}" for name in _PLAIN}


def test_it_registers_under_its_entry_point_s_name() -> None:
    (kind,) = plugin.register_providers()
    assert kind.name == "mock" and kind.settings is not None


async def test_a_script_plays_every_event_of_the_contract(tmp_path: Path) -> None:
    """Spec/providers.md 8."""
    steps = [
        {
            "actions": [
                {"think": "hm"},
                {"aside": "looking"},
                {"own": "Bash", "summary": "ls", "progress": ["a", "b"], "deadline": 9},
                {"own": "Read", "ok": False},
                {"use": "big", "input": 10, "cache_read": 5, "output": 3, "cost": 0.5},
                {"retry": 0, "kind": "overloaded"},
                {"limit": 60, "window": "5h"},
                {"note": "chatter"},
                {"compact": True},
                {"lose": "now"},
                {"stream": "cut short", "every": 0, "cut": True},
                {"later": 0, "text": "by myself"},
                {"say": "the end"},
            ]
        },
        {"actions": [{"say": "half"}, {"stop": "limit"}]},
        {"actions": [{"note": "waiting"}, {"wait": 30}, {"say": "late"}]},
        {"actions": [{"say": "in a hurry"}]},
        {"actions": [{"die": "out of memory"}]},
    ]
    async with talk(tmp_path, settings={"script": steps}) as t:
        assert (await t.ask("1")).reply == "the end"
        assert [event.final for event in t.of(TextDone)] == [False, True]
        assert [event.text for event in t.of(ToolProgress)] == ["a", "b"]
        assert [event.source for event in t.of(ToolStarted)] == ["builtin", "builtin"]
        assert [event.ok for event in t.of(ToolEnded)] == [True, False]
        (used,) = t.of(Usage)
        assert (used.scope, used.model, used.input, used.cache_read, used.output, used.cost) == (
            "request", "big", 10, 5, 3, 0.5,
        )  # fmt: skip
        await t.until(TurnEnded)
        assert [event.cause for event in t.of(TurnStarted)] == ["input", "engine"]
        limited = await t.ask("2")
        assert (limited.outcome, limited.reply, limited.error) == ("limit", "half", None)
        await t.send("3")
        await t.until(Notice)
        assert await t.send("hurry", when="now") == "injected"
        await t.until(TurnEnded)
        await t.send("4")
        closed: SessionClosed = await t.until(SessionClosed)
        assert (closed.reason, closed.exit_code) == ("out of memory", 1)
        assert await t.send("5") == "rejected"
        told = {type(event) for event in t.seen}
        assert told == set(get_args(ProviderEvent))
        t.seen.clear()
        t._stream = iter_one(closed)


async def iter_one(event: ProviderEvent) -> AsyncIterator[ProviderEvent]:
    """A stream that has said all but this."""
    yield event


async def test_an_error_says_that_a_fresh_session_helps(tmp_path: Path) -> None:
    async with talk(tmp_path) as t:
        ended = await t.ask("mock: fail context_overflow fresh_session_helps=yes")
        assert ended.error is not None and ended.error.fresh_session_helps


async def test_it_shows_the_gateway_without_its_token(tmp_path: Path) -> None:
    provider: Provider = plugin.create({})
    given = spec(tmp_path, gateway_url="http://127.0.0.1:9/s/tok")
    talking = Talk(await provider.open(given, None))
    assert (await talking.ask("mock: show gateway")).reply == "http://127.0.0.1:9/s"
    await talking.session.close(deadline=5)
