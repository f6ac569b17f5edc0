"""The contract of providers: turns, tools, input during a turn, failures."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from jackfield.api import (
    InputTaken,
    Retrying,
    SessionReady,
    TextDelta,
    TextDiscarded,
    TextDone,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
)
from jackfield.errors import ProviderError, ProviderErrorKind
from jackfield.testing.contracts.checks import check, skip
from jackfield.testing.contracts.provider import SECRET, ProviderBench, Talk
from jackfield.testing.contracts.stage import Stage
from jackfield.testing.waiting import soon

__all__ = ["ProviderTurns"]

_HOPELESS = (
    "auth",
    "billing",
    "permission",
    "model_not_found",
    "refusal",
    "invalid_request",
    "config",
    "engine_missing",
)
"""Trying again without a change can't help."""
_LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
_ADD = ("add_numbers", {"a": 19, "b": 23})


class ProviderTurns(ProviderBench):
    """What happens between a prompt and its end."""

    @check("PROV-10")
    async def test_prov_10_a_turn_has_a_beginning_a_text_and_an_end(self, tmp_path: Path) -> None:
        """`SessionReady`; then for a prompt `TurnStarted`, `TextDone`, and `TurnEnded` with reply and input."""
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            assert await talk.send(stage.anything()) == "started", "a prompt to an idle session starts a turn"
            ended = await talk.until(TurnEnded)
            kinds = [type(event) for event in talk.seen]
            assert SessionReady in kinds and kinds.index(SessionReady) < kinds.index(TurnStarted)
            assert kinds.index(TurnStarted) < kinds.index(TextDone) < kinds.index(TurnEnded)
            assert (ended.outcome, ended.error) == ("ok", None), f"it ended as {ended}"
            assert ended.reply, "an answered prompt has a reply"
            assert talk.of(TurnStarted)[0].cause == "input"
            if self.claims().consumed_input_ids:
                assert ended.inputs == ("m1",), f"the turn consumed {ended.inputs}, not the input m1"

    @check("PROV-11")
    async def test_prov_11_it_says_what_the_model_said(self, tmp_path: Path) -> None:
        """The reply is the model's text, whole and nothing else, whatever characters are in it."""
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            for text in ("plain words", "<b>a & b</b> \U0001f680 \u05e9\u05dc\u05d5\u05dd"):
                ended = await talk.ask(stage.say(text))
                assert (ended.outcome, (ended.reply or "").strip()) == ("ok", text)

    @check("PROV-12")
    async def test_prov_12_deltas_add_up(self, tmp_path: Path) -> None:
        """Declared text deltas, put together, are the authoritative text; undeclared ones never come."""
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            await talk.ask(stage.say(_LONG) if _can_say(stage) else stage.anything())
            deltas = talk.of(TextDelta)
            if not self.claims().text_deltas:
                assert not deltas, "it declares no text deltas, and sends some"
                skip("it declares no text deltas")
            assert deltas, "it declares text deltas, and sends none"
            dropped = {event.block for event in talk.of(TextDiscarded)}
            for done in talk.of(TextDone):
                grown = "".join(delta.text for delta in deltas if delta.block == done.block)
                assert done.block in dropped or grown.strip() == done.text.strip(), (
                    f"block {done.block}: the deltas make {grown!r}, the text is {done.text!r}"
                )

    @check("PROV-13")
    async def test_prov_13_a_tool_is_called_once(self, tmp_path: Path) -> None:
        """A tool call reaches the tool with its arguments, once, and is told by a pair of events with one call id."""
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            ended = await talk.ask(stage.call(_ADD))
            assert ended.outcome == "ok", f"it ended as {ended}"
            assert talk.hands.calls == [_ADD], f"the tool was called {talk.hands.calls}"
            (started,), (over,) = talk.of(ToolStarted), talk.of(ToolEnded)
            assert started.call == over.call and over.ok, f"the events are {started} and {over}"
            assert started.name.endswith("add_numbers"), f"the tool is called {started.name!r}"

    @check("PROV-14")
    async def test_prov_14_a_tool_that_fails_does_not_end_the_turn(self, tmp_path: Path) -> None:
        """An error of a tool is given to the model, told as not ok, and the turn goes on."""
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            ended = await talk.ask(stage.call(("refuse_it", {})))
            assert ended.outcome == "ok", f"it ended as {ended}"
            (over,) = talk.of(ToolEnded)
            assert not over.ok, "the tool failed, and ToolEnded says ok"

    @check("PROV-15")
    async def test_prov_15_several_tools_in_one_turn(self, tmp_path: Path) -> None:
        """Two tool calls of one turn both run, each with an id and an end of its own."""
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            second = ("add_numbers", {"a": 1, "b": 2})
            ended = await talk.ask(stage.call(_ADD, second))
            assert ended.outcome == "ok", f"it ended as {ended}"
            assert sorted(talk.hands.calls, key=str) == sorted([_ADD, second], key=str)
            calls = [event.call for event in talk.of(ToolStarted)]
            assert len(set(calls)) == 2, f"the calls' ids are {calls}"
            assert sorted(calls) == sorted(event.call for event in talk.of(ToolEnded))

    @check("PROV-16")
    async def test_prov_16_input_for_after_the_turn_waits(self, tmp_path: Path) -> None:
        """Input with `when="after_turn"` during a turn is queued for a turn of its own, or rejected as declared."""
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            await talk.send(stage.call(("wait_for_ever", {})))
            await _entered(talk)
            receipt = await talk.send(stage.anything(), when="after_turn")
            if self.claims().inject == "no":
                assert receipt in ("rejected", "queued"), f"it declares inject = no, and answers {receipt}"
            else:
                assert receipt == "queued", f"it answers {receipt}"
            await self._interrupt(talk)
            first = await talk.until(TurnEnded)
            assert "m2" not in first.inputs
            if receipt == "queued":
                second = await talk.until(TurnEnded, 2)
                assert second.outcome == "ok"
                assert "m2" in second.inputs or not self.claims().consumed_input_ids

    @check("PROV-17")
    async def test_prov_17_input_during_a_turn_is_taken_as_declared(self, tmp_path: Path) -> None:
        """Input with `when="now"` during a turn is taken as `inject` says: injected, queued or rejected, never lost."""
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            inject = self.claims().inject
            await talk.send(stage.call(("wait_for_ever", {})))
            await _entered(talk)
            receipt = await talk.send(stage.anything(), when="now")
            allowed = {
                "no": ("rejected",),
                "queue": ("queued",),
                "next_step": ("injected", "queued"),
                "immediate": ("injected",),
            }[inject]
            assert receipt in allowed, f"it declares inject = {inject}, and answers {receipt}"
            await self._interrupt(talk)
            await talk.until(TurnEnded)
            if receipt == "rejected":
                return
            if not self.claims().consumed_input_ids:
                skip("it does not tell which inputs it consumed")
            await talk.wait(
                lambda: any("m2" in ended.inputs for ended in talk.of(TurnEnded)), "the end of the turn that took m2"
            )
            consumed = [one for ended in talk.of(TurnEnded) for one in ended.inputs]
            assert sorted(consumed) == ["m1", "m2"], f"the turns consumed {consumed}"
            taken = [one for event in talk.of(InputTaken) for one in event.inputs]
            assert taken in ([], ["m2"]), f"InputTaken names {taken}"

    @check("PROV-18")
    async def test_prov_18_a_text_can_be_interrupted(self, tmp_path: Path) -> None:
        """`interrupt` while it talks ends the turn as interrupted, and the next turn works."""
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            await talk.send(stage.go_on())
            await talk.wait(lambda: bool(talk.of(TextDelta) or talk.of(TextDone)), "a first word")
            await self._interrupt(talk)
            assert (await talk.until(TurnEnded)).outcome == "interrupted"
            assert (await talk.ask(stage.anything())).outcome == "ok"

    @check("PROV-19")
    async def test_prov_19_a_tool_can_be_interrupted(self, tmp_path: Path) -> None:
        """`interrupt` while a tool runs ends the turn as interrupted; the call is cancelled and told as ended."""
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            await talk.send(stage.call(("wait_for_ever", {})))
            await _entered(talk)
            await self._interrupt(talk)
            assert (await talk.until(TurnEnded)).outcome == "interrupted"
            await talk.wait(lambda: bool(talk.of(ToolEnded)), "ToolEnded")
            assert (await talk.ask(stage.anything())).outcome == "ok"
            assert talk.hands.cancelled == 1, "the tool's call goes on although its turn has ended"

    @check("PROV-20")
    async def test_prov_20_an_interrupt_without_a_turn_does_nothing(self, tmp_path: Path) -> None:
        """`interrupt` on an idle session is fine, and the next turn is not touched by it."""
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            await self._interrupt(talk)
            assert (await talk.ask(stage.anything())).outcome == "ok"
            await self._interrupt(talk)
            assert (await talk.ask(stage.anything())).outcome == "ok"

    @check("PROV-21")
    @pytest.mark.parametrize("kind", get_args(ProviderErrorKind))
    async def test_prov_21_failures_are_typed(self, tmp_path: Path, kind: ProviderErrorKind) -> None:
        """A failed turn ends with a `ProviderError` of its kind; `retryable` and `scope` make sense for it."""
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            if kind not in stage.known_failures():
                skip(f"this stage can't make it fail with {kind}")
            error = _error(await talk.ask(stage.fail(kind)))
            assert error.kind == kind, f"{kind} became {error.kind}"
            assert not (kind in _HOPELESS and error.retryable), f"{kind} can't go away by itself, yet it is retryable"
            assert error.retry_after is None or error.retry_after >= 0
            if kind in ("auth", "billing"):
                assert error.scope in ("credential", "provider"), f"{kind} concerns more than one turn"
            assert not error.tools_ran, "no tool was called"
            assert error.message.strip(), "the message is empty"

    @check("PROV-22")
    async def test_prov_22_a_failure_after_a_tool_says_so(self, tmp_path: Path) -> None:
        """With `tools_ran` the prompt is never sent again, so it must be told when a tool was called."""
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            known = stage.known_failures()
            if not known:
                skip("this stage can't make it fail")
            error = _error(await talk.ask(stage.fail_after(known[0], _ADD)))
            assert talk.hands.calls == [_ADD]
            assert error.tools_ran, "a tool ran before the failure, and tools_ran is False"

    @check("PROV-23")
    async def test_prov_23_after_a_failure_it_goes_on(self, tmp_path: Path) -> None:
        """A failed turn leaves a session that takes the next prompt, or one that closes its stream."""
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            known = stage.known_failures()
            if not known:
                skip("this stage can't make it fail")
            kind = next((one for one in known if one in ("overloaded", "server", "network")), known[0])
            _error(await talk.ask(stage.fail(kind)))
            assert (await talk.ask(stage.anything())).outcome == "ok"

    @check("PROV-24")
    async def test_prov_24_retries_are_told(self, tmp_path: Path) -> None:
        """Declared retry events tell each wait and its length, so that a waiting runner is not taken for stuck."""
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            if not self.claims().retry_events:
                skip("it declares no retry events")
            ended = await talk.ask(stage.retry())
            assert ended.outcome == "ok", f"it ended as {ended}"
            retries = talk.of(Retrying)
            assert retries and all(event.attempt >= 1 and event.delay >= 0 and event.kind for event in retries)

    @check("PROV-25")
    async def test_prov_25_usage_is_counted(self, tmp_path: Path) -> None:
        """Declared usage comes in every turn, is never negative, and its requests add up to its turn."""
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            await talk.ask(stage.anything())
            first = talk.of(Usage)
            if not self.claims().usage:
                assert not first, "it declares no usage, and tells some"
                skip("it declares no usage")
            assert first, "it declares usage, and tells none"
            counts = ("input", "cache_read", "cache_write", "output", "reasoning")
            for event in first:
                assert all(getattr(event, name) >= 0 for name in counts), f"a count is negative in {event}"
                assert event.cost is None or event.cost >= 0
            assert sum(getattr(event, name) for event in first for name in counts) > 0, "nothing was counted"
            requests, turns = ([one for one in first if one.scope == scope] for scope in ("request", "turn"))
            if requests and turns:
                for name in ("input", "output"):
                    sums = sum(getattr(one, name) for one in requests), sum(getattr(one, name) for one in turns)
                    assert sums[0] == sums[1], f"{name}: the requests make {sums[0]}, the turn {sums[1]}"
            await talk.ask(stage.anything())
            assert len(talk.of(Usage)) > len(first), "the second turn told no usage"

    @check("PROV-26")
    async def test_prov_26_hostile_prompts_are_survived(self, tmp_path: Path) -> None:
        """Control characters and a megabyte of text end in a `TurnEnded`; the session lives on."""
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            for text in ("\x00\x1b[2J\u202e", "x" * 1_000_000):
                ended = await talk.ask(text)
                assert ended.outcome in ("ok", "error", "limit"), f"it ended as {ended}"
            assert (await talk.ask(stage.anything())).outcome == "ok"

    @check("PROV-27")
    async def test_prov_27_secrets_are_not_shown(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """What lies in the session's environment is in no event, error, log record or `repr` of its own accord."""
        caplog.set_level(0)
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            await talk.ask(stage.anything())
            for kind in stage.known_failures()[:3]:
                error = _error(await talk.ask(stage.fail(kind)))
                assert SECRET not in f"{error.message}{error.fix}{error.message_for_user}"
            shown = [*map(repr, talk.seen), *(one.getMessage() for one in caplog.records), repr(talk.session)]
            assert not [text for text in shown if SECRET in text], "a value of the environment is shown"

    async def _interrupt(self, talk: Talk) -> None:
        if not self.claims().interrupt:
            skip("it declares no interrupt")
        await talk.session.interrupt(grace=self.close_deadline)


async def _entered(talk: Talk) -> None:
    await soon(talk.hands.entered.wait(), f"the tool to be called; what came is {talk.seen[-5:]}")


def _error(ended: TurnEnded) -> ProviderError:
    assert ended.outcome == "error" and ended.error is not None, f"it ended as {ended}"
    return ended.error


def _can_say(stage: Stage) -> bool:
    return type(stage).say is not Stage.say
