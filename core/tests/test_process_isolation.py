"""What a runner can't do, at each level, tried by runs.

The table of outcomes is the promise of `docs/runtimes/process.md`; the tests below it try what the probe doesn't.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from jackfield.api import Completed, GroupPlace, Isolation, Limits, SessionPlace
from jackfield.errors import RuntimeFailed
from jackfield.ids import AgentGroupId
from jackfield.mailbox import SessionFolder
from jackfield.process import accounts, ownership, probe, view
from jackfield.process.launch import seccomp
from jackfield.process.runtime import ProcessRuntime
from jackfield.process.settings import ProcessSettings
from jackfield.testing.runtimes import BOUND, BenchContext, make_launch, make_place
from process_kit import ESCAPE, scene

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")
needs_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has these means")

WANTED = frozenset(probe.NEEDED)
OPEN_AT = {
    Isolation.NAMESPACES: WANTED | {"reach_network"},
    Isolation.RESTRICTED: WANTED | {"reach_network", "see_host"},
}
"""All that `launch/escape.py` may be able to do, by level; whatever else it tries must fail."""


class Sandbox:
    """A runtime at the best level that this machine gives, and a session in it."""

    def __init__(self, home: Path, settings: ProcessSettings) -> None:
        self.context = BenchContext(home)
        self.place = make_place(home)
        self.runtime = ProcessRuntime(self.context, settings)

    async def python(
        self, script: str, *, limits: Limits | None = None, place: SessionPlace | None = None
    ) -> Completed:
        spec = make_launch(place or self.place, self.context, limits=limits)
        return await self.runtime.run(spec, [sys.executable, "-c", textwrap.dedent(script)], b"", BOUND)

    async def says(self, script: str) -> str:
        done = await self.python(script)
        assert done.exit_code == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    async def fails(self, statement: str) -> bool:
        """Whether the statement is refused by the system."""
        said = await self.says(
            f"""
            import ctypes, os, signal, socket, sys
            try:
                {statement}
            except OSError as error:
                print("refused", error.errno)
            else:
                print("done")
            """
        )
        return said.startswith("refused")


@pytest.fixture
async def sandbox(tmp_path: Path) -> Sandbox:
    made = Sandbox(tmp_path / "home", ProcessSettings())
    health = await made.runtime.check()
    if health.isolation is Isolation.NONE:
        pytest.skip(f"nothing isolates here: {health.detail}")
    return made


@pytest.mark.parametrize("choice", ["namespaces", "restricted"])
async def test_a_runner_can_do_what_its_level_says_and_nothing_else(tmp_path: Path, choice: str) -> None:
    home = tmp_path / "home"
    sandbox = Sandbox(home, ProcessSettings(isolation=choice))  # type: ignore[arg-type]  # pydantic reads it
    health = await sandbox.runtime.check()
    if not health.ok:
        pytest.skip(health.detail)
    same_group, other_group = make_place(home, group=sandbox.place.group), make_place(home)
    for other in (same_group, other_group):
        with scene(home, sandbox.place, other, other_group) as where:
            spec = make_launch(sandbox.place, sandbox.context)
            done = await sandbox.runtime.run(spec, [sys.executable, str(ESCAPE), where], b"", BOUND)
        found = json.loads(done.stdout)
        assert {name for name, could in found.items() if could} == OPEN_AT[health.isolation]


@needs_root
@pytest.mark.parametrize("choice", ["namespaces", "restricted"])
@pytest.mark.parametrize("user", [0, 1500])
def test_every_level_holds_for_root_and_for_an_ordinary_user(tmp_path: Path, choice: str, user: int) -> None:
    """With an interpreter that everybody can reach, so that also `restricted` can be proved for other uids."""
    python = "/usr/bin/python3"
    version = "import sys; print(sys.version_info[:2])"
    if not Path(python).exists() or subprocess.check_output([python, "-c", version]) != subprocess.check_output(
        [sys.executable, "-c", version]
    ):
        pytest.skip(f"{python} is no Python of this version")
    imports = [str(Path(probe.__file__).parents[2]), *(entry for entry in sys.path if "site-packages" in entry)]
    home = Path("/var/tmp") / f"jackfield-test-{os.getpid()}-{user}-{choice}"
    home.mkdir(mode=0o755)
    os.chown(home, user, user)
    script = """
        import asyncio, sys
        from pathlib import Path
        from jackfield.process.runtime import ProcessRuntime
        from jackfield.process.settings import ProcessSettings
        from jackfield.testing.runtimes import BenchContext
        runtime = ProcessRuntime(BenchContext(Path(sys.argv[1])), ProcessSettings(isolation=sys.argv[2]))
        health = asyncio.run(runtime.check())
        print(health.ok, health.isolation.name, health.detail)
        """
    try:
        said = subprocess.run(
            [python, "-c", textwrap.dedent(script), str(home / "home"), choice],
            user=user,
            group=user,
            extra_groups=[],
            cwd="/",
            env={"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(imports), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            encoding="utf-8",
            timeout=BOUND * 2,
        )
    finally:
        shutil.rmtree(home)
    if "Permission denied" in said.stderr and not said.stdout:
        pytest.skip("the checkout can't be read by other users")
    if "making namespaces" in said.stdout:
        pytest.skip(said.stdout)
    assert said.stdout.startswith(f"True {choice.upper()} proved by a run"), said.stdout + said.stderr


@needs_linux
async def test_a_link_in_the_workspace_leads_nowhere(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    (sandbox.place.group.workspace / "way").symlink_to(tmp_path)
    assert await sandbox.fails("open('way/secret')")


@needs_linux
async def test_a_setuid_program_gives_nothing(sandbox: Sandbox) -> None:
    shutil.copy(shutil.which("id") or "/usr/bin/id", sandbox.place.group.workspace / "id")
    (sandbox.place.group.workspace / "id").chmod(0o4755)
    said = await sandbox.says(
        "import os, subprocess; print(subprocess.check_output(['./id', '-u']).decode() == f'{os.getuid()}\\n')"
    )
    assert said == "True"


@needs_linux
@pytest.mark.parametrize(
    "statement",
    [
        "os.mknod('disk', 0o60600, os.makedev(8, 0))",
        "os.chown('.', 0, 0)",
        "open('/dev/mem', 'rb')",
        "open('/proc/sysrq-trigger', 'w')",
        "open('/sys/kernel/uevent_helper', 'w')",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "socket.socket(40, socket.SOCK_STREAM)",  # vsock
        "os.chroot('.')",
        "os.setgroups([0])",
    ],
)
async def test_the_kernel_refuses(sandbox: Sandbox, statement: str) -> None:
    assert await sandbox.fails(statement)


@needs_linux
async def test_refused_system_calls_fail_and_the_allowed_ones_work(sandbox: Sandbox) -> None:
    if not seccomp.supported():
        pytest.skip("the filter doesn't know this machine type")
    column = 0 if os.uname().machine == "x86_64" else 1
    said = await sandbox.says(
        f"""
        import ctypes, socket, subprocess, threading
        libc = ctypes.CDLL(None, use_errno=True)
        for name, numbers in {seccomp.REFUSED!r}.items():
            ctypes.set_errno(0)
            if libc.syscall(numbers[{column}], -1, 0, 0, 0, 0) != -1 or ctypes.get_errno() != 1:
                print(name, ctypes.get_errno())
        one = threading.Thread(target=lambda: None)
        one.start(); one.join()
        assert subprocess.run(["true"]).returncode == 0
        socket.socket(socket.AF_INET).close(), socket.socket(socket.AF_UNIX).close(), socket.if_nameindex()
        """
    )
    assert said == ""


@needs_linux
async def test_an_abstract_socket_of_the_host_is_not_reached(sandbox: Sandbox) -> None:
    from jackfield.process.launch import calls

    if calls.landlock_abi() < 6:
        pytest.skip("needs Landlock 6")
    name = f"\0jackfield-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(name)
        listening.listen()
        assert await sandbox.fails(f"socket.socket(socket.AF_UNIX).connect({name!r})")


@needs_linux
async def test_a_fork_bomb_ends_at_the_limit(sandbox: Sandbox) -> None:
    if (await sandbox.runtime.check()).isolation is not Isolation.NAMESPACES and os.geteuid() != 0:
        pytest.skip("the uid is shared with the host's user, so the number is not limited")
    script = """
        import os, signal
        made = 0
        try:
            while made < 500:
                if os.fork() == 0:
                    signal.pause()
                made += 1
        except OSError:
            pass
        print(made)
        """
    done = await sandbox.python(script, limits=Limits(processes=40))
    assert 5 < int(done.stdout) < 40


@needs_linux
async def test_address_space_is_limited_when_asked(sandbox: Sandbox) -> None:
    done = await sandbox.python("b'0' * 400_000_000", limits=Limits(memory=300_000_000))
    assert done.exit_code == 1
    assert b"MemoryError" in done.stderr


@needs_linux
async def test_without_a_network_loopback_is_all_there_is(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path / "home", ProcessSettings(network=False))
    health = await sandbox.runtime.check()
    if health.isolation is not Isolation.NAMESPACES:
        pytest.skip(health.detail)
    said = await sandbox.says(
        """
        import socket
        print(*(name for _, name in socket.if_nameindex() if name == "lo" or not name.startswith(("sit", "tunl"))))
        one = socket.create_server(("127.0.0.1", 0))
        socket.create_connection(one.getsockname()).close()
        """
    )
    assert said == "lo"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert await sandbox.fails(f"socket.create_connection({listening.getsockname()!r})")


@needs_root
async def test_files_are_given_to_the_groups_uid_and_no_others(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path / "home", ProcessSettings())
    if not (await sandbox.runtime.check()).ok:
        pytest.skip("no uid can be given")
    place = sandbox.place
    uid = int(await sandbox.says("import os; print(os.getuid())"))
    assert accounts.first_uid("install-one") <= uid < accounts.first_uid("install-one") + accounts.BLOCK
    given = {path.name: path.lstat() for path in (*place.folder.iterdir(), *place.group.folder.iterdir())}
    theirs = {name for name, found in given.items() if found.st_uid == uid}
    assert theirs == {"outbound.db", "outbound.db-journal", "heartbeat", "outbox", "workspace", "memory"}
    assert all(not found.st_mode & 0o007 for found in given.values())
    assert stat.S_IMODE(given["agent.toml"].st_mode) == 0o600
    assert (given["agent.toml"].st_uid, given["agent.toml"].st_gid) == (0, 0)


@needs_linux
async def test_a_file_received_while_the_runner_lives_can_be_read_by_it(sandbox: Sandbox) -> None:
    """With the mailbox's real folder: what is stored after the launch follows what was given at it."""
    folder = SessionFolder(sandbox.place.folder)
    await sandbox.says("")
    path = folder.store_inbox("in_1", "photo.txt", b"received", 100)
    assert await sandbox.says(f"print(open({str(folder.root / path)!r}).read())") == "received"
    assert await sandbox.fails(f"open({str(folder.root / path)!r}, 'a')")


