"""The loop, driven by a wire that plays a script: what it sends, what it tells, and what it keeps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from jackfield.api import (
    Compacting,
    Continuation,
    ContinuationChanged,
    ContinuationLost,
    InputTaken,
    Notice,
    ProviderEvent,
    ProviderInput,
    ProviderSpec,
    RateLimitedUntil,
    Retrying,
    SessionReady,
    TextDelta,
    TextDiscarded,
    TextDone,
    ToolEnded,
    ToolResult,
    ToolStarted,
    TurnEnded,
    Usage,
)
from jackfield.errors import ProviderError
from jackfield_provider_kit.errors import failure
from jackfield_provider_kit.loop import (
    BlockDone,
    Image,
    Limits,
    LoopSession,
    Message,
    Part,
    Prices,
    ReplyDone,
    Request,
    Setup,
    Stop,
    Text,
    TextPart,
    Tokens,
    ToolCall,
    ToolOutput,
    open_session,
)
from jackfield_provider_kit.loop.history import History

E = TypeVar("E")
Step = ProviderError | Sequence[Part] | Callable[[Request], AsyncIterator[Part]]


def text(*pieces: str, index: int = 0) -> list[Part]:
    return [*(TextPart(index, piece) for piece in pieces), BlockDone(index, Text("".join(pieces)))]


def call(name: str, key: str = "c1", *, index: int = 1, **arguments: Any) -> list[Part]:
    return [BlockDone(index, ToolCall(key, name, arguments))]


def done(stop: Stop = "end", tokens: Tokens | None = Tokens(input=10, output=5)) -> list[Part]:  # noqa: B008
    return [ReplyDone(stop, tokens)]


class Played:
    """A wire that plays one step for each request; summaries are answered by themselves."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.requests: list[Request] = []
        self.summaries: list[Request] = []
        self.closed = False

    async def prepare(self) -> None:
        await asyncio.sleep(0)

    async def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        if request.system.startswith("CONTEXT CHECKPOINT"):
            self.summaries.append(request)
            parts: Step = [*text("they spoke of apples"), *done()]
        else:
            self.requests.append(request)
            parts = self.steps.pop(0)
        if isinstance(parts, ProviderError):
            raise parts
        if callable(parts):
            async for part in parts(request):
                yield part
            return
        for part in parts:
            if isinstance(part, ProviderError):
                raise part
            yield part
            await asyncio.sleep(0)

    async def close(self) -> None:
        self.closed = True


@dataclass
class Hand:
    """A tool."""

    name: str
    act: Callable[[dict[str, Any]], Any]
    description: str = "does something"
    input_schema: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})

    async def call(self, arguments: dict[str, Any]) -> ToolResult:
        found = self.act(arguments)
        found = await found if asyncio.iscoroutine(found) else found
        return found if isinstance(found, ToolResult) else ToolResult(text=str(found))


