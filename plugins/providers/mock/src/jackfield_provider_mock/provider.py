"""The provider: its claims, and opening a session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jackfield.api import Continuation, Probe, ProviderCapabilities, ProviderSpec

from jackfield_provider_mock import __version__
from jackfield_provider_mock.memory import Memory
from jackfield_provider_mock.session import MockSession

if TYPE_CHECKING:
    from jackfield_provider_mock.defaults import Defaults
    from jackfield_provider_mock.script import Step
    from jackfield_provider_mock.settings import MockSettings

__all__ = ["MockProvider"]


class MockProvider:
    """An agent without a model (spec/providers.md 8, table, last column)."""

    def __init__(self, settings: MockSettings | Defaults) -> None:
        self._settings = settings

    def capabilities(self) -> ProviderCapabilities:
        return ProviderCapabilities(
            text_deltas=self._settings.stream,
            inject="next_step",
            consumed_input_ids=True,
            unsolicited_turns=True,
            compaction=True,
            interrupt=True,
            retry_events=True,
            usage=True,
            resume=True,
            in_process_tools=True,
        )

    async def probe(self) -> Probe:
        """Always well: there is no engine to look for."""
        return Probe(ok=True, engine="mock", version=__version__, detail="in this process")

    async def open(self, spec: ProviderSpec, continuation: Continuation | None) -> MockSession:
        """Begin or take up a conversation; its state lies in `<state_dir>/mock/`.

        Raises:
            ProviderError: kind `config`: the script can't be used.
        """
        steps = _steps(self._settings, spec)
        folder = Path(spec.state_dir) / "mock"
        memory, lost = _recall(folder, continuation)
        return MockSession(spec, self._settings, steps, memory, version=__version__, lost=lost)


def _steps(settings: MockSettings | Defaults, spec: ProviderSpec) -> list[Step]:
    if not settings.script:
        return []
    from jackfield_provider_mock.script import load_script, read_steps

    if isinstance(settings.script, str):
        cwd = Path(spec.cwd)
        return load_script(settings.script, [cwd, *map(Path, spec.extra_dirs), cwd.parent])
    return read_steps(settings.script)


def _recall(folder: Path, continuation: Continuation | None) -> tuple[Memory, str | None]:
    """The conversation, and why a stored one was lost if it was (C124)."""
    if continuation is None:
        return Memory.begin(folder), None
    if continuation.provider != "mock":
        return Memory.begin(folder), f"the continuation belongs to {continuation.provider!r}"
    found = Memory.load(folder, continuation.token)
    if found is None:
        return Memory.begin(folder), f"no conversation {continuation.token!r} in {folder}"
    return found, None
