"""The host: all its rooms joined, started in order, stopped in order.

Start: configuration -> lock -> store -> leftovers of the last life (open sends, runners, claims) -> control socket ->
channels -> accepted events.  Nothing that a plugin does keeps the host from becoming ready.  Stop: no more intake,
runners ended or left for the next host, sends finished within a grace, store closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from jackfield.clock import Clock, SystemClock
from jackfield.config.home import Home
from jackfield.config.load import load, remember_good
from jackfield.errors import NotInitialised, StoreError
from jackfield.host.control import ControlServer
from jackfield.host.hub import Hub
from jackfield.host.live import LiveHost
from jackfield.host.ownership import own
from jackfield.host.registration.claiming import unowned
from jackfield.host.services import OPERATIONS, Args, ServiceContext
from jackfield.ids import new_id
from jackfield.mailbox import MailboxPool
from jackfield.plugins import PluginRegistry
from jackfield.store import Store, notes

__all__ = ["HostReport", "open_hub", "run_host", "running_host"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HostReport:
    """What `up` prints once the host is ready."""

    pid: int
    home: str
    channels: tuple[tuple[str, str, str], ...]
    """Name, type and state of each."""
    problems: tuple[str, ...]
    """Of the configuration and the plugins; the host runs in spite of them."""
    unowned: tuple[str, ...] = ()
    """The channels beyond the terminal, when nobody of theirs is an owner."""


@contextlib.asynccontextmanager
async def open_hub(
    home: Home, *, safe: bool = False, strict: bool = False, clock: Clock | None = None
) -> AsyncIterator[Hub]:
    """The home's configuration, store and plugins, ready for work.  The caller holds the lock.

    All that only reads comes before anything that writes, so that a refused start changes nothing (C202).

    Raises:
        NotInitialised: there is no home.
        ConfigError: the configuration can't be used at all, or has any problem and `strict` is set.
        StoreNewer: the store was written by a newer version.
    """
    if not home.initialised:
        raise NotInitialised(f"there is no Jackfield home at {home.root}", fix="make one with `jackfield init`")
    configuration = await asyncio.to_thread(load, home, strict=strict)
    _refuse_lost_store(home)
    clock = clock or SystemClock()
    plugins = PluginRegistry(state_file=home.plugins / "broken.json", safe=safe, strict=strict)
    store = Store(home.state_db, clock, backups=home.backups)
    await store.open()
    mailboxes = MailboxPool(clock)
    hub = Hub(
        home=home,
        clock=clock,
        store=store,
        mailboxes=mailboxes,
        plugins=plugins,
        configuration=configuration,
        install_id="",
    )
    hub.gateways.settled = False
    try:
        hub.install_id = await store.write(_install_id)
        await hub.vault.open()
        yield hub
    finally:
        await mailboxes.close()
        await store.close()


def _refuse_lost_store(home: Home) -> None:
    """An empty or missing `state.db` beside sessions is no new home: a fresh one would forget everything.

    Raises:
        StoreError: that is how it looks.
    """
    try:
        size = home.state_db.stat().st_size
    except FileNotFoundError:
        size = 0
    if size == 0 and home.sessions.is_dir() and any(home.sessions.iterdir()):
        raise StoreError(
            f"{home.state_db} is empty or missing, but {home.sessions} holds conversations",
            fix=f"put a copy back (see {home.backups}), or move {home.sessions} away to begin anew",
        )


def _install_id(db: object) -> str:
    import sqlite3

    assert isinstance(db, sqlite3.Connection)
    known = notes.get(db, "install_id")
    if known is None:
        known = new_id("ins")
        notes.set(db, "install_id", known)
    return known


def _begin_life(db: object) -> int:
    import sqlite3

    assert isinstance(db, sqlite3.Connection)
    epoch = int(notes.get(db, "host_epoch") or "0") + 1
    notes.set(db, "host_epoch", str(epoch))
    notes.set(db, "host_pid", str(os.getpid()))
    return epoch


@contextlib.asynccontextmanager
async def running_host(
    home: Home,
    *,
    safe: bool = False,
    strict: bool = False,
    clock: Clock | None = None,
    wait_for_lock: float = 0.0,
    stop: asyncio.Event | None = None,
) -> AsyncIterator[LiveHost]:
    """A host that runs for the block, with everything of `jackfield up` but signals.

    Raises:
        HostRunning: another host has this home.
        SecretsLocked: the stored secrets need another master key than the one that lies there; nothing was changed.
    """
    if not home.initialised:
        raise NotInitialised(f"there is no Jackfield home at {home.root}", fix="make one with `jackfield init`")
    stop = stop or asyncio.Event()
    with own(home, wait=wait_for_lock):
        async with open_hub(home, safe=safe, strict=strict, clock=clock) as hub:
            hub.vault.require()
            hub.epoch = await hub.store.write(_begin_life)
            live = LiveHost(hub, request_stop=stop.set, stop_requested=stop)
            context = ServiceContext(hub, live)

            def operation(name: str) -> Callable[[dict[str, object]], object] | None:
                service = OPERATIONS.get(name)
                return None if service is None else (lambda args: service(context, Args(args)))

            # Services say `dict[str, object]` where control says `Any`, and their results are awaited there.
            control = ControlServer(home, operation, live.attach)  # type: ignore[arg-type]  # an operation takes JSON
            try:
                await live.start()
                await control.open()
                await asyncio.to_thread(remember_good, hub.configuration)
                yield live
            finally:
                await control.close()
                await live.stop()


async def run_host(
    home: Home, *, safe: bool = False, strict: bool = False, ready: Callable[[HostReport], None] = lambda report: None
) -> int:
    """Run a host until a signal or `jackfield down` ends it; the exit code.

    SIGTERM and SIGINT stop it cleanly; SIGHUP reads the configuration again.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # From the first moment: a host that is told to stop while it starts must stop cleanly, too.
        loop.add_signal_handler(number, stop.set)
    async with running_host(home, safe=safe, strict=strict, stop=stop) as live:
        loop.add_signal_handler(signal.SIGHUP, live.reload_soon)
        ready(
            HostReport(
                pid=os.getpid(),
                home=str(home.root),
                channels=tuple((item.name, item.type, str(item.status.state)) for item in live.channels.all()),
                problems=live.problems(),
                unowned=tuple(await unowned(live.hub)),
            )
        )
        log.info("the host is ready (process %d, home %s)", os.getpid(), home.root)
        await stop.wait()
        log.info("the host stops")
    return 0
