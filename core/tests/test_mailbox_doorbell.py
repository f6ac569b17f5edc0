"""The doorbell (architecture 6; runtime.md 3.3, 3.8)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from jackfield.errors import MailboxDamaged, NoHost
from jackfield.mailbox import HostBell, RunnerBell, SessionFolder, doorbell
from jackfield.mailbox.doorbell import peer_uid_of, short_address

CHILD = """
import asyncio, sys
from pathlib import Path
from jackfield.mailbox import RunnerBell, SessionFolder
async def main():
    bell = RunnerBell(on_ring=lambda: bell.ring(), on_gone=lambda: None)
    await bell.connect(SessionFolder(Path(sys.argv[1])))
    bell.ring()
    await asyncio.sleep(60)
asyncio.run(main())
"""


class Counter:
    """Counts calls, and lets a test wait for them."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._changed.set()

    async def reaches(self, count: int) -> None:
        async with asyncio.timeout(30):
            while self.count < count:
                self._changed.clear()
                await self._changed.wait()


class Ends:
    """A host's end that listens, and its counters."""

    def __init__(self, folder: SessionFolder, peer_uid: int | None = None) -> None:
        self.folder = folder
        self.rings, self.gone = Counter(), Counter()
        self.host = HostBell(folder, on_ring=self.rings, on_gone=self.gone, peer_uid=peer_uid)


class Guest:
    """A runner's end, and its counters."""

    def __init__(self) -> None:
        self.rings, self.gone = Counter(), Counter()
        self.bell = RunnerBell(on_ring=self.rings, on_gone=self.gone)


@pytest.fixture(params=["short", "long"])
async def ends(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ends]:
    root = tmp_path / "s"
    if request.param == "long":
        root = tmp_path / ("long" * 30) / ("path" * 30) / "ses"
    folder = SessionFolder(root)
    folder.create()
    made = Ends(folder)
    await made.host.open()
    yield made
    await made.host.close()


async def connected(ends: Ends) -> Guest:
    guest = Guest()
    await guest.bell.connect(ends.folder)
    await ends.rings.reaches(1)
    return guest


async def test_both_sides_hear_each_other_also_over_a_path_that_no_socket_takes(ends: Ends) -> None:
    guest = await connected(ends)
    assert ends.host.connected and not guest.bell.closed
    guest.bell.ring()
    await ends.rings.reaches(2)
    ends.host.ring()
    await guest.rings.reaches(1)
    assert ends.folder.bell.stat().st_mode & 0o777 == 0o600
    await guest.bell.close()
    await ends.gone.reaches(1)
    assert not ends.host.connected
    assert guest.rings.count == 1 and guest.gone.count == 0  # its own hanging up is no news


async def test_the_runner_rings_from_whichever_thread_has_written(ends: Ends) -> None:
    guest = await connected(ends)
    await asyncio.to_thread(guest.bell.ring)
    await ends.rings.reaches(2)
    await guest.bell.close()
    await ends.gone.reaches(1)
    await asyncio.to_thread(guest.bell.ring)  # into the void


async def test_the_host_rings_from_whichever_thread_has_written(ends: Ends) -> None:
    guest = await connected(ends)
    before = guest.rings.count
    await asyncio.to_thread(ends.host.ring)
    await guest.rings.reaches(before + 1)
    await ends.host.close()
    await guest.gone.reaches(1)  # nothing of the connection is left open
    await asyncio.to_thread(ends.host.ring)  # into the void


async def test_ringing_nobody_does_nothing(ends: Ends) -> None:
    ends.host.ring()
    Guest().bell.ring()
    assert not ends.host.connected


async def test_the_death_of_a_runner_is_heard_at_once(ends: Ends) -> None:
    process = subprocess.Popen([sys.executable, "-c", CHILD, str(ends.folder.root)])
    try:
        await ends.rings.reaches(2)  # it came, it rang
        ends.host.ring()
        await ends.rings.reaches(3)
        assert ends.gone.count == 0
        process.send_signal(signal.SIGKILL)
        await ends.gone.reaches(1)
        assert not ends.host.connected
    finally:
        process.kill()
        process.wait(30)


async def test_the_runner_hears_that_its_host_went_and_finds_the_next_one(ends: Ends) -> None:
    guest = await connected(ends)
    bell = guest.bell
    await ends.host.close()
    await guest.gone.reaches(1)
    assert bell.closed
    bell.ring()
    with pytest.raises(NoHost):
        await bell.connect(ends.folder)
    again = Ends(ends.folder)
    await again.host.open()
    await bell.connect(ends.folder)
    await again.rings.reaches(1)
    assert not bell.closed
    assert ends.gone.count == 0  # its own hanging up is no death
    await bell.close()
    await again.host.close()


