"""`jackfield.api.Runtime`, built in: runners as processes of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from jackfield.api import (
    Completed,
    GroupPlace,
    Image,
    LaunchSpec,
    Limits,
    RuntimeContext,
    RuntimeHandle,
    RuntimeHealth,
    SessionPlace,
)
from jackfield.errors import RuntimeFailed
from jackfield.ids import SessionId, new_id
from jackfield.models import RunnerPaths
from jackfield.process import environment, ownership, proc, spawn
from jackfield.process.accounts import Accounts
from jackfield.process.bytecode import compile_stale
from jackfield.process.handle import ProcessHandle, open_pidfd
from jackfield.process.launch.plan import Plan
from jackfield.process.nursery import Nursery
from jackfield.process.oneshot import run_once
from jackfield.process.output import OutputTail, open_log
from jackfield.process.probe import Proof, prove
from jackfield.process.records import Records, RunnerRecord
from jackfield.process.settings import ProcessSettings
from jackfield.process.view import Command, Confinement, make_plan, session_view

__all__ = ["ProcessRuntime", "python_module"]

log = logging.getLogger(__name__)

_RECOVERY_BOUND = 10.0
_MOST_AT_ONCE = 16


class ProcessRuntime:
    """See `docs/runtimes/process.md`.  `runner_argv` starts a runner; the session folder is added as its argument.

    Where it is our interpreter with a package to run, that is `runner_argv[:-1] == python_module()`, and the package's
    `__main__` is a `launch.nursery.Runner`, runners are forked from a nursery.
    """

    def __init__(
        self, context: RuntimeContext, settings: ProcessSettings, *, runner_argv: Sequence[str] | None = None
    ) -> None:
        self._context = context
        self._settings = settings
        self._folder = context.folder
        self._runner_argv = tuple(runner_argv or (*python_module(), "jackfield.runner"))
        self._nursery: Nursery | None = None
        if settings.nursery and self._runner_argv[:-1] == python_module():
            self._nursery = Nursery(self._runner_argv[-1], _python(), self._folder / "nursery.log")
        self._records = Records(self._folder / "runners", context.install_id)
        self._accounts = Accounts(self._folder / "uids.json", context.install_id)
        self._live: dict[SessionId, ProcessHandle] = {}
        self._proof: Proof | None = None
        self._proving = asyncio.Lock()
        self._compiled = False
        self._owning = threading.Lock()
        # One-shots may take as long as they like, so they must not use up the threads that everybody shares.
        self._threads = ThreadPoolExecutor(_MOST_AT_ONCE, thread_name_prefix="process-runtime")

    async def check(self) -> RuntimeHealth:
        return (await self._proved()).health

    def paths(self, place: SessionPlace) -> RunnerPaths:
        """The host's own paths: a runner sees everything where it is."""
        return RunnerPaths(
            session=str(place.folder), workspace=str(place.group.workspace), group=str(place.group.folder)
        )

    async def prepare(self, group: GroupPlace) -> Image:
        """Nothing to build: runners use the host's interpreter.  Once, what only they import is compiled."""
        if not self._compiled:
            self._compiled = True
            await asyncio.to_thread(compile_stale, environment.source_folders())
        return Image(reference=f"process {sys.implementation.cache_tag}", detail=sys.executable)

    async def launch(self, spec: LaunchSpec) -> RuntimeHandle:
        session_id = spec.place.session_id
        confinement = await self._confinement()
        standing = self._live.get(session_id)
        if standing is not None:
            raise _still_runs(standing.record)
        launching = asyncio.get_running_loop().run_in_executor(self._threads, self._launch, spec, confinement)
        try:
            record = await asyncio.shield(launching)
        except asyncio.CancelledError:
            launching.add_done_callback(self._undo)
            raise
        return self._take_up(record, adopted=False)

    async def run(
        self, spec: LaunchSpec, argv: Sequence[str], stdin: bytes, timeout: float, output_limit: int = 1_048_576
    ) -> Completed:
        return await self._run(
            spec.place, argv, stdin, timeout, output_limit, limits=spec.limits, added=spec.environment
        )

    async def recover(self, place: SessionPlace) -> None:
        argv = [*_python(), "-m", "jackfield.mailbox.recovery", str(place.folder)]
        done = await self._run(place, argv, b"", _RECOVERY_BOUND, 65_536, limits=Limits(), added={})
        if done.timed_out or done.exit_code != 0:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
            why = (
                f"it took over {_RECOVERY_BOUND:.0f} s" if done.timed_out else f"exit code {done.exit_code}: {said[0]}"
            )
            raise RuntimeFailed(
                f"the mailbox of session {place.session_id} could not be recovered: {why}",
                fix=f"look at {place.folder / 'outbound.db'}, or close the session and start a new one",
            )

    async def shell(self, spec: LaunchSpec) -> Sequence[str]:
        """A command for a terminal.  Its plan lies in a file of the runtime's folder, which only the host can read."""
        confinement = await self._confinement()
        mark = environment.mark_of(self._context.install_id, spec.place.session_id, "shell")
        shell = shutil.which("bash") or "/bin/sh"
        plan = await asyncio.to_thread(
            self._plan, spec.place, [shell], confinement, limits=spec.limits, added=spec.environment, mark=mark
        )
        plan["attached"] = True
        target = self._folder / "shells" / f"{spec.place.session_id}.plan"
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        target.write_bytes(spawn.packed(plan))
        # The shell opens the plan as descriptor 3 and then is replaced by the launcher.
        return ["/bin/sh", "-c", 'exec "$@" 3<"$0"', str(target), *spawn.launcher_argv(mark, "3", "2", "-1")]

    async def adopt(self) -> Sequence[RuntimeHandle]:
        adopted = []
        for record in await asyncio.to_thread(self._records.all):
            if record.session_id in self._live:
                continue
            if record.alive():
                with contextlib.suppress(ProcessLookupError):
                    adopted.append(self._take_up(record, adopted=True))
        return adopted

    async def collect_garbage(self) -> None:
        await asyncio.to_thread(self._collect_garbage, set(self._live))
        async with self._proving:  # what a host that died while proving has left
            await asyncio.to_thread(shutil.rmtree, self._folder / "probe", ignore_errors=True)

    def let_go(self) -> None:
        """Leave all runners to the next host; their handles are of no use afterwards."""
        if self._nursery is not None:
            self._nursery.end()
        for handle in self._live.values():
            handle.let_go()
        self._live.clear()

    async def _proved(self) -> Proof:
        async with self._proving:
            if self._proof is None:
                uid = self._accounts.probe_uid() if os.geteuid() == 0 else None
                self._proof = await prove(self._settings, self._folder / "probe", uid=uid)
            return self._proof

    async def _confinement(self) -> Confinement:
        proof = await self._proved()
        if not proof.health.ok:
            raise RuntimeFailed(f"the process runtime can't be used: {proof.health.detail}", fix=proof.health.fix)
        return proof.confinement

    def _launch(self, spec: LaunchSpec, confinement: Confinement) -> RunnerRecord:
        place, epoch = spec.place, spec.runner.epoch
        earlier = self._records.read(place.session_id)
        if earlier is not None and earlier.alive():
            raise _still_runs(earlier)
        mark = environment.mark_of(self._context.install_id, place.session_id, epoch)
        added = dict(spec.environment)
        if spec.secrets:
            added["JACKFIELD_SECRETS_FD"] = str(spawn.SECRETS_DESCRIPTOR)
        argv = [*self._runner_argv, str(place.folder)]
        plan = self._plan(place, argv, confinement, limits=spec.limits, added=added, mark=mark)
        noted: list[RunnerRecord] = []

        def note(pid: int) -> None:
            found = proc.entry(pid)
            record = RunnerRecord(
                install_id=self._context.install_id,
                session_id=place.session_id,
                epoch=epoch,
                pid=pid,
                started=found.started if found else 0,
                boot=proc.boot_id(),
                uid=plan["uid"],
                namespaces=plan["namespaces"],
            )
            noted.append(record)
            self._records.write(record)

        if spec.secrets:
            plan["secrets"] = spawn.SECRETS_DESCRIPTOR
        output = open_log(self._log_path(place.session_id))
        begin = self._nursery.start if self._nursery is not None else partial(spawn.start, stdin=None)
        try:
            begin(
                plan,
                mark,
                stdout=output,
                stderr=output,
                secrets=spec.secrets,
                before_go=note,
                timeout=self._settings.launch_timeout,
            )
        except RuntimeFailed as failure:
            self._records.remove(place.session_id)
            raise RuntimeFailed(
                f"{failure}{_last_words(self._log_path(place.session_id))}", fix=failure.fix
            ) from failure
        finally:
            os.close(output)
        return noted[-1]

    def _take_up(self, record: RunnerRecord, *, adopted: bool) -> ProcessHandle:
        pidfd = open_pidfd(record.pid)
        if adopted and not record.alive():  # asked again, now that the descriptor means this very process
            if pidfd is not None:
                os.close(pidfd)
            raise ProcessLookupError(record.pid)
        session_id = record.session_id
        tail = OutputTail(self._log_path(session_id), partial(self._context.log_line, session_id))
        peer = record.uid if record.uid is not None else os.geteuid()
        handle = ProcessHandle(record, pidfd=pidfd, adopted=adopted, tail=tail, peer_uid=peer, on_end=self._on_end)
        self._live[session_id] = handle
        return handle

    def _on_end(self, handle: ProcessHandle) -> None:
        if self._live.get(handle.session_id) is handle:
            del self._live[handle.session_id]
        self._records.remove(handle.session_id)
        self._log_path(handle.session_id).unlink(missing_ok=True)

    async def _run(
        self,
        place: SessionPlace,
        argv: Sequence[str],
        stdin: bytes,
        timeout: float,
        output_limit: int,
        *,
        limits: Limits,
        added: dict[str, str],
    ) -> Completed:
        confinement = await self._confinement()
        # An id of its own for each, so that ending what it left behind ends nothing else of the session.
        mark = environment.mark_of(self._context.install_id, place.session_id, new_id("run"))
        cancelled = threading.Event()

        def work() -> Completed:
            plan = self._plan(place, argv, confinement, limits=limits, added=added, mark=mark)
            return run_once(
                plan,
                mark,
                stdin,
                timeout=timeout,
                output_limit=output_limit,
                launch_timeout=self._settings.launch_timeout,
                cancelled=cancelled,
            )

        working = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            cancelled.set()
            working.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody waits for it
            raise

    def _plan(
        self,
        place: SessionPlace,
        argv: Sequence[str],
        confinement: Confinement,
        *,
        limits: Limits,
        added: dict[str, str],
        mark: str,
    ) -> Plan:
        settings = self._settings
        uid = self._hand_over(place, confinement)
        temporary = "/tmp" if confinement.namespaces else str(self._temporary(place, uid))
        view = session_view(
            place,
            code=environment.interpreter_paths(),
            readable=[*environment.named_files(os.environ), *(str(path) for path in settings.readable)],
            temporary=temporary,
        )
        view = replace(view, write=(*view.write, *(str(path) for path in settings.writable)))
        variables = environment.clean_environment(
            os.environ,
            home=place.group.workspace,
            temporary=temporary,
            mark=mark,
            import_path=environment.import_path(),
            passed=settings.pass_environment,
            added=added,
        )
        program = shutil.which(argv[0], path=variables["PATH"])
        if program is None:
            raise RuntimeFailed(f"there is no program {argv[0]!r} in {variables['PATH']}")
        return make_plan(
            Command(argv=[program, *argv[1:]], environment=variables),
            view,
            confinement,
            limits=_effective(limits, settings),
            uid=uid,
            network=settings.network,
        )

    def _hand_over(self, place: SessionPlace, confinement: Confinement) -> int | None:
        """The group's uid, with its files given to it; None when runners keep the host's."""
        for folder in (place.group.workspace, place.group.memory):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not confinement.own_uid:
            return None
        with self._owning:
            uid = self._accounts.uid_of(place.group)
            ownership.give_group(place.group, uid)
            ownership.give_session(place, uid)
            if not confinement.namespaces:
                ownership.open_folders(self._context.home, place.folder, place.group.folder)
        return uid

    def _temporary(self, place: SessionPlace, uid: int | None) -> Path:
        folder = self._folder / "tmp" / place.session_id
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if uid is not None:
            ownership.open_folders(self._context.home, folder)
            os.chown(folder, uid, uid, follow_symlinks=False)
        return folder

    def _undo(self, launching: asyncio.Future[RunnerRecord]) -> None:
        """A launch whose caller was cancelled: nobody would ever know its runner."""
        if launching.cancelled() or launching.exception() is not None:
            return
        record = launching.result()
        if record.namespaces:
            with contextlib.suppress(ProcessLookupError):
                os.kill(record.pid, signal.SIGKILL)
        else:
            proc.end_family(record.pid, record.mark)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(record.pid, 0)
        self._records.remove(record.session_id)

    def _log_path(self, session_id: SessionId) -> Path:
        return self._folder / "output" / f"{session_id}.log"

    def _collect_garbage(self, live: set[SessionId]) -> None:
        """Records, logs and temporary folders of runners that are gone, and processes that such a runner left."""
        keep = set(live)
        for record in self._records.all():
            if record.session_id in live or record.alive():
                keep.add(record.session_id)
                continue
            proc.end_family(None, record.mark)
            self._records.remove(record.session_id)
        for folder, suffix in (("output", ".log"), ("shells", ".plan"), ("tmp", "")):
            place = self._folder / folder
            for path in list(place.iterdir()) if place.is_dir() else ():
                if SessionId(path.name.removesuffix(suffix)) in keep:
                    continue
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)