@needs_root
async def test_sessions_of_a_group_share_a_uid_and_groups_do_not(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path / "home", ProcessSettings())
    if not (await sandbox.runtime.check()).ok:
        pytest.skip("no uid can be given")
    same, other = make_place(tmp_path / "home", group=sandbox.place.group), make_place(tmp_path / "home")
    uids = [
        int((await sandbox.python("import os; print(os.getuid())", place=place)).stdout)
        for place in (sandbox.place, same, other)
    ]
    assert uids[0] == uids[1] != uids[2]


@needs_root
def test_a_restored_home_keeps_its_uids_by_who_owns_the_workspace(tmp_path: Path) -> None:
    group = GroupPlace(agent_group_id=AgentGroupId("ag_one"), folder=tmp_path / "g")
    group.workspace.mkdir(parents=True)
    first = accounts.first_uid("i")
    os.chown(group.workspace, first + 77, first + 77)
    found = accounts.Accounts(tmp_path / "uids.json", "i")
    assert found.uid_of(group) == first + 77
    assert accounts.Accounts(tmp_path / "uids.json", "i").all() == {"ag_one": first + 77}


@needs_root
def test_a_link_or_a_file_with_a_second_name_is_never_given_away(tmp_path: Path) -> None:
    place = make_place(tmp_path / "home")
    outside = tmp_path / "outside"
    outside.write_text("root's", encoding="utf-8")
    (place.group.workspace / "link").symlink_to(outside)
    os.link(outside, place.group.workspace / "second")
    (place.folder / "heartbeat").unlink()
    (place.folder / "heartbeat").symlink_to(outside)
    ownership.give_group(place.group, 273_001)
    ownership.give_session(place, 273_001)
    assert (outside.stat().st_uid, stat.S_IMODE(outside.stat().st_mode)) == (0, 0o644)
    assert place.group.workspace.stat().st_uid == 273_001


