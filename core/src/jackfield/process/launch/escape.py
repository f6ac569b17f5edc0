# ruff: noqa: PTH104, PTH108, PTH123, PTH208 - as little as possible imported, as in all of this package
"""Run inside a sandbox by the probe: tries what a runner must not be able to do, and what it must.

Argument: JSON of where things are.  Output: JSON of what could be done, by name.  Every attempt is harmless to the
host, also when it succeeds: files are opened and not changed, signal 0 is sent, no process is stopped.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_CLONE_NEWUSER = 0x10000000


def reads(path: str) -> bool:
    with open(path, "rb") as stream:
        return bool(stream.read(1))


def lists(path: str) -> bool:
    return bool(os.listdir(path))


def opens_to_write(path: str) -> bool:
    os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
    return True


def makes_in(folder: str) -> bool:
    path = f"{folder}/.jackfield-probe"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    os.unlink(path)
    return True


def replaces(path: str) -> bool:
    """Puts a link in place of a file, as a runner that wants the host to follow it would."""
    os.rename(path, path + ".old")
    os.rename(path + ".old", path)
    return True


def signals(pid: int) -> bool:
    os.kill(pid, 0)
    return True


def connects(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.settimeout(2)
        one.connect(("127.0.0.1", port))
    return True


def reaches_path(path: str) -> bool:
    """By a descriptor of the folder, as such names may be too long."""
    folder, _, name = path.rpartition("/")
    descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        return reaches_socket(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)


def reaches_socket(address: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        one.settimeout(2)
        one.connect(address)
    return True


def touches(path: str) -> bool:
    os.utime(path)
    return True


def becomes_root() -> bool:
    os.setuid(0)
    return True


def calls(name: str, *arguments: object) -> bool:
    result = getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments)
    if result != 0:
        raise OSError(ctypes.get_errno(), name)
    return True


def unshares() -> bool:
    """In a child, because it can't be undone."""
    child = os.fork()
    if child == 0:
        try:
            calls("unshare", _CLONE_NEWUSER)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def has_capabilities() -> bool:
    with open("/proc/self/status", encoding="ascii") as stream:
        return any(line.startswith(("CapEff:", "CapPrm:")) and int(line.split()[1], 16) for line in stream)


def main() -> None:
    at = json.loads(sys.argv[1])
    host = int(at["host"])
    attempts: dict[str, Callable[[], bool]] = {
        # wanted
        "read_code": lambda: all(lists(path) for path in at["code"]),
        "read_session": lambda: reads(at["session"] + "/session.json"),
        "read_inbound": lambda: reads(at["session"] + "/inbound.db"),
        "read_group": lambda: reads(at["group"] + "/AGENTS.md"),
        "write_outbound": lambda: opens_to_write(at["session"] + "/outbound.db"),
        "write_heartbeat": lambda: touches(at["session"] + "/heartbeat"),
        "write_outbox": lambda: makes_in(at["session"] + "/outbox"),
        "write_workspace": lambda: makes_in(at["group"] + "/workspace"),
        "write_memory": lambda: makes_in(at["group"] + "/memory"),
        "write_temporary": lambda: makes_in(os.environ["TMPDIR"]),
        "write_null": lambda: opens_to_write("/dev/null"),
        # not wanted: files
        "write_inbound": lambda: opens_to_write(at["session"] + "/inbound.db"),
        "write_spec": lambda: opens_to_write(at["session"] + "/session.json"),
        "replace_outbound": lambda: replaces(at["session"] + "/outbound.db"),
        "make_in_session": lambda: makes_in(at["session"]),
        "make_in_group": lambda: makes_in(at["group"]),
        "read_agent_toml": lambda: reads(at["group"] + "/agent.toml"),
        "write_agent_toml": lambda: opens_to_write(at["group"] + "/agent.toml"),
        "write_code": lambda: any(makes_in(path) for path in at["code"]),
        "read_other_session": lambda: reads(at["other_session"] + "/inbound.db"),
        "read_other_group": lambda: reads(at["other_group"] + "/AGENTS.md"),
        "read_master_key": lambda: reads(at["home"] + "/master.key"),
        "list_home": lambda: "master.key" in os.listdir(at["home"]),
        "read_elsewhere": lambda: reads(at["elsewhere"] + "/secret"),
        "write_elsewhere": lambda: makes_in(at["elsewhere"]),
        "read_shadow": lambda: reads("/etc/shadow"),
        "write_kernel_setting": lambda: opens_to_write("/proc/sys/kernel/core_pattern"),
        # not wanted: other processes, the kernel
        "see_host": lambda: os.path.isdir(f"/proc/{host}"),  # noqa: PTH112
        "read_host_environ": lambda: reads(f"/proc/{host}/environ"),
        "open_host_memory": lambda: opens_to_write(f"/proc/{host}/mem"),
        "signal_host": lambda: signals(host),
        "be_root": lambda: os.getuid() == 0 or os.geteuid() == 0,
        "have_capabilities": has_capabilities,
        "become_root": becomes_root,
        "mount": lambda: calls("mount", b"none", b"/tmp", b"tmpfs", 0, None),
        "new_user_namespace": unshares,
        "ptrace": lambda: calls("ptrace", 0, 0, None, None),
        "reach_host_socket": lambda: reaches_path(at["home"] + "/host.sock"),
        "reach_abstract_socket": lambda: reaches_socket("\0" + at["abstract"]),
        "reach_network": lambda: connects(at["port"]),
    }
    found = {}
    for name, attempt in attempts.items():
        try:
            found[name] = bool(attempt())
        except OSError:
            found[name] = False
    print(json.dumps(found))


if __name__ == "__main__":
    main()