def _python() -> list[str]:
    """The host's interpreter, which imports nothing from the working directory or a user's own site-packages."""
    return [sys.executable, "-s", "-P"]


def python_module() -> tuple[str, ...]:
    """The beginning of a command line that runs a package; its name is added."""
    return (*_python(), "-m")


def _effective(limits: Limits, settings: ProcessSettings) -> Limits:
    """The launch's limits, none wider than the operator's."""
    return Limits(
        memory=_least(limits.memory, settings.memory),
        cpus=limits.cpus,
        processes=_least(limits.processes, settings.processes),
        file_size=_least(limits.file_size, settings.file_size),
        open_files=_least(limits.open_files, settings.open_files),
    )


def _least(one: int | None, other: int | None) -> int | None:
    given = [value for value in (one, other) if value is not None]
    return min(given) if given else None


def _still_runs(record: RunnerRecord) -> RuntimeFailed:
    return RuntimeFailed(
        f"session {record.session_id} has a runner already: process {record.pid}, epoch {record.epoch}",
        fix="adopt it or stop it first",
    )


def _last_words(log_path: Path) -> str:
    """What a runner that failed to start has written, for the error message."""
    try:
        lines = log_path.read_bytes()[-2000:].decode("utf-8", "replace").strip().splitlines()
    except FileNotFoundError:
        return ""
    return f"; it wrote: {lines[-1]}" if lines else ""