async def test_a_level_that_is_asked_for_and_not_there_is_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "candidates", lambda *_args, **_more: [])
    monkeypatch.setattr(probe, "_proved", {})
    sandbox = Sandbox(tmp_path / "home", ProcessSettings(isolation="namespaces"))
    health = await sandbox.runtime.check()
    assert (health.ok, health.isolation) == (False, Isolation.NONE)
    with pytest.raises(RuntimeFailed, match="can't be used"):
        await sandbox.python("")


async def test_no_isolation_is_said_in_the_words_of_the_spec(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path / "home", ProcessSettings(isolation="none"))
    health = await sandbox.runtime.check()
    assert health.ok
    assert str(health.isolation) == "NOT ISOLATED: the agent can do everything your account can"


def test_root_without_means_never_keeps_its_rights_unasked() -> None:
    found = probe.candidates("auto", linux=True, root=True, landlock=0, filters=False)
    assert all(one.own_uid for one in found)
    assert probe.candidates("none", linux=True, root=True, landlock=7, filters=True) == [view.NOTHING]


def test_without_linux_there_is_nothing_to_try() -> None:
    (only,) = probe.candidates("auto", linux=False, root=False, landlock=0, filters=False)
    assert only == view.NOTHING
    assert probe.candidates("namespaces", linux=False, root=False, landlock=0, filters=False) == []