class Talk:
    def __init__(self, session: LoopSession) -> None:
        self.session = session
        self.seen: list[ProviderEvent] = []
        self._news = asyncio.Condition()
        self._number = 0
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self.session.events():
            async with self._news:
                self.seen.append(event)
                self._news.notify_all()

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.seen if isinstance(event, kind)]

    async def until(self, kind: type[E], count: int = 1) -> E:
        async with asyncio.timeout(30), self._news:
            await self._news.wait_for(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[count - 1]

    async def send(self, words: str, when: Any = "after_turn") -> str:
        self._number += 1
        return await self.session.send(ProviderInput(id=f"m{self._number}", text=words, when=when))

    async def ask(self, words: str) -> TurnEnded:
        count = len(self.of(TurnEnded)) + 1
        await self.send(words)
        return await self.until(TurnEnded, count)

    async def stop(self) -> None:
        await self.session.close(deadline=5)
        await self._reader


@asynccontextmanager
async def talking(
    folder: Path,
    wire: Played,
    *tools: Hand,
    continuation: Continuation | None = None,
    limits: Limits = Limits(),  # noqa: B008
    window: int = 100_000,
    prices: Prices | None = None,
    budget: float = 60.0,
) -> AsyncIterator[Talk]:
    spec = ProviderSpec(
        session_id="s", cwd=str(folder), state_dir=str(folder), system_prompt="be kind", tools=tools, wait_budget=budget
    )
    setup = Setup(provider="fake", version="1", model="m", window=window, max_output=1000, limits=limits, prices=prices)
    session = await open_session(spec, setup, wire, continuation)
    waits: list[float] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(0)

    session.pause, session.share = pause, lambda: 1.0
    talk = Talk(session)
    talk.waits = waits  # type: ignore[attr-defined]  # a double of its own shape
    try:
        yield talk
    finally:
        await talk.stop()


def last(request: Request) -> Message:
    return request.messages[-1]


async def test_a_text_grows_and_is_the_reply(tmp_path: Path) -> None:
    wire = Played([*text("Hel", "lo"), *done()])
    async with talking(tmp_path, wire, prices=Prices(1.0, 2.0)) as talk:
        ended = await talk.ask("hi")
        assert (ended.outcome, ended.reply, ended.inputs) == ("ok", "Hello", ("m1",))
        assert [each.text for each in talk.of(TextDelta)] == ["Hel", "lo"]
        assert talk.of(TextDone) == [TextDone(block=0, text="Hello", final=True)]
        (usage,) = talk.of(Usage)
        assert (usage.input, usage.output, usage.context_used) == (10, 5, 15)
        assert usage.cost == pytest.approx(20e-6)
        assert talk.of(ContinuationChanged)[-1].continuation.usage["requests"] == 1
        assert talk.of(SessionReady)[0].model == "m"
    assert wire.closed
    assert wire.requests[0].system == "be kind"


async def test_tools_run_side_by_side_and_their_results_go_back_in_order(tmp_path: Path) -> None:
    both = asyncio.Barrier(2)

    async def meet(arguments: dict[str, Any]) -> str:
        await both.wait()
        return f"met {arguments['who']}"

    wire = Played(
        [*text("<message to='a'>wait</message>"), *call("meet", "c1", who="x"),
         *call("meet", "c2", index=2, who="y"), *done("end")],  # a server that says "end" all the same
        [*text("both met"), *done()],
    )  # fmt: skip
    async with talking(tmp_path, wire, Hand("meet", meet)) as talk:
        ended = await talk.ask("go")
        assert ended.reply == "both met"
        assert [event.final for event in talk.of(TextDone)] == [False, True]
        assert {event.call for event in talk.of(ToolStarted)} == {"c1", "c2"}
        assert all(event.ok for event in talk.of(ToolEnded))
    assert last(wire.requests[1]).blocks == (ToolOutput("c1", "met x"), ToolOutput("c2", "met y"))


async def test_what_a_model_calls_wrongly_it_is_told(tmp_path: Path) -> None:
    """An unknown tool, and arguments that are no JSON: nothing runs, nothing breaks, and no side effect is claimed."""
    wire = Played(
        [*call("nothing", "a"), BlockDone(2, ToolCall("a", "add", {}, '{"a": 1')), *done("tools")],
        [*text("sorry"), *done()],
    )
    async with talking(tmp_path, wire, Hand("add", lambda _: 1 / 0)) as talk:
        assert (await talk.ask("go")).outcome == "ok"
    first, second = last(wire.requests[1]).blocks
    assert isinstance(first, ToolOutput) and "The tools are: add" in first.text and first.failed
    assert isinstance(second, ToolOutput) and "not a whole JSON object" in second.text
    assert first.call != second.call, "two calls with one id are told apart"


async def test_a_huge_result_is_cut_and_kept_in_a_file(tmp_path: Path) -> None:
    """C132: two megabytes of tool output neither end the turn nor fill the window."""
    wire = Played([*call("read", "big/1"), *done("tools")], [*text("ok"), *done()])
    huge = "a" * 1_000_000 + "b" * 1_000_000
    async with talking(tmp_path, wire, Hand("read", lambda _: huge)) as talk:
        assert (await talk.ask("go")).outcome == "ok"
    (output,) = last(wire.requests[1]).blocks
    assert isinstance(output, ToolOutput) and len(output.text) < 101_000
    kept = tmp_path / "fake" / "results" / "big_1.txt"
    assert str(kept) in output.text and kept.read_text() == huge


async def test_a_tool_that_never_returns_is_given_up(tmp_path: Path) -> None:
    """C093: the call ends with an error for the model, and the turn goes on."""
    wire = Played([*call("hang"), *done("tools")], [*text("gave up"), *done()])

    async def hang(_: dict[str, Any]) -> str:
        await asyncio.Event().wait()
        return ""

    async with talking(tmp_path, wire, Hand("hang", hang), limits=Limits(tool_seconds=0.01)) as talk:
        assert (await talk.ask("go")).reply == "gave up"
    (output,) = last(wire.requests[1]).blocks
    assert isinstance(output, ToolOutput) and output.failed and "given up" in output.text


async def test_a_follow_up_is_read_after_the_tools(tmp_path: Path) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def slow(_: dict[str, Any]) -> str:
        entered.set()
        await release.wait()
        return "done"

    wire = Played([*call("slow"), *done("tools")], [*text("both"), *done()])
    async with talking(tmp_path, wire, Hand("slow", slow)) as talk:
        await talk.send("first")
        await entered.wait()
        assert await talk.send("second", "next_boundary") == "injected"
        release.set()
        ended = await talk.until(TurnEnded)
        assert ended.inputs == ("m1", "m2")
        assert talk.of(InputTaken) == [InputTaken(inputs=("m2",))]
    assert last(wire.requests[1]).blocks == (ToolOutput("c1", "done"), Text("second"))


async def test_a_follow_up_during_the_last_text_is_answered_in_the_same_turn(tmp_path: Path) -> None:
    talks: list[Talk] = []

    async def speak(_: Request) -> AsyncIterator[Part]:
        await talks[0].send("and this?", "now")
        for part in (*text("first"), *done()):
            yield part

    wire = Played(speak, [*text("second"), *done()])
    async with talking(tmp_path, wire) as talk:
        talks.append(talk)
        ended = await talk.ask("hi")
        assert (ended.reply, ended.inputs) == ("first\n\nsecond", ("m1", "m2"))


async def test_input_for_later_gets_a_turn_of_its_own(tmp_path: Path) -> None:
    wire = Played([*text("one"), *done()], [*text("two"), *done()])
    async with talking(tmp_path, wire) as talk:
        assert [await talk.send("a"), await talk.send("b")] == ["started", "queued"]
        assert (await talk.until(TurnEnded, 2)).inputs == ("m2",)


async def test_an_interruption_in_a_tool_leaves_a_history_that_can_be_sent(tmp_path: Path) -> None:
    entered = asyncio.Event()

    async def hang(_: dict[str, Any]) -> str:
        entered.set()
        await asyncio.Event().wait()
        return ""

    wire = Played([*call("hang"), *done("tools")], [*text("fine"), *done()])
    async with talking(tmp_path, wire, Hand("hang", hang)) as talk:
        await talk.send("go")
        await entered.wait()
        await talk.session.interrupt(grace=5)
        assert (await talk.until(TurnEnded)).outcome == "interrupted"
        assert [event.ok for event in talk.of(ToolEnded)] == [False]
        assert (await talk.ask("and now?")).reply == "fine"
    output, question = last(wire.requests[1]).blocks
    assert isinstance(output, ToolOutput) and output.failed and question == Text("and now?")


async def test_an_interruption_in_a_text_keeps_what_was_said(tmp_path: Path) -> None:
    async def speak(_: Request) -> AsyncIterator[Part]:
        yield TextPart(0, "half a sent")
        await asyncio.Event().wait()

    wire = Played(speak, [*text("fine"), *done()])
    async with talking(tmp_path, wire) as talk:
        await talk.send("go")
        await talk.until(TextDelta)
        await talk.session.interrupt(grace=5)
        assert (await talk.until(TurnEnded)).outcome == "interrupted"
        await talk.ask("more")
    assert [m.blocks for m in wire.requests[1].messages][1] == (Text("half a sent"),)


async def test_an_interruption_before_the_first_step_ends_the_turn(tmp_path: Path) -> None:
    wire = Played([*text("fine"), *done()])
    async with talking(tmp_path, wire) as talk:
        await talk.send("go")
        await talk.session.interrupt(grace=5)
        assert (await talk.until(TurnEnded)).inputs == ("m1",)
        assert (await talk.ask("again")).reply == "fine"


async def test_a_cut_stream_is_tried_again_and_its_text_taken_back(tmp_path: Path) -> None:
    wire = Played([TextPart(0, "Hel"), failure("network", message="cut")], [*text("Hello"), *done()])  # type: ignore[list-item]  # a double of its own shape
    async with talking(tmp_path, wire) as talk:
        ended = await talk.ask("hi")
        assert ended.reply == "Hello"
        assert talk.of(TextDiscarded) == [TextDiscarded(block=0)]
        assert [(each.attempt, each.kind) for each in talk.of(Retrying)] == [(1, "network")]
    assert wire.requests[0].messages == wire.requests[1].messages


async def test_waits_stay_inside_the_budget(tmp_path: Path) -> None:
    """C097: each wait is told; when the next one would not fit, the turn ends with the wait that was asked for."""
    busy = [failure(status=529, type="overloaded_error") for _ in range(9)]
    async with talking(tmp_path, Played(*busy), budget=10.0) as talk:
        ended = await talk.ask("hi")
        assert ended.error is not None and (ended.error.kind, ended.error.retryable) == ("overloaded", True)
        assert [each.delay for each in talk.of(Retrying)] == [1.0, 2.0, 4.0]
    limited = failure(status=429, type="rate_limit_error", headers={"retry-after": "3600"})
    async with talking(tmp_path, Played(limited)) as talk:
        ended = await talk.ask("hi")
        assert ended.error is not None and ended.error.retry_after == 3600
        assert talk.of(RateLimitedUntil) == [RateLimitedUntil(seconds=3600.0)]
        assert not talk.of(Retrying)


@pytest.mark.parametrize("kind", ["auth", "billing", "permission", "model_not_found", "invalid_request", "refusal"])
async def test_what_does_not_pass_by_itself_is_not_tried_again(tmp_path: Path, kind: Any) -> None:
    wire = Played(failure(kind), [*text("back"), *done()])
    async with talking(tmp_path, wire) as talk:
        ended = await talk.ask("hi")
        assert ended.outcome == "error" and ended.error is not None and ended.error.kind == kind
        await talk.ask("hi")
    assert wire.requests[1].messages == [Message("user", (Text("hi"),))], "the failed prompt is forgotten"


async def test_a_failure_after_a_tool_says_so_and_keeps_what_was_done(tmp_path: Path) -> None:
    wire = Played([*call("act"), *done("tools")], failure("auth"), [*text("resumed"), *done()])
    async with talking(tmp_path, wire, Hand("act", lambda _: "acted")) as talk:
        ended = await talk.ask("do it")
        assert ended.error is not None and ended.error.tools_ran
        await talk.ask("go on")
    assert last(wire.requests[2]).blocks == (ToolOutput("c1", "acted"), Text("go on"))


async def test_a_refusal_ends_the_turn_and_its_words_are_not_shown(tmp_path: Path) -> None:
    wire = Played([*text("I"), ReplyDone("refusal", None, detail="cyber")], [*text("ok"), *done()])
    async with talking(tmp_path, wire) as talk:
        ended = await talk.ask("bad")
        assert ended.error is not None and ended.error.kind == "refusal" and "cyber" in ended.error.message
        assert ended.reply is None and talk.of(TextDiscarded)
        assert (await talk.ask("good")).reply == "ok"


async def test_a_long_answer_goes_on_in_one_block(tmp_path: Path) -> None:
    """An address that the output limit cuts through is whole again."""
    wire = Played(
        [*text("<message to='x'>on"), *done("max_output")],
        failure("overloaded"),
        [*text("e</message>"), *done()],
    )
    async with talking(tmp_path, wire) as talk:
        ended = await talk.ask("hi")
        assert ended.reply == "<message to='x'>one</message>"
        assert [event.text for event in talk.of(TextDone)] == [ended.reply]
    assert [m.role for m in wire.requests[2].messages] == ["user", "assistant", "user"]


async def test_an_answer_without_end_is_stopped(tmp_path: Path) -> None:
    wire = Played(*[[*text(f"part {n} "), *done("max_output")] for n in range(4)])
    async with talking(tmp_path, wire) as talk:
        ended = await talk.ask("hi")
        assert ended.error is not None and ended.error.kind == "output_limit"
    assert len(wire.requests) == 4


async def test_a_pause_is_sent_back_as_it_is(tmp_path: Path) -> None:
    wire = Played([*text("looking"), *done("pause")], [*text("found"), *done()])
    async with talking(tmp_path, wire) as talk:
        assert (await talk.ask("hi")).reply == "looking\n\nfound"
    assert last(wire.requests[1]) == Message("assistant", (Text("looking"),))


async def test_a_conversation_is_folded_near_its_limit(tmp_path: Path) -> None:
    """At 80 % of the window the next request waits for a summary; the whole is archived."""
    wire = Played([*text("x" * 2000), *done(tokens=Tokens(input=800, output=100))], [*text("two"), *done()])
    async with talking(tmp_path, wire, window=1000) as talk:
        await talk.ask("tell me of apples")
        assert not talk.of(Compacting)
        assert (await talk.ask("more")).reply == "two"
        started, ended = talk.of(Compacting)
        assert (started.phase, ended.phase, ended.ok) == ("started", "ended", True)
        assert ended.before is not None and ended.after is not None and ended.after < ended.before
        token = talk.of(ContinuationChanged)[-1].continuation.token
    (kept,) = (tmp_path / "fake" / "archive").iterdir()
    assert "tell me of apples" in kept.read_text()
    assert "tell me of apples" in str(wire.summaries[0].messages)
    summary, question = last(wire.requests[1]).blocks
    assert isinstance(summary, Text) and "they spoke of apples" in summary.text
    assert question == Text("more")
    found = History.load(tmp_path / "fake", token)
    assert found is not None and len(found.said) == 3


async def test_an_overflow_is_met_by_folding_once(tmp_path: Path) -> None:
    """C130: once; a second overflow in the turn ends it, whatever the server says then."""
    overflow = failure(status=400, message="prompt is too long: 9 tokens > 8 maximum")
    again = failure(status=400, message="prompt is too long: 9 tokens > 8 maximum")
    wire = Played([*text("hi"), *done()], overflow, [*text("fits"), *done()], overflow, again)
    async with talking(tmp_path, wire) as talk:
        await talk.ask("first")
        assert (await talk.ask("second")).reply == "fits"
        ended = await talk.ask("third")
        assert ended.error is not None and ended.error.kind == "context_overflow"
        assert len(wire.summaries) == 2
    assert not wire.steps


async def test_a_prompt_that_is_too_long_by_itself_is_not_folded(tmp_path: Path) -> None:
    wire = Played(failure(status=400, code="context_length_exceeded"))
    async with talking(tmp_path, wire) as talk:
        ended = await talk.ask("x" * 1000)
        assert ended.error is not None and ended.error.kind == "context_overflow"
    assert not wire.summaries


async def test_a_window_that_stays_full_is_a_livelock(tmp_path: Path) -> None:
    """A server that reports a full window with every reply does not make it fold for ever (C130)."""
    full = Tokens(input=100_000, output=10)
    steps: list[Step] = [[*call("act", "c1", note="y" * 120_000), *done("tools", full)] for _ in range(9)]
    async with talking(
        tmp_path, Played([*text("z" * 120_000), *done(tokens=full)], *steps), Hand("act", lambda _: "ok")
    ) as talk:
        await talk.ask("a")
        ended = await talk.ask("b")
        assert ended.error is not None and (ended.error.kind, ended.error.scope) == ("livelock", "session")
        assert len(talk.of(Compacting)) == 6


@pytest.mark.parametrize(
    ("limits", "words"),
    [(Limits(requests=3), "3 requests"), (Limits(tokens=40), "40 tokens"), (Limits(seconds=0.0001), "seconds")],
)
async def test_a_turn_has_hard_stops(tmp_path: Path, limits: Limits, words: str) -> None:
    async def act(_: dict[str, Any]) -> str:
        await asyncio.sleep(0.001)
        return "ok"

    wire = Played(*[[*call("act"), *done("tools")] for _ in range(9)])
    async with talking(tmp_path, wire, Hand("act", act), limits=limits) as talk:
        ended = await talk.ask("go")
        assert ended.outcome == "limit" and ended.error is not None
        assert ended.error.kind == "budget" and words in ended.error.message
        assert ended.error.tools_ran or limits.seconds
    assert len(wire.requests) <= 3


async def test_a_silent_stream_is_stalled(tmp_path: Path) -> None:
    async def silent(_: Request) -> AsyncIterator[Part]:
        yield TextPart(0, "a")
        await asyncio.Event().wait()

    wire = Played(silent, [*text("b"), *done()])
    async with talking(tmp_path, wire, limits=Limits(idle_seconds=0.01)) as talk:
        assert (await talk.ask("go")).reply == "b"
        assert [each.kind for each in talk.of(Retrying)] == ["stalled"]


async def test_a_conversation_is_taken_up_by_another_process(tmp_path: Path) -> None:
    """A torn last line is dropped, and a call that never ended is closed with an error."""
    wire = Played([*call("act"), *done("tools")], [*text("acted"), *done()])
    async with talking(tmp_path, wire, Hand("act", lambda _: "ok")) as talk:
        await talk.ask("go")
        continuation = talk.of(ContinuationChanged)[-1].continuation
    file = tmp_path / "fake" / f"{continuation.token}.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:3]) + lines[3][:10])  # killed while the tool's output was written
    wire = Played([*text("I see"), *done()])
    async with talking(tmp_path, wire, continuation=continuation) as talk:
        assert (await talk.ask("go")).reply == "I see"
        assert not talk.of(ContinuationLost)
        assert talk.of(ContinuationChanged)[-1].continuation.usage["requests"] == 3
    output, question = last(wire.requests[0]).blocks
    assert isinstance(output, ToolOutput) and output.failed and "not known" in output.text
    assert question == Text("go")
    for line in file.read_text().splitlines():
        json.loads(line)


async def test_a_prompt_that_comes_again_after_a_kill_is_kept_once(tmp_path: Path) -> None:
    history = History.begin(tmp_path / "fake", "fake")
    history.add("user", Text("go"))
    wire = Played([*text("here"), *done()])
    known = Continuation(provider="fake", token=history.token)
    async with talking(tmp_path, wire, continuation=known) as talk:
        await talk.ask("go")
    assert wire.requests[0].messages == [Message("user", (Text("go"),))]


@pytest.mark.parametrize("token", ["conv_00000000000000000000", "../../etc/passwd", ""])
async def test_an_unknown_conversation_is_told_as_lost(tmp_path: Path, token: str) -> None:
    """C124: it begins anew, and says so."""
    wire = Played([*text("new"), *done()])
    async with talking(tmp_path, wire, continuation=Continuation(provider="fake", token=token)) as talk:
        await talk.until(ContinuationLost)
        assert (await talk.ask("hi")).reply == "new"
        assert talk.of(ContinuationChanged)[-1].continuation.token != token


async def test_a_broken_image_in_the_history_is_left_out(tmp_path: Path) -> None:
    history = History.begin(tmp_path / "fake", "fake")
    history.add("user", Image("image/png", "AAAA"), Text("what is it?"))
    wire = Played(
        failure(status=400, type="invalid_request_error", message="Could not process image"), [*text("gone"), *done()]
    )
    known = Continuation(provider="fake", token=history.token)
    async with talking(tmp_path, wire, continuation=known) as talk:
        assert (await talk.ask("and?")).reply == "gone"
        assert any(event.code == "history_lightened" for event in talk.of(Notice))
    assert not any(isinstance(block, Image) for m in wire.requests[1].messages for block in m.blocks)
    again = History.load(tmp_path / "fake", history.token)
    assert again is not None and not any(isinstance(block, Image) for _, block in again.said)


async def test_a_request_that_is_too_large_is_cut_once(tmp_path: Path) -> None:
    """413: the largest results are cut; if that does not help, the turn ends."""
    big = failure(status=413, type="request_too_large", message="too large")
    wire = Played([*call("read"), *done("tools")], big, [*text("ok"), *done()], big)
    async with talking(tmp_path, wire, Hand("read", lambda _: "r" * 90_000)) as talk:
        assert (await talk.ask("go")).reply == "ok"
        ended = await talk.ask("again")
        assert ended.error is not None and ended.error.kind == "invalid_request"
    (output,) = last(wire.requests[2]).blocks
    assert isinstance(output, ToolOutput) and len(output.text) < 7_000


async def test_a_server_without_counts_is_told_of_once(tmp_path: Path) -> None:
    wire = Played(*[[*text("ok"), *done(tokens=None)] for _ in range(2)])
    async with talking(tmp_path, wire) as talk:
        await talk.ask("a")
        await talk.ask("b")
        assert not talk.of(Usage)
        assert [event.code for event in talk.of(Notice)] == ["no_usage"]


async def test_compacting_on_request(tmp_path: Path) -> None:
    wire = Played([*text("hi"), *done()], [*text("still here"), *done()])
    async with talking(tmp_path, wire) as talk:
        await talk.ask("remember apples")
        await talk.session.compact("keep fruit")
        assert talk.of(Compacting)[-1].ok
        assert (await talk.ask("well?")).reply == "still here"
    assert "Above all: keep fruit" in str(wire.summaries[0].messages)


async def test_names_that_an_api_would_refuse_are_changed_and_found_again(tmp_path: Path) -> None:
    wire = Played([*call("a_b"), *call("a_b_2", "c2", index=2), *done("tools")], [*text("ok"), *done()])
    first, second = Hand("a.b", lambda _: "one"), Hand("a b", lambda _: "two")
    async with talking(tmp_path, wire, first, second) as talk:
        await talk.ask("go")
        assert [event.name for event in talk.of(ToolStarted)] == ["a.b", "a b"]
    assert [tool.name for tool in wire.requests[0].tools] == ["a_b", "a_b_2"]
