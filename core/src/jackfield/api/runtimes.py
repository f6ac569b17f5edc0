"""What a runtime implements: the place where a session's runner lives.  It runs in the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from jackfield.ids import AgentGroupId, SessionId
from jackfield.models import RunnerPaths, RunnerSpec

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = [
    "Completed",
    "GroupPlace",
    "Image",
    "Isolation",
    "LaunchSpec",
    "LeavesRunners",
    "Limits",
    "Runtime",
    "RuntimeContext",
    "RuntimeHandle",
    "RuntimeHealth",
    "RuntimeType",
    "SessionPlace",
]


class Isolation(StrEnum):
    """The level that a probe has proved, in the words of spec/runtime.md section 5; from the best to the worst."""

    CONTAINER = "container"
    NAMESPACES = "sandboxed process (namespaces)"
    RESTRICTED = "restricted process (file rules only; it sees other processes and the network unless denied)"
    NONE = "NOT ISOLATED: the agent can do everything your account can"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeHealth:
    ok: bool
    isolation: Isolation
    detail: str = ""
    """How the level was proved, or why a better one could not be."""
    fix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """None means the runtime's default.  Bytes, counts, and shares of one core."""

    memory: int | None = None
    cpus: float | None = None
    processes: int | None = 256
    file_size: int | None = 104_857_600
    open_files: int | None = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """An agent group's folder on the host."""

    agent_group_id: AgentGroupId
    folder: Path

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def memory(self) -> Path:
        return self.folder / "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlace:
    """A session's mailbox folder on the host, and its group's."""

    session_id: SessionId
    folder: Path
    group: GroupPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What `prepare` made ready; `reference` means something to its runtime only."""

    reference: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """`session.json` lies in the folder already.  `secrets` reach the runner by descriptor or 0600 file only."""

    place: SessionPlace
    runner: RunnerSpec
    image: Image
    limits: Limits = Limits()
    secrets: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    """Added to the runtime's cleaned environment; nothing secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A one-shot's end.  Output is cut at the limit given; `timed_out` means that it was killed."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False


@runtime_checkable
class RuntimeHandle(Protocol):
    """A live runner, found again by install id + session id + epoch."""

    @property
    def session_id(self) -> SessionId: ...

    @property
    def epoch(self) -> int: ...

    @property
    def peer_uid(self) -> int | None:
        """The uid that the doorbell's peer must have; None when it can't be known."""
        ...

    async def wait(self) -> int:
        """Its exit code, when it ends; -1 when that can't be known (an adopted one).  May be awaited repeatedly."""
        ...

    async def stop(self, grace: float) -> None:
        """Ask it to end; after `grace` seconds kill everything of it.  Returns when it is gone."""
        ...

    async def kill(self) -> None:
        """End it and all its children at once.  Returns when it is gone."""
        ...

    def logs(self) -> Sequence[str]:
        """The last lines that it wrote (at most 200)."""
        ...


class RuntimeContext(Protocol):
    """What the host hands to a runtime."""

    @property
    def install_id(self) -> str: ...

    @property
    def home(self) -> Path: ...

    @property
    def folder(self) -> Path:
        """A folder of the runtime's own below the home."""
        ...

    def log_line(self, session_id: SessionId, line: str) -> None:
        """Hand a line of a runner's output to the host's log drain; the only way it may reach a log."""
        ...


@runtime_checkable
class Runtime(Protocol):
    async def check(self) -> RuntimeHealth:
        """Prove, by a run, what the runtime isolates.  Cached by the runtime; cheap when repeated."""
        ...

    def paths(self, place: SessionPlace) -> RunnerPaths:
        """The folders as the runner will see them."""
        ...

    async def prepare(self, group: GroupPlace) -> Image: ...

    async def launch(self, spec: LaunchSpec) -> RuntimeHandle:
        """Start the runner.

        Raises:
            RuntimeFailed: it could not be started; the message says why and how to mend it.
        """
        ...

    async def run(
        self, spec: LaunchSpec, argv: Sequence[str], stdin: bytes, timeout: float, output_limit: int = 1_048_576
    ) -> Completed:
        """One command inside the same sandbox."""
        ...

    async def recover(self, place: SessionPlace) -> None:
        """Roll back a dead runner's hot journal in a throw-away child; never in the host's process (C209)."""
        ...

    async def shell(self, spec: LaunchSpec) -> Sequence[str]:
        """The command line that opens a shell inside the sandbox."""
        ...

    async def adopt(self) -> Sequence[RuntimeHandle]:
        """Live runners of this install that an earlier host left behind."""
        ...

    async def collect_garbage(self) -> None:
        """Remove what dead runners of this install left; never anything of another install (C099)."""
        ...


@runtime_checkable
class LeavesRunners(Protocol):
    """A runtime whose runners can outlive the host; the next one finds them with `adopt`."""

    def let_go(self) -> None:
        """Leave all runners to the next host; their handles are of no use afterwards."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeType:
    """What `register_runtimes` returns.  `name` is the entry point's name."""

    name: str
    title: str
    create: Callable[[RuntimeContext, Any], Runtime]
    settings: type[BaseModel] | None = None