@pytest.mark.parametrize("name", [*probe.FILES_HELD, *probe.PROCESSES_HELD])
def test_one_thing_that_does_not_hold_denies_the_level(name: str) -> None:
    good = dict.fromkeys((*probe.FILES_HELD, *probe.PROCESSES_HELD, "reach_network"), False)
    good |= dict.fromkeys(probe.NEEDED, True)
    level = view.Confinement(isolation=Isolation.NAMESPACES)
    assert probe.judge(level, good, network=True) == []
    assert probe.judge(level, good | {name: True}, network=True) != []
    missing = {key: could for key, could in good.items() if key != name}
    assert probe.judge(level, missing, network=True) != []  # not tried is not held


@needs_linux
def test_links_on_the_way_are_found(tmp_path: Path) -> None:
    real = tmp_path / "real" / "deep"
    real.mkdir(parents=True)
    (tmp_path / "one").symlink_to("real")
    (tmp_path / "two").symlink_to(tmp_path / "one" / "deep")
    links, end = view.links_to(str(tmp_path / "two" / ".." / "deep" / "x"))
    assert end == str(real / "x")
    assert [where for where, _ in links] == [str(tmp_path / "two"), str(tmp_path / "one")]


@needs_linux
def test_a_ring_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "ring").symlink_to("ring")
    view.links_to(str(tmp_path / "ring" / "x"))


@needs_linux
async def test_the_shell_command_opens_a_shell_inside(sandbox: Sandbox) -> None:
    argv = await sandbox.runtime.shell(make_launch(sandbox.place, sandbox.context))
    script = f"pwd; test -r /etc/shadow || echo held; cat {sandbox.place.group.folder}/agent.toml; exit 9"
    done = await asyncio.to_thread(
        subprocess.run, argv, input=script, capture_output=True, encoding="utf-8", timeout=BOUND
    )
    assert done.returncode == 9
    assert done.stdout.splitlines() == [str(sandbox.place.group.workspace), "held"]


@pytest.fixture
def recovery(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pytest.importorskip("jackfield.mailbox.recovery")
    yield


@pytest.mark.usefixtures("recovery")
async def test_a_dead_runners_hot_journal_is_rolled_back_in_a_child(tmp_path: Path) -> None:
    """C209: the row that was committed stays as it was, the one that was not is absent."""
    import sqlite3

    sandbox = Sandbox(tmp_path / "home", ProcessSettings())
    await sandbox.runtime.check()
    target = sandbox.place.folder / "outbound.db"
    script = """
        import os, signal, sqlite3
        db = sqlite3.connect(os.environ["TARGET"], isolation_level=None)
        db.execute("PRAGMA journal_mode=TRUNCATE"), db.execute("PRAGMA cache_size=10")
        db.execute("CREATE TABLE m (id INTEGER PRIMARY KEY, body BLOB)")
        db.execute("INSERT INTO m VALUES (1, zeroblob(500000))")
        db.execute("BEGIN")
        db.execute("INSERT INTO m VALUES (2, randomblob(3000000))")
        db.execute("UPDATE m SET body = randomblob(500000) WHERE id = 1")
        os.kill(os.getpid(), signal.SIGKILL)
        """
    spec = make_launch(sandbox.place, sandbox.context, environment={"TARGET": str(target)})
    await sandbox.runtime.run(spec, [sys.executable, "-c", textwrap.dedent(script)], b"", BOUND)
    assert (sandbox.place.folder / "outbound.db-journal").stat().st_size > 0
    await sandbox.runtime.recover(sandbox.place)
    reader = sqlite3.connect(f"file:{target}?mode=ro", uri=True)
    try:
        assert reader.execute("SELECT id, body = zeroblob(500000) FROM m").fetchall() == [(1, 1)]
    finally:
        reader.close()


@pytest.mark.usefixtures("recovery")
async def test_a_mailbox_that_can_not_be_recovered_is_an_error_that_says_why(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path / "home", ProcessSettings())
    (sandbox.place.folder / "outbound.db").write_bytes(b"no database at all, but long enough to be one" * 100)
    with pytest.raises(RuntimeFailed, match="could not be recovered"):
        await sandbox.runtime.recover(sandbox.place)
