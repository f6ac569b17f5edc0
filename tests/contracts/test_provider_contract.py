"""The provider suite refuses a mock that was bent out of shape."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from jackfield.api import (
    Compacting,
    Continuation,
    ContinuationChanged,
    ContinuationLost,
    Notice,
    Probe,
    Provider,
    ProviderCapabilities,
    ProviderEvent,
    ProviderInput,
    ProviderSession,
    ProviderSpec,
    ProviderType,
    SendReceipt,
    SessionClosed,
    SessionReady,
    TextDelta,
    ToolEnded,
    TurnEnded,
    Usage,
)
from jackfield.errors import ProviderError
from jackfield.testing import ProviderContract, Stage
from jackfield_provider_mock import plugin

from plugins.providers.mock.tests.test_contract import Commands
from tests.contracts.refusing import refusal

CHILDREN: list[subprocess.Popen[bytes]] = []
Bend = Callable[[ProviderEvent], list[ProviderEvent]]


def _without(*kinds: type[Any]) -> Bend:
    return lambda event: [] if isinstance(event, kinds) else [event]


def _error(**changes: Any) -> Bend:
    def bend(event: ProviderEvent) -> list[ProviderEvent]:
        if isinstance(event, TurnEnded) and event.error is not None:
            fields = ("kind", "retryable", "retry_after", "status", "scope", "tools_ran")
            values = {name: getattr(event.error, name) for name in fields}
            return [replace(event, error=ProviderError(event.error.message, **(values | changes)))]
        return [event]

    return bend


def _changed(kind: type[Any], **changes: Any) -> Bend:
    return lambda event: [replace(event, **changes)] if isinstance(event, kind) else [event]  # type: ignore[type-var]  # the values' types vary


BENDS: dict[str, Bend] = {
    "never_ready": _without(SessionReady),
    "no_deltas": _without(TextDelta),
    "garbled": _changed(TextDelta, text="?"),
    "no_reply": _changed(TurnEnded, reply=None),
    "no_inputs": _changed(TurnEnded, inputs=()),
    "no_tool_end": _without(ToolEnded),
    "tool_always_ok": _changed(ToolEnded, ok=True),
    "one_call_id": _changed(ToolEnded, call="call"),
    "always_server": _error(kind="server"),
    "always_retryable": _error(retryable=True),
    "hides_tools_ran": _error(tools_ran=False),
    "no_usage": _without(Usage),
    "negative_usage": _changed(Usage, input=-1),
    "silent_loss": _without(ContinuationLost),
    "no_continuation": _without(ContinuationChanged),
    "endless_compaction": lambda event: [] if isinstance(event, Compacting) and event.phase == "ended" else [event],
    "no_end": _without(SessionClosed),
}


class BentSession:
    def __init__(self, session: ProviderSession, spec: ProviderSpec, fault: str) -> None:
        self.session, self.spec, self.fault = session, spec, fault

    async def events(self) -> AsyncIterator[ProviderEvent]:
        if self.fault == "shows_env":
            yield Notice(level="debug", text=str(self.spec.env))
        async for event in self.session.events():
            for bent in BENDS.get(self.fault, lambda one: [one])(event):
                yield bent

    async def send(self, message: ProviderInput) -> SendReceipt:
        receipt = await self.session.send(message)
        return "started" if self.fault == "takes_everything" else receipt

    async def interrupt(self, *, grace: float) -> None:
        if self.fault != "no_interrupt":
            await self.session.interrupt(grace=grace)

    async def compact(self, instructions: str | None = None) -> None:
        await self.session.compact(instructions)

    async def close(self, *, deadline: float) -> None:
        await self.session.close(deadline=deadline)


class BentProvider:
    def __init__(self, provider: Provider, fault: str) -> None:
        self.provider, self.fault = provider, fault

    def capabilities(self) -> ProviderCapabilities:
        able = self.provider.capabilities()
        if self.fault == "claims_no_inject":
            return replace(able, inject="no")
        if self.fault == "claims_no_deltas":
            return replace(able, text_deltas=False)
        if self.fault == "claims_no_usage":
            return replace(able, usage=False)
        return able

    async def probe(self) -> Probe:
        return Probe(ok=False) if self.fault == "mute_probe" else await self.provider.probe()

    async def open(self, spec: ProviderSpec, continuation: Continuation | None) -> ProviderSession:
        if self.fault == "leaves_child":
            CHILDREN.append(subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]))
        if self.fault == "leaves_task":
            asyncio.get_running_loop().create_task(asyncio.sleep(60), name="a forgotten one")
        if self.fault == "forgets":
            continuation = None
        if self.fault == "says_the_last":
            spec = replace(spec, state_dir=str(Path(spec.state_dir).parent))
        return BentSession(await self.provider.open(spec, continuation), spec, self.fault)


class Suite(ProviderContract):
    plugin = "mock"
    fault: ClassVar[str] = ""

    def item(self) -> ProviderType:
        (kind,) = plugin.register_providers()
        fault = self.fault
        return replace(kind, create=lambda settings: BentProvider(plugin.create(settings), fault))

    def make_stage(self) -> Stage:
        return Commands()


@pytest.mark.parametrize(
    ("fault", "id", "says"),
    [
        ("mute_probe", "PROV-02", "how to mend"),
        ("never_ready", "PROV-03", "SessionReady"),
        ("no_end", "PROV-04", "not SessionClosed"),
        ("takes_everything", "PROV-04", "took a prompt"),
        ("leaves_child", "PROV-05", "the process"),
        ("leaves_task", "PROV-05", "a forgotten one"),
        ("no_reply", "PROV-10", "reply"),
        ("no_inputs", "PROV-10", "consumed"),
        ("no_reply", "PROV-11", ""),
        ("no_deltas", "PROV-12", "sends none"),
        ("garbled", "PROV-12", "the deltas make"),
        ("claims_no_deltas", "PROV-12", "sends some"),
        ("one_call_id", "PROV-13", "the events are"),
        ("tool_always_ok", "PROV-14", "says ok"),
        ("one_call_id", "PROV-15", ""),
        ("takes_everything", "PROV-16", "it answers started"),
        ("claims_no_inject", "PROV-17", "answers injected"),
        ("no_inputs", "PROV-17", "that took m2"),
        ("no_interrupt", "PROV-18", "TurnEnded"),
        ("no_tool_end", "PROV-19", "ToolEnded"),
        ("hides_tools_ran", "PROV-22", "tools_ran is False"),
        ("no_usage", "PROV-25", "tells none"),
        ("claims_no_usage", "PROV-25", "tells some"),
        ("negative_usage", "PROV-25", "negative"),
        ("shows_env", "PROV-27", "is shown"),
        ("forgets", "PROV-30", "does not know what was said"),
        ("no_continuation", "PROV-31", "tells no continuation"),
        ("silent_loss", "PROV-32", "without a word"),
        ("endless_compaction", "PROV-33", "Compacting"),
    ],
)
async def test_a_bent_provider_is_refused(
    fault: str, id: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("jackfield.testing.waiting.BOUND", 3.0)
    bad = type("Bad", (Suite,), {"fault": fault})
    try:
        assert says in await refusal(bad, id, tmp_path, caplog=caplog)
    finally:
        while CHILDREN:
            child = CHILDREN.pop()
            child.kill()
            child.wait()


@pytest.mark.parametrize(
    ("fault", "kind", "says"), [("always_server", "auth", "became server"), ("always_retryable", "auth", "retryable")]
)
async def test_an_untrue_error_is_refused(fault: str, kind: str, says: str, tmp_path: Path) -> None:
    bad = type("Bad", (Suite,), {"fault": fault})
    assert says in await refusal(bad, "PROV-21", tmp_path, kind=kind)
