"""The system calls that Python has no function for, by `ctypes`.  Every failure is an OSError that says what failed."""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
CLONE_PARENT = 0x00008000
SIGCHLD = 17

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

MOUNT_ATTR_RDONLY = 0x1
MOUNT_ATTR_NOSUID = 0x2
MOUNT_ATTR_NODEV = 0x4
_AT_RECURSIVE = 0x8000
_AT_FDCWD = -100

_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_SECCOMP = 22
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

_NUMBERS = {"x86_64": {"clone": 56, "pivot_root": 155}, "aarch64": {"clone": 220, "pivot_root": 41}}
_MOUNT_SETATTR = 442
_LANDLOCK_CREATE = 444
_LANDLOCK_ADD = 445
_LANDLOCK_RESTRICT = 446

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _number(name: str) -> int:
    machine = os.uname().machine
    try:
        return _NUMBERS[machine][name]
    except KeyError:
        raise OSError(38, f"{name}: its number on {machine} is not known here") from None


def clone(flags: int) -> int:
    """Like `os.fork`, with flags.  Only for a process with one thread."""
    return _checked(
        _libc.syscall(
            ctypes.c_long(_number("clone")),
            ctypes.c_ulong(flags | SIGCHLD),
            ctypes.c_void_p(0),
            ctypes.c_void_p(0),
            ctypes.c_void_p(0),
            ctypes.c_void_p(0),
        ),
        "clone with new namespaces",
    )


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    _checked(
        _libc.mount(
            os.fsencode(source),
            os.fsencode(target),
            kind.encode(),
            ctypes.c_ulong(flags),
            options.encode() if options else None,
        ),
        f"mount {kind or source} on {target}",
    )


def bind(source: str, target: str, *, read_only: bool) -> None:
    """Bind a path with everything mounted below it; never with device files or setuid programs."""
    mount(source, target, "", MS_BIND | MS_REC)
    set_attributes(target, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (MOUNT_ATTR_RDONLY if read_only else 0))


def set_attributes(target: str, attributes: int) -> None:
    """Add mount attributes to a whole tree of mounts (Linux 5.12); never takes one away."""
    attr = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    _checked(
        _libc.syscall(
            ctypes.c_long(_MOUNT_SETATTR),
            ctypes.c_int(_AT_FDCWD),
            ctypes.c_char_p(os.fsencode(target)),
            ctypes.c_uint(_AT_RECURSIVE),
            ctypes.byref(attr),
            ctypes.c_size_t(ctypes.sizeof(attr)),
        ),
        f"mount_setattr {target}",
    )


def pivot_root(new: str, old: str) -> None:
    _checked(
        _libc.syscall(
            ctypes.c_long(_number("pivot_root")),
            ctypes.c_char_p(os.fsencode(new)),
            ctypes.c_char_p(os.fsencode(old)),
        ),
        "pivot_root",
    )


def unmount(target: str) -> None:
    _checked(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def _prctl(option: int, value: int, what: str) -> None:
    zero = ctypes.c_ulong(0)
    _checked(_libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero), what)


def no_new_privileges() -> None:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, "no_new_privs")


def become_subreaper() -> None:
    """Orphans below this process become its children, so that they can be found by their parent."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, "child subreaper")


def stay_readable() -> None:
    """Let the host's account read this process's environment, by which it knows its own again."""
    _prctl(_PR_SET_DUMPABLE, 1, "dumpable")


def drop_bounding_set() -> None:
    """Give up every capability for good, also for programs that would bring their own."""
    for capability in range(64):
        try:
            _prctl(_PR_CAPBSET_DROP, capability, "drop a capability")
        except OSError as error:
            if error.errno == 22:  # beyond the last one that this kernel knows
                return
            raise


def drop_capabilities() -> None:
    """Have no capability from now on.  A program that is started begins without; one that goes on keeps them."""
    version_3 = (ctypes.c_uint32 * 2)(0x20080522, 0)
    none = (ctypes.c_uint32 * 6)()
    _checked(_libc.capset(ctypes.byref(version_3), ctypes.byref(none)), "capset")


class Shown:
    """What /proc tells everybody of this process: its arguments and the environment that it was started with.

    Both lie where the kernel put them at the start of the program, in the same place in every fork of it.  Nothing in
    this process may still use what lies there: `os.environ` must have been replaced.
    """

    def __init__(self) -> None:
        with open("/proc/self/stat", "rb") as stream:  # noqa: PTH123 - as little as possible imported
            fields = stream.read().rpartition(b")")[2].split()
        self._arguments = int(fields[45]), int(fields[46])
        self._environment = int(fields[47]), int(fields[48])

    def replace(self, arguments: list[str], variable: str) -> None:
        """Show these arguments, as far as there is room, and this one variable.

        Raises:
            OSError: there is no room for the variable.
        """
        start, end = self._environment
        shown = variable.encode()
        if len(shown) >= end - start:
            raise OSError(7, f"there is no room to show {variable}")
        ctypes.memmove(start, shown.ljust(end - start, b"\0"), end - start)
        start, end = self._arguments
        shown = b"\0".join(os.fsencode(one) for one in arguments)[: end - start - 1]
        ctypes.memmove(start, shown.ljust(end - start, b"\0"), end - start)


def install_filter(program: bytes) -> None:
    """Load a seccomp program: 8 bytes an instruction."""
    code = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    head = Program(len(program) // 8, ctypes.addressof(code))
    zero = ctypes.c_ulong(0)
    _checked(_libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(2), ctypes.byref(head), zero, zero), "seccomp")


def landlock_abi() -> int:
    """The version that this kernel speaks; 0 without Landlock."""
    found: int = _libc.syscall(
        ctypes.c_long(_LANDLOCK_CREATE), ctypes.c_void_p(0), ctypes.c_size_t(0), ctypes.c_uint(1)
    )
    return max(0, found)


def landlock_create(attributes: bytes) -> int:
    """A rule set's descriptor."""
    return _checked(
        _libc.syscall(
            ctypes.c_long(_LANDLOCK_CREATE),
            ctypes.c_char_p(attributes),
            ctypes.c_size_t(len(attributes)),
            ctypes.c_uint(0),
        ),
        "landlock_create_ruleset",
    )


def landlock_add(ruleset: int, rule: bytes, path: str) -> None:
    _checked(
        _libc.syscall(
            ctypes.c_long(_LANDLOCK_ADD),
            ctypes.c_int(ruleset),
            ctypes.c_uint(1),
            ctypes.c_char_p(rule),
            ctypes.c_uint(0),
        ),
        f"landlock_add_rule {path}",
    )


def landlock_restrict(ruleset: int) -> None:
    _checked(
        _libc.syscall(ctypes.c_long(_LANDLOCK_RESTRICT), ctypes.c_int(ruleset), ctypes.c_uint(0)),
        "landlock_restrict_self",
    )
