"""What the runner says of itself while it works: the current tool, what it waits for, what it did.

Written late on purpose: a call that is over within half a second leaves no trace in `session_state` and costs no
commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jackfield.clock import Clock, UnixMs
from jackfield.mailbox import RunnerMailbox
from jackfield.models import ActivityKind, ActivityRow, RunnerState
from jackfield.runner.mailroom import MailRoom

if TYPE_CHECKING:
    from jackfield.api import ToolStarted

__all__ = ["Board", "activity_of"]

_DELAY = 0.5
_SHELLS = frozenset({"bash", "shell", "exec", "command", "local_shell"})


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    started: UnixMs
    deadline: UnixMs | None


class Board:
    """`RunnerState` and activity of this runner, kept up to date in the mailbox."""

    def __init__(self, mail: MailRoom, clock: Clock, ring: Callable[[], None]) -> None:
        self._mail = mail
        self._clock = clock
        self._ring = ring
        self._calls: dict[str, _Call] = {}
        self._waits: dict[str, tuple[UnixMs, str]] = {}
        self._activity: list[ActivityRow] = []
        self._written = RunnerState()
        self._timer: asyncio.TimerHandle | None = None

    def tool_started(self, call: str, name: str, limit: float | None) -> None:
        """A tool runs; `limit` is how many seconds it may take, None when nobody declared it."""
        now = self._clock.now()
        self._calls[call] = _Call(name, now, None if limit is None else UnixMs(now + round(limit * 1000)))
        self._later()

    def tool_ended(self, call: str) -> None:
        if self._calls.pop(call, None) is not None:
            self._later()

    def waiting(self, key: str, seconds: float, reason: str) -> None:
        """It waits on purpose; said at once, because the stuck rule reads it (C097)."""
        self._waits[key] = (UnixMs(self._clock.now() + round(seconds * 1000)), reason)
        self._flush()

    def waited(self, key: str) -> None:
        if self._waits.pop(key, None) is not None:
            self._later()

    @property
    def busy(self) -> bool:
        """Whether a tool runs, or something is waited for on purpose."""
        return bool(self._calls or self._waits)

    def did(self, kind: ActivityKind, target: str, summary: str) -> None:
        """Something for the activity log; `summary` is cut to one line of 200 characters."""
        line = " ".join(summary.split())[:200]
        self._activity.append(ActivityRow(kind=kind, target=target[:200], summary=line, at=self._clock.now()))
        self._later()

    def settle(self) -> tuple[RunnerState | None, list[ActivityRow]]:
        """What is not written yet, to go along with another write; the calls and waits of the turn are over."""
        self._calls.clear()
        self._waits.clear()
        return self._take()

    def _state(self) -> RunnerState:
        call = max(self._calls.values(), key=lambda call: call.deadline or 0, default=None)
        until, reason = max(self._waits.values(), default=(None, None))
        return RunnerState(
            tool=None if call is None else call.name,
            tool_started_at=None if call is None else call.started,
            tool_deadline_at=None if call is None else call.deadline,
            waiting_until=until,
            waiting_for=reason,
        )

    def _take(self) -> tuple[RunnerState | None, list[ActivityRow]]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        state, activity = self._state(), self._activity
        self._activity = []
        changed = state != self._written
        self._written = state
        return (state if changed else None), activity

    def _later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_DELAY, self._flush)

    def _flush(self) -> None:
        state, activity = self._take()
        if state is None and not activity:
            return

        def write(mailbox: RunnerMailbox) -> None:
            mailbox.write(state=state, activity=activity)
            self._ring()

        self._mail.post("the runner's state", write)


def activity_of(event: ToolStarted) -> ActivityKind:
    """What a tool of the engine's own counts as."""
    if event.source == "mcp":
        return ActivityKind.MCP_CALL
    return ActivityKind.CMD_EXEC if event.name.lower() in _SHELLS else ActivityKind.TOOL_CALL
