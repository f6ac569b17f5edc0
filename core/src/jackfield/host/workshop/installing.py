"""Running a package manager for a group, where it can do no harm: in the sandbox of the group's runtime.

What is installed is work of strangers, so no code of it runs meanwhile: pip takes wheels only, npm runs no scripts.
And even if it did, it would run as the agent does, with the agent's uid, limits and view, and with nothing of the
host's in its environment; not beside the agent's own processes either, but in a folder of its own.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from jackfield.api import Completed, GroupPlace, LaunchSpec, Limits, Runtime, SessionPlace
from jackfield.errors import NotFound, RolledBack, RuntimeFailed, UsageError
from jackfield.host.workshop.indexes import npm_arguments, pip_sources, proxies
from jackfield.ids import SessionId, new_id
from jackfield.mailbox import SessionFolder
from jackfield.models import AgentGroup, RunnerSpec
from jackfield.models.packages import Manager, Packages

__all__ = ["BUILT", "SECONDS", "Bench", "bench_for", "build", "refuse_apt"]

BUILT: tuple[Manager, ...] = ("npm", "pip")
"""The package managers that install into a folder."""
SECONDS = 300.0
"""How long one package manager may work."""
_OUTPUT = 256 * 1024
_SAID = 1200
_NOISE = ("WARNING", "[notice]", "npm error A complete log")
_PIP = (
    "--only-binary=:all:",
    "--no-cache-dir",
    "--no-input",
    "--disable-pip-version-check",
    "--progress-bar=off",
    "--no-warn-script-location",
)
_UV = (
    "--only-binary=:all:",
    "--no-cache",
    "--link-mode=copy",
    "--no-config",
    "--no-progress",
    "--quiet",
    "--python",
    "python3",
)
_UV_CALLS = {"trusted-host": "allow-insecure-host"}
_NPM = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", "--omit=dev")
_NO_LINKS = r"""
const fs = require("fs"), path = require("path"), folder = process.argv[1];
for (const name of fs.existsSync(folder) ? fs.readdirSync(folder) : []) {
  const file = path.join(folder, name);
  if (!fs.lstatSync(file).isSymbolicLink()) continue;
  const target = fs.readlinkSync(file);
  fs.unlinkSync(file);
  if (/^[\w@.\/-]+$/.test(target))
    fs.writeFileSync(file, `#!/bin/sh\nexec "$(dirname "$0")/${target}" "$@"\n`, { mode: 0o755 });
}
"""
"""npm makes links to programs; backups and exports hold no links, so they become files that start them."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A folder for one installation, laid out like a group and a session so that a runtime can work in it."""

    place: SessionPlace
    runtime: Runtime
    runner: RunnerSpec
    limits: Limits

    async def run(self, argv: Sequence[str], environment: dict[str, str], seconds: float) -> Completed:
        """One command in the sandbox.

        Raises:
            RuntimeFailed: it can't be started.
        """
        spec = LaunchSpec(
            place=self.place,
            runner=self.runner,
            image=await self.runtime.prepare(self.place.group),
            limits=self.limits,
            environment=environment,
        )
        return await self.runtime.run(spec, argv, b"", seconds, _OUTPUT)


@asynccontextmanager
async def bench_for(
    group: AgentGroup, folder: Path, runtime: Runtime, limits: Limits, install_id: str
) -> AsyncIterator[Bench]:
    """A fresh bench in `folder`, which is gone afterwards."""
    session_id = SessionId(new_id("ses"))
    root = folder / session_id
    place = SessionPlace(
        session_id=session_id,
        folder=root / "session",
        group=GroupPlace(agent_group_id=group.id, folder=root / "group"),  # the same uid, another folder
    )
    runner = RunnerSpec(
        session_id=session_id,
        agent_group_id=group.id,
        epoch=0,
        install_id=install_id,
        agent_name=group.name,
        provider="",
        paths=runtime.paths(place),
    )
    try:
        await asyncio.to_thread(_make, root, place)
        yield Bench(place, runtime, runner, limits)
    finally:
        await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)


