"""A filter that refuses the system calls which no agent needs and which kernels have been broken through.

It is a list of what is refused, not of what is allowed: engines and their tools are whatever the operator installs.
"""

from __future__ import annotations

import os
import struct

from jackfield.process.launch import calls

EPERM = 1
ENOSYS = 38

_LOAD = 0x20
_JUMP_EQUAL = 0x15
_JUMP_AT_LEAST = 0x35
_JUMP_ANY_BIT = 0x45
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ERRNO = 0x00050000

_NUMBER_AT = 0
_MACHINE_AT = 4
_ARGUMENTS_AT = 16

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_NAMESPACE_FLAGS = 0x7E020000

# name: (x86_64, aarch64)
REFUSED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
}
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_SOCKET = (41, 198)
_IOCTL = (16, 29)
_TIOCSTI = 0x5412
_TIOCLINUX = 0x541C
_AF_UNIX = 1
_AF_INET = 2
_AF_INET6 = 10
_AF_NETLINK = 16


def supported() -> bool:
    return os.uname().machine in _AUDIT


def _step(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, true, false, value)


def _argument(index: int) -> bytes:
    return _step(_LOAD, _ARGUMENTS_AT + 8 * index)


def program(machine: str, *, network: bool, local: bool) -> bytes:
    """The filter for a machine type; sockets of the internet families only with `network`, of the Unix family only with
    `local` (pairs of them always: those lead nowhere else)."""
    column = 0 if machine == "x86_64" else 1
    refuse = _step(_RETURN, _ERRNO | EPERM)
    allow = _step(_RETURN, _ALLOW)

    out = [_step(_LOAD, _MACHINE_AT), _step(_JUMP_EQUAL, _AUDIT[machine], 1, 0), _step(_RETURN, _KILL)]
    out.append(_step(_LOAD, _NUMBER_AT))
    if machine == "x86_64":
        out += [_step(_JUMP_AT_LEAST, _X32_BIT, 0, 1), refuse]
    for numbers in REFUSED.values():
        out += [_step(_JUMP_EQUAL, numbers[column], 0, 1), refuse]

    # Its flags lie in memory, where a filter can't look; libc falls back to clone.
    out += [_step(_JUMP_EQUAL, _CLONE3[column], 0, 1), _step(_RETURN, _ERRNO | ENOSYS)]

    clone = [_argument(0), _step(_JUMP_ANY_BIT, _NAMESPACE_FLAGS, 0, 1), refuse, allow]
    out += [_step(_JUMP_EQUAL, _CLONE[column], 0, len(clone)), *clone]

    terminal = [_argument(1), _step(_JUMP_EQUAL, _TIOCSTI, 1, 0), _step(_JUMP_EQUAL, _TIOCLINUX, 0, 1), refuse, allow]
    out += [_step(_JUMP_EQUAL, _IOCTL[column], 0, len(terminal)), *terminal]

    socket = [_argument(0)]
    families = ((_AF_UNIX,) if local else ()) + ((_AF_INET, _AF_INET6) if network else ())
    for family in families:
        socket += [_step(_JUMP_EQUAL, family, 0, 1), allow]
    # Netlink only to ask about interfaces and routes, as getaddrinfo does.
    netlink = [_argument(2), _step(_JUMP_EQUAL, 0, 0, 1), allow]
    socket += [_step(_JUMP_EQUAL, _AF_NETLINK, 0, len(netlink)), *netlink, refuse]
    out += [_step(_JUMP_EQUAL, _SOCKET[column], 0, len(socket)), *socket]

    out.append(allow)
    return b"".join(out)


def restrict(*, network: bool, local: bool) -> None:
    """Confine this process and all that come after it; `no_new_privs` must be set."""
    calls.install_filter(program(os.uname().machine, network=network, local=local))
