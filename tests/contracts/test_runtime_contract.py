"""The runtime suite refuses a runtime that promises what it does not keep."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from jackfield.api import Completed, Isolation, LaunchSpec, RuntimeHandle, RuntimeHealth, RuntimeType, SessionPlace
from jackfield.process.handle import ProcessHandle
from jackfield.process.plugin import register_runtimes
from jackfield.process.runtime import ProcessRuntime
from jackfield.process.settings import ProcessSettings
from jackfield.testing import RuntimeContract

from tests.contracts.refusing import refusal

OPENED: list[int] = []


class Bent(ProcessRuntime):
    """The built-in runtime without isolation, and with one bad habit."""

    fault: ClassVar[str] = ""

    async def check(self) -> RuntimeHealth:
        health = await super().check()
        match self.fault:
            case "boasts":
                return replace(health, isolation=Isolation.NAMESPACES)
            case "mute":
                return replace(health, detail="")
        return health

    async def run(
        self, spec: LaunchSpec, argv: Sequence[str], stdin: bytes, timeout: float, output_limit: int = 1_048_576
    ) -> Completed:
        limit = 10_000_000 if self.fault == "floods" else output_limit
        done = await super().run(spec, argv, stdin, timeout, limit)
        match self.fault:
            case "always_well":
                return replace(done, exit_code=0)
            case "hides_timeout":
                return replace(done, timed_out=False)
            case "one_stream":
                return replace(done, stdout=done.stdout + done.stderr, stderr=b"")
        return done

    async def launch(self, spec: LaunchSpec) -> RuntimeHandle:
        if self.fault == "tells_secrets":
            spec = replace(spec, environment=spec.environment | spec.secrets)
        if self.fault == "leaks":
            OPENED.append(os.open("/dev/null", os.O_RDONLY))
        handle = await super().launch(spec)
        assert isinstance(handle, ProcessHandle)
        if self.fault == "forgets_words":
            handle.logs = lambda: ()  # type: ignore[method-assign]  # the test's own in its place
        if self.fault == "only_kills":
            handle.stop = lambda grace: handle.kill()  # type: ignore[method-assign]  # the test's own in its place
        return handle

    async def recover(self, place: SessionPlace) -> None:
        if self.fault != "never_recovers":
            await super().recover(place)

    async def adopt(self) -> Sequence[RuntimeHandle]:
        return [] if self.fault == "adopts_none" else await super().adopt()


class Suite(RuntimeContract):
    plugin = "process"
    settings: ClassVar[Mapping[str, Any]] = {"isolation": "none"}
    fault: ClassVar[str] = ""

    def item(self) -> RuntimeType:
        (kind,) = register_runtimes()
        bent = type("Bent", (Bent,), {"fault": self.fault})
        return replace(kind, create=lambda context, settings: bent(context, settings or ProcessSettings()))


@pytest.mark.parametrize(
    ("fault", "id", "says"),
    [
        ("mute", "RUN-02", "how the level was proved"),
        ("boasts", "RUN-03", "a sandbox read"),
        ("one_stream", "RUN-05", ""),
        ("floods", "RUN-08", "bytes came back"),
        ("hides_timeout", "RUN-09", "ended by itself"),
        ("only_kills", "RUN-21", ""),
        ("forgets_words", "RUN-23", "the last words are"),
        ("tells_secrets", "RUN-25", "can be read in"),
        ("leaks", "RUN-26", "stay open"),
        ("never_recovers", "RUN-27", "the host still can't read"),
        ("adopts_none", "RUN-28", "0 were adopted"),
    ],
)
async def test_a_bent_runtime_is_refused(fault: str, id: str, says: str, tmp_path: Path) -> None:
    bad = type("Bad", (Suite,), {"fault": fault})
    try:
        assert says in await refusal(bad, id, tmp_path)
    finally:
        while OPENED:
            os.close(OPENED.pop())


async def test_an_exit_code_that_is_always_0_is_refused(tmp_path: Path) -> None:
    bad = type("Bad", (Suite,), {"fault": "always_well"})
    await refusal(bad, "RUN-06", tmp_path, code=77)


async def test_a_variable_of_the_host_in_the_sandbox_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bad(Suite):
        settings: ClassVar[Mapping[str, Any]] = {"isolation": "none", "pass_environment": ["CONTRACT_TOKEN"]}

    assert "host's environment" in await refusal(Bad, "RUN-11", tmp_path, monkeypatch=monkeypatch)