def _make(root: Path, place: SessionPlace) -> None:
    root.parent.mkdir(mode=0o700, exist_ok=True)
    root.mkdir(mode=0o700)
    place.group.workspace.mkdir(mode=0o700, parents=True)
    SessionFolder(place.folder).create()


def refuse_apt(wanted: Packages, recorded: Packages) -> None:
    """Packages of the operating system come with an image; what is recorded already, an operator answers for.

    Raises:
        UsageError: there are others.
    """
    more = [one for one in wanted.apt if one not in recorded.apt]
    if more:
        raise UsageError(
            f"{', '.join(more)} can't be installed for this agent: its runtime has the machine's own packages",
            fix="its operator can install it on the machine; apt is for runtimes with images of their own",
        )


async def build(bench: Bench, manager: Manager, packages: Sequence[str], seconds: float = SECONDS) -> Path:
    """Install the packages, and nothing else, into a fresh folder; where it lies.

    Raises:
        NotFound: that package manager is not there.
        RolledBack: it failed; its own words are in the message.
    """
    folder = f"{bench.runner.paths.workspace}/{manager}"
    environment = proxies(os.environ)
    done: Completed | None = None
    for argv in _commands(manager, folder, packages):
        try:
            done = await bench.run(argv, environment, seconds)
        except RuntimeFailed as problem:
            if "there is no program" not in problem.message:
                raise
            continue
        break
    if done is None:
        raise NotFound(f"there is no {manager} where this agent runs", fix=f"install {manager} on the machine")
    if done.timed_out:
        raise RolledBack(f"{manager} did not end within {seconds:g} s; nothing was changed")
    if done.exit_code != 0:
        raise RolledBack(
            f"{manager} could not install {', '.join(packages)}; nothing was changed. It said: {_words(done)}",
            fix="check the names; pip takes wheels only, what must be built from source can't be installed"
            if manager == "pip"
            else "check the names",
        )
    if manager == "npm":
        await bench.run(["node", "-e", _NO_LINKS, f"{folder}/node_modules/.bin"], {}, seconds)
    built = bench.place.group.workspace / manager
    await asyncio.to_thread(_check, built)
    return built


def _commands(manager: Manager, folder: str, packages: Sequence[str]) -> list[list[str]]:
    """What may be tried, the first that is there is taken.  No shell; each name is an argument, behind `--`.

    uv does what pip does in a fraction of the time, but few machines have it.
    """
    if manager == "npm":
        options = [*_NPM, *npm_arguments(os.environ), "--prefix", folder]
        return [["npm", "install", *options, "--", *packages]]
    pip = ["python3", "-m", "pip", "install", *_PIP]
    uv = ["uv", "pip", "install", *_UV]
    for key, value in pip_sources(os.environ):
        pip += [f"--{key}", value]
        uv += [f"--{_UV_CALLS.get(key, key)}", value]
    return [[*tool, "--target", folder, "--", *packages] for tool in (uv, pip)]


def _check(built: Path) -> None:
    """What the sandbox made is moved by the host: it must be a folder, and not a way to another one."""
    try:
        kind = built.lstat().st_mode
    except OSError as problem:
        raise RolledBack(f"the installation left nothing behind: {problem}; nothing was changed") from problem
    if not stat.S_ISDIR(kind):
        raise RolledBack(f"the installation left something else than a folder at {built.name}; nothing was changed")


def _words(done: Completed) -> str:
    """The end of what it said, fit for a log and a chat."""
    text = (done.stderr.strip() or done.stdout.strip()).decode("utf-8", "replace")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    lines = ["".join(c for c in line if c.isprintable()).strip() for line in text.splitlines()]
    told = [line for line in lines if line and not line.startswith(_NOISE)]
    return "\n".join(told)[-_SAID:] or f"nothing (exit code {done.exit_code})"