async def test_a_socket_that_a_dead_host_left_is_replaced(ends: Ends) -> None:
    await ends.host.close()
    ends.folder.bell.symlink_to("/etc/passwd")
    await ends.host.open()
    assert not ends.folder.bell.is_symlink()
    assert Path("/etc/passwd").exists()
    guest = await connected(ends)
    await guest.bell.close()


async def test_a_folder_in_the_place_of_the_socket_is_a_damaged_mailbox(ends: Ends) -> None:
    await ends.host.close()
    (ends.folder.bell / "sub").mkdir(parents=True)
    with pytest.raises(MailboxDamaged, match=r"bell\.sock"):
        await ends.host.open()


async def test_a_new_runner_takes_the_place_of_an_old_one(ends: Ends) -> None:
    old = await connected(ends)
    new = Guest().bell
    await new.connect(ends.folder)
    await ends.rings.reaches(2)
    await old.gone.reaches(1)
    assert old.bell.closed
    assert ends.gone.count == 0 and ends.host.connected
    new.ring()
    await ends.rings.reaches(3)
    await new.close()
    await ends.gone.reaches(1)


async def test_another_users_process_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what the kernel says of the peer is made up here; below, a real one of another user tries it."""
    folder = SessionFolder(tmp_path / "s")
    folder.create()
    ends = Ends(folder, peer_uid=os.geteuid())
    await ends.host.open()
    monkeypatch.setattr(doorbell, "peer_uid_of", lambda connection: os.geteuid() + 1)
    stranger = Guest()
    await stranger.bell.connect(folder)
    await stranger.gone.reaches(1)
    assert stranger.bell.closed and stranger.rings.count == 0
    assert not ends.host.connected
    assert ends.rings.count == 0 and ends.gone.count == 0

    monkeypatch.undo()
    guest = await connected(ends)
    assert ends.host.connected
    await guest.bell.close()
    await ends.host.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
@pytest.mark.parametrize(("uid", "let_in"), [(65534, True), (65533, False), (0, True)])
async def test_only_the_runners_user_and_our_own_are_let_in(tmp_path: Path, uid: int, let_in: bool) -> None:
    folder = SessionFolder(tmp_path / "s")
    folder.create()
    ends = Ends(folder, peer_uid=65534)
    await ends.host.open()
    folder.bell.chmod(0o666)
    script = """
import os, socket, sys
os.chdir(sys.argv[1])
line = socket.socket(socket.AF_UNIX)
os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
line.connect("bell.sock")
line.settimeout(30)
try:
    line.sendall(b"!")
    got = line.recv(1)
except (ConnectionResetError, BrokenPipeError):
    got = b""
print(got)
"""
    for path in (folder.root, *folder.root.parents):
        if path == Path("/tmp"):
            break
        path.chmod(0o755)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(folder.root), str(uid), stdout=asyncio.subprocess.PIPE
    )
    if let_in:
        await ends.rings.reaches(2)
        ends.host.ring()
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    assert out == (b"b'!'\n" if let_in else b"b''\n")
    if not let_in:
        assert ends.rings.count == 0 and ends.gone.count == 0
    await ends.host.close()


async def test_a_runner_that_never_reads_costs_no_memory(ends: Ends) -> None:
    with short_address(ends.folder.bell) as address:
        line = socket.socket(socket.AF_UNIX)
        line.connect(address)
    await ends.rings.reaches(1)
    for _ in range(500_000):
        ends.host.ring()
    current = ends.host._line
    assert current is not None and current._transport is not None
    assert current._transport.get_write_buffer_size() <= 1
    line.close()
    await ends.gone.reaches(1)


async def test_a_runner_that_rings_all_the_time_is_heard_now_and_then(ends: Ends) -> None:
    with short_address(ends.folder.bell) as address:
        line = socket.socket(socket.AF_UNIX)
        line.connect(address)
    line.setblocking(False)
    await ends.rings.reaches(1)
    sent = 0
    for _ in range(2000):
        with suppress(BlockingIOError):
            sent += line.send(b"!" * 1000)
        await asyncio.sleep(0)
    await ends.rings.reaches(2)
    assert ends.rings.count < 1000
    line.close()
    await ends.gone.reaches(1)


def test_the_peers_user_is_told() -> None:
    one, other = socket.socketpair()
    assert peer_uid_of(one) in (os.geteuid(), None)
    one.close()
    other.close()


def test_a_long_path_works_through_the_working_directory_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a system without /proc."""
    place = tmp_path / ("long" * 30)
    place.mkdir()
    is_dir: Callable[[Path], bool] = Path.is_dir
    monkeypatch.setattr(Path, "is_dir", lambda path: str(path) != "/proc/self/fd" and is_dir(path))
    before = os.getcwd()
    with short_address(place / "bell.sock") as address:
        assert address == "bell.sock"
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(address)
        listening.close()
    assert os.getcwd() == before
    assert (place / "bell.sock").exists()
