"""A whole exchange for benchmarks: a real host with real runners, and a channel inside this process.

The channel is registered as any plugin's would be, by a distribution that is made on the fly.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from jackfield.config.home import Home
from jackfield.host.application import running_host
from jackfield.host.live import LiveHost
from jackfield.host.services import OPERATIONS, Args, ServiceContext
from jackfield.testing.distributions import make_distribution

from benchmarks.bare import refuse_tmpfs
from benchmarks.channel import BENCH, Bench

__all__ = ["BENCH", "Bench", "exchange", "make_home", "rss_mb"]

MODULE = """
from jackfield.api import hookimpl

@hookimpl
def register_channels():
    from benchmarks.channel import BENCH
    return [BENCH.kind()]
"""


def make_home(root: Path, *, max_runners: int, idle_exit: float = 600.0, extra: str = "") -> Home:
    """A home with the group `bench`, answered by the mock provider, and the channel of this module."""
    home = Home.find(str(root / "home"))
    environment = dict(os.environ, JACKFIELD_HOME=str(home.root))
    subprocess.run(
        [sys.executable, "-m", "jackfield.cli", "init", "--name", "bench", "--provider", "mock"],
        check=True, env=environment, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    toml = home.jackfield_toml.read_text(encoding="utf-8")
    head = f"\nmax_runners = {max_runners}\nidle_exit = {idle_exit}\nmessages_per_minute = 1000000\nloop_turns = 0\n"
    toml = toml.replace("[host]", "[host]" + head, 1) if "\n[host]" in toml else f"[host]{head}\n{toml}"
    home.jackfield_toml.write_text(f'{toml}\n[channels.bench]\ntype = "bench"\n{extra}', encoding="utf-8")
    return home


@contextlib.asynccontextmanager
async def exchange(*, max_runners: int = 4, idle_exit: float = 600.0) -> AsyncIterator[tuple[LiveHost, Bench, Path]]:
    """A running exchange below `BENCH_FOLDER` (default: benchmarks/out), removed afterwards."""
    base = Path(os.environ.get("BENCH_FOLDER", Path(__file__).parent / "out"))
    base.mkdir(parents=True, exist_ok=True)
    refuse_tmpfs(base)
    root = Path(tempfile.mkdtemp(prefix="bench-", dir=base))
    site = root / "site"
    make_distribution(
        site,
        "jackfield-bench",
        entry_points={"jackfield.channels": {"bench": "jackfield_bench_channel"}},
        files={"jackfield_bench_channel.py": MODULE},
    )
    sys.path.insert(0, str(site))
    try:
        home = make_home(root, max_runners=max_runners, idle_exit=idle_exit)
        async with running_host(home) as live:
            yield live, BENCH, root
    finally:
        sys.path.remove(str(site))
        shutil.rmtree(root, ignore_errors=True)


def rss_mb(pid: int | str = "self") -> float:
    """Resident memory of a process in MB."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def change_counter(database: Path) -> int:
    """How often a rollback-journal database was changed: bytes 24 to 27 of its header."""
    with database.open("rb") as file:
        file.seek(24)
        return int.from_bytes(file.read(4), "big")


async def wire(live: LiveHost, chat: str, **options: str) -> None:
    """Wire a chat of the benchmark's channel to the group `bench`; always engaging unless the options say otherwise."""
    args: dict[str, Any] = {"chat": f"bench:bench:{chat}", "group": "bench", "engage": "always", "policy": "public"}
    await OPERATIONS["wire.add"](ServiceContext(live.hub, live), Args(args | options))
