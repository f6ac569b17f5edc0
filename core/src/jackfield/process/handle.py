"""One live runner: awaiting its end, ending it, reading its last words."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence

from jackfield.errors import RuntimeFailed
from jackfield.ids import SessionId
from jackfield.process import proc
from jackfield.process.launch.steps import exit_code
from jackfield.process.output import OutputTail
from jackfield.process.records import RunnerRecord

__all__ = ["ProcessHandle", "open_pidfd"]

log = logging.getLogger(__name__)

_KILL_BOUND = 10.0
_ADOPTED_POLL = 0.5


def open_pidfd(pid: int) -> int | None:
    """A descriptor that means this very process for ever; None where the system has none."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


class ProcessHandle:
    """A runner of this host, or one adopted from an earlier host.

    Its end is noticed by its pidfd on Linux, by a thread that waits for it (our child) or by asking twice a second
    (adopted) elsewhere.  `wait` resolves when all that belonged to the runner is gone and its output is read.
    """

    def __init__(
        self,
        record: RunnerRecord,
        *,
        pidfd: int | None,
        adopted: bool,
        tail: OutputTail,
        peer_uid: int | None,
        on_end: Callable[[ProcessHandle], None],
    ) -> None:
        self.record = record
        self._pidfd = pidfd
        self._adopted = adopted
        self._tail = tail
        self._peer_uid = peer_uid
        self._on_end = on_end
        self._ended = asyncio.Event()
        self._code = -1
        self._gone = False
        self._left = False
        self._loop = asyncio.get_running_loop()
        self._finishing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tail.start(from_end=adopted)
        self._watch()

    @property
    def session_id(self) -> SessionId:
        return self.record.session_id

    @property
    def epoch(self) -> int:
        return self.record.epoch

    @property
    def pid(self) -> int:
        """Of the process that stands for the whole runner: with namespaces its init, else the runner itself."""
        return self.record.pid

    @property
    def peer_uid(self) -> int | None:
        return self._peer_uid

    def logs(self) -> Sequence[str]:
        return self._tail.lines()

    async def wait(self) -> int:
        """Its exit code, 128 + signal when one ended it, -1 for an adopted one."""
        await self._ended.wait()
        return self._code

    async def stop(self, grace: float) -> None:
        """SIGTERM to the runner alone, so that it can end its engines in order; then everything is killed."""
        if self._ended.is_set():
            return
        if not self._gone:
            proc.send(self.pid, self._pidfd, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), max(0.0, grace))
        await self.kill()

    async def kill(self) -> None:
        if self._ended.is_set():
            return
        if self._left:
            raise RuntimeFailed(f"the runner of session {self.session_id} was left to the next host; adopt it first")
        if not self._gone:
            if self.record.namespaces:
                proc.send(self.pid, self._pidfd, signal.SIGKILL)
            else:
                await asyncio.to_thread(proc.end_family, self.pid, self.record.mark)
        try:
            await asyncio.wait_for(self._ended.wait(), _KILL_BOUND)
        except TimeoutError:
            raise RuntimeFailed(
                f"the runner of session {self.session_id} (process {self.pid}) was killed and is still there after "
                f"{_KILL_BOUND:.0f} s",
                fix="it hangs in the kernel, likely on a dead file system; see `ps -o stat,wchan` for it",
            ) from None

    def let_go(self) -> None:
        """Forget the runner without ending it: the host stops and leaves it for the next one."""
        self._left = True
        self._unwatch()
        self._tail.let_go()

    def _watch(self) -> None:
        if self._pidfd is not None:
            self._loop.add_reader(self._pidfd, self._notice)
        elif self._adopted:
            self._ask()
        else:
            threading.Thread(target=self._await_child, name=f"await-{self.pid}", daemon=True).start()

    def _unwatch(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ask(self) -> None:
        if self.record.alive():
            self._timer = self._loop.call_later(_ADOPTED_POLL, self._ask)
        else:
            self._notice()

    def _await_child(self) -> None:
        code = self._take_exit_code(0)
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            self._loop.call_soon_threadsafe(self._notice, code)

    def _notice(self, code: int | None = None) -> None:
        self._gone = True
        self._unwatch()
        self._finishing = self._loop.create_task(self._finish(code), name=f"finish-{self.session_id}")

    async def _finish(self, code: int | None) -> None:
        """Sweep first and take the exit code then: until it is taken the process id can't become another's."""
        if not self.record.namespaces:
            certain = None if self._adopted else self.pid
            left = await asyncio.to_thread(proc.end_family, certain, self.record.mark)
            if left:
                log.info("killed %d processes that the runner of session %s left behind", left, self.session_id)
        if code is None:
            code = -1 if self._adopted else self._take_exit_code(os.WNOHANG)
        self._code = code
        self._tail.finish()
        self._on_end(self)
        self._ended.set()

    def _take_exit_code(self, options: int) -> int:
        try:
            _, state = os.waitpid(self.pid, options)
        except ChildProcessError:
            log.warning("the exit code of process %d was taken by somebody else", self.pid)
            return -1
        return exit_code(state)
