"""What this machine isolates, proved by a run and never by looking for a program or a version.

Each candidate, from the best down, is used to start `launch/escape.py` in a home made for it.  A level is reached when
everything that it promises held and everything that a runner needs worked.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jackfield.api import GroupPlace, Isolation, Limits, RuntimeHealth, SessionPlace
from jackfield.errors import RuntimeFailed
from jackfield.ids import AgentGroupId, SessionId
from jackfield.mailbox.doorbell import short_address
from jackfield.process import environment, ownership
from jackfield.process.launch import seccomp
from jackfield.process.oneshot import run_once
from jackfield.process.settings import IsolationChoice, ProcessSettings
from jackfield.process.view import NOTHING, Command, Confinement, make_plan, session_view

__all__ = ["Proof", "candidates", "judge", "prove"]

_BOUND = 20.0
_ESCAPE = Path(__file__).with_name("launch") / "escape.py"

NEEDED = (
    "read_code", "read_session", "read_inbound", "read_group", "write_outbound", "write_heartbeat", "write_outbox",
    "write_workspace", "write_memory", "write_temporary", "write_null",
)  # fmt: skip
"""What a runner can't work without, at every level."""

FILES_HELD = (
    "write_inbound", "write_spec", "replace_outbound", "make_in_session", "make_in_group", "read_agent_toml",
    "write_agent_toml", "write_code", "read_other_session", "read_other_group", "read_master_key", "list_home",
    "read_elsewhere", "write_elsewhere", "read_shadow", "write_kernel_setting", "read_host_environ",
    "open_host_memory", "be_root", "have_capabilities", "become_root", "mount", "reach_host_socket",
)  # fmt: skip
"""What must fail at `restricted` and better."""

PROCESSES_HELD = ("see_host", "signal_host", "new_user_namespace")
"""What must fail besides at `namespaces`."""


@dataclass(frozen=True, slots=True)
class Proof:
    confinement: Confinement
    health: RuntimeHealth


def candidates(choice: IsolationChoice, *, linux: bool, root: bool, landlock: int, filters: bool) -> list[Confinement]:
    """What to try, from the best down: a pure function of the machine's properties."""
    if choice == "none":
        return [NOTHING]
    out = []
    if linux and choice in ("auto", "namespaces"):
        out.append(
            Confinement(
                isolation=Isolation.NAMESPACES,
                own_uid=root,
                namespaces=True,
                user_namespace=not root,
                landlock=landlock > 0,
                seccomp=filters,
            )
        )
    if linux and landlock and choice in ("auto", "restricted"):
        out.append(Confinement(isolation=Isolation.RESTRICTED, own_uid=root, landlock=True, seccomp=filters))
    if choice == "auto":
        # As root never with the host's own rights unless somebody asks for it by name.
        out.append(Confinement(isolation=Isolation.NONE, own_uid=root))
    return out


def judge(confinement: Confinement, found: Mapping[str, bool], *, network: bool) -> list[str]:
    """What speaks against the level: a pure function of what the probe could do."""
    problems = [f"could not {_words(name)}" for name in NEEDED if not found.get(name)]
    forbidden: tuple[str, ...] = ()
    if confinement.isolation is not Isolation.NONE:
        forbidden = FILES_HELD
    if confinement.isolation is Isolation.NAMESPACES:
        forbidden += PROCESSES_HELD
    if not network:
        forbidden += ("reach_network",)
    problems += [f"could {_words(name)}" for name in forbidden if found.get(name, True)]
    return problems


def _words(name: str) -> str:
    return name.replace("_", " ")


async def prove(settings: ProcessSettings, folder: Path, *, uid: int | None) -> Proof:
    """The best level that the settings ask for and a run has shown to hold.

    `uid` is the one to try as, when the host is root.  A proof is kept for the life of this process; one of a level
    that depends on the modes of the folders above the home, only for that home.
    """
    keys: list[tuple[ProcessSettings, int, Path | None]] = [
        (settings, os.geteuid(), None),
        (settings, os.geteuid(), folder),
    ]
    for key in keys:
        if key in _proved:
            return _proved[key]
    proof = await asyncio.to_thread(_prove, settings, folder, uid)
    _proved[keys[0] if proof.confinement.namespaces else keys[1]] = proof
    return proof


_proved: dict[tuple[ProcessSettings, int, Path | None], Proof] = {}


def _prove(settings: ProcessSettings, folder: Path, uid: int | None) -> Proof:
    linux = sys.platform.startswith("linux")
    abi = 0
    if linux:
        from jackfield.process.launch import calls

        abi = calls.landlock_abi()
    failures: list[str] = []
    for one in candidates(
        settings.isolation, linux=linux, root=uid is not None, landlock=abi, filters=linux and seccomp.supported()
    ):
        if one == NOTHING:
            return Proof(one, _health_of_nothing(settings, failures))
        try:
            found = _attempt(one, folder, uid if one.own_uid else None, settings)
        except RuntimeFailed as error:
            failures.append(f"{_short(one)}: {error}")
            continue
        problems = judge(one, found, network=settings.network)
        if not problems:
            detail = "; ".join([_describe(one, abi, found, settings), *failures])
            return Proof(one, RuntimeHealth(ok=True, isolation=one.isolation, detail=detail))
        failures.append(f"{_short(one)}: the probe {', '.join(problems)}")
    return Proof(
        NOTHING,
        RuntimeHealth(
            ok=False,
            isolation=Isolation.NONE,
            detail="; ".join(failures) or f"this system has no means for isolation = {settings.isolation!r}",
            fix='run the host as an ordinary user, or install the docker runtime, or set isolation = "none" in '
            "[runtimes.process] to run agents with the host's own rights",
        ),
    )


def _health_of_nothing(settings: ProcessSettings, failures: list[str]) -> RuntimeHealth:
    why = ['isolation = "none" is set'] if settings.isolation == "none" else failures
    rights = "root's rights" if os.geteuid() == 0 else "the rights of your account"
    return RuntimeHealth(ok=True, isolation=Isolation.NONE, detail="; ".join([*why, f"runners have {rights}"]))


def _short(one: Confinement) -> str:
    return "namespaces" if one.namespaces else "Landlock" if one.landlock else "separate uid"


def _describe(one: Confinement, abi: int, found: Mapping[str, bool], settings: ProcessSettings) -> str:
    means = []
    if one.namespaces:
        means.append("user and other namespaces" if one.user_namespace else "mount, process and IPC namespaces")
    if one.own_uid:
        means.append("a uid of its own for each agent group")
    if one.landlock:
        means.append(f"Landlock {abi}")
    if one.seccomp:
        means.append("a system call filter")
    gaps = [text for name, text in _GAPS.items() if found.get(name)]
    said = f"proved by a run: {', '.join(means) or 'nothing is held back'}"
    return f"{said}; runners can {', '.join(gaps)}" if gaps else said


_GAPS = {
    "reach_network": "reach the network and this machine's own ports",
    "see_host": "see other processes",
    "signal_host": "signal the host",
    "reach_abstract_socket": "reach abstract sockets",
}


def _attempt(one: Confinement, folder: Path, uid: int | None, settings: ProcessSettings) -> dict[str, bool]:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    top = Path(tempfile.mkdtemp(prefix="probe-", dir=folder))
    (top / "home").mkdir(mode=0o700)
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listening,
            _listening_at(top / "home" / "host.sock"),
            _listening(f"\0{top.name}"),
        ):
            return _attempt_in(top, one, uid, settings, listening.getsockname()[1])
    finally:
        shutil.rmtree(top, ignore_errors=True)


@contextmanager
def _listening_at(path: Path) -> Iterator[None]:
    with short_address(path) as address, _listening(address):
        path.chmod(0o600)
        yield


@contextmanager
def _listening(address: str) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        yield


def _attempt_in(top: Path, one: Confinement, uid: int | None, settings: ProcessSettings, port: int) -> dict[str, bool]:
    place, other = (_make_place(top / "home", name) for name in ("one", "other"))
    (top / "home" / "master.key").write_text("secret", encoding="utf-8")
    elsewhere = top / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    (elsewhere / "secret").write_text("secret", encoding="utf-8")
    temporary = top / "tmp"
    temporary.mkdir(mode=0o700)
    if uid is not None:
        ownership.give_group(place.group, uid)
        ownership.give_session(place, uid)
        os.chown(temporary, uid, uid)
        if not one.namespaces:
            ownership.open_folders(top.parents[3], place.folder, place.group.folder, temporary, elsewhere)
    in_view = "/tmp" if one.namespaces else str(temporary)
    code = environment.interpreter_paths()
    where = {
        "host": os.getpid(),
        "port": port,
        "home": str(top / "home"),
        "session": str(place.folder),
        "group": str(place.group.folder),
        "other_session": str(other.folder),
        "other_group": str(other.group.folder),
        "elsewhere": str(elsewhere),
        "abstract": top.name,
        "code": code,
    }
    mark = environment.mark_of("probe", top.name, 0)
    command = Command(
        argv=[sys.executable, "-I", "-S", str(_ESCAPE), json.dumps(where)],
        environment=environment.clean_environment(os.environ, home=place.group.workspace, temporary=in_view, mark=mark),
    )
    view = session_view(place, code=code, readable=[str(path) for path in settings.readable], temporary=in_view)
    plan = make_plan(command, view, one, limits=Limits(), uid=uid, network=settings.network)
    done = run_once(
        plan, mark, b"", timeout=_BOUND, output_limit=65_536, launch_timeout=_BOUND, cancelled=threading.Event()
    )
    try:
        found = json.loads(done.stdout)
        return {str(name): bool(could) for name, could in found.items()}
    except (ValueError, AttributeError):
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["nothing"]
        raise RuntimeFailed(f"the interpreter did not run (exit code {done.exit_code}, it said: {said[0]})") from None


def _make_place(home: Path, name: str) -> SessionPlace:
    group, session = home / "groups" / name, home / "sessions" / f"ag_{name}" / f"ses_{name}"
    for folder in (group / "workspace", group / "memory", session / "inbox", session / "outbox"):
        folder.mkdir(parents=True, mode=0o700)
    for file in (
        *(group / known for known in ("AGENTS.md", "agent.toml")),
        *(
            session / known
            for known in ("inbound.db", "outbound.db", "outbound.db-journal", "heartbeat", "session.json")
        ),
    ):
        file.write_text("x", encoding="utf-8")
        file.chmod(0o600)
    return SessionPlace(
        session_id=SessionId(f"ses_{name}"),
        folder=session,
        group=GroupPlace(agent_group_id=AgentGroupId(f"ag_{name}"), folder=group),
    )
