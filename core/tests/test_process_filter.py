"""The system call filter, run by a small interpreter, for machine types that this one may not be."""

from __future__ import annotations

import struct

import pytest
from jackfield.process.launch import seccomp

ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE, UNKNOWN = 0x00050000 | 1, 0x00050000 | 38
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
BOTH = [("x86_64", 0), ("aarch64", 1)]


def verdict(program: bytes, audit: int, number: int, *arguments: int) -> int:
    """What the kernel would do with the call."""
    data = struct.pack("=IIQ6Q", number, audit, 0, *(*arguments, *(0,) * (6 - len(arguments))))
    steps = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at = held = 0
    while True:
        code, true, false, value = steps[at]
        at += 1
        if code == 0x20:
            (held,) = struct.unpack_from("=I", data, value)
        elif code == 0x06:
            return int(value)
        else:
            holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            at += true if holds else false


@pytest.mark.parametrize(("machine", "column"), BOTH)
def test_every_listed_call_is_refused_and_ordinary_ones_pass(machine: str, column: int) -> None:
    program = seccomp.program(machine, network=True, local=True)
    for name, numbers in seccomp.REFUSED.items():
        assert verdict(program, AUDIT[machine], numbers[column]) == REFUSE, name
    ordinary = ((0, 1, 2, 3, 59, 60, 61, 62), (56, 57, 62, 63, 64, 93, 94, 221))[column]
    for number in (*ordinary, 434, 436, 437, 439, 441, 444, 450):
        assert verdict(program, AUDIT[machine], number) == ALLOW


@pytest.mark.parametrize(("machine", "column"), BOTH)
def test_forks_and_threads_pass_and_new_namespaces_do_not(machine: str, column: int) -> None:
    program = seccomp.program(machine, network=True, local=True)
    clone = (56, 220)[column]
    assert verdict(program, AUDIT[machine], clone, 17) == ALLOW
    assert verdict(program, AUDIT[machine], clone, 0x3D0F00) == ALLOW  # what a new thread asks for
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert verdict(program, AUDIT[machine], clone, flag | 17) == REFUSE
    assert verdict(program, AUDIT[machine], 435) == UNKNOWN


@pytest.mark.parametrize(("machine", "column"), BOTH)
@pytest.mark.parametrize("network", [True, False])
@pytest.mark.parametrize("local", [True, False])
def test_socket_families_are_those_that_were_asked_for(machine: str, column: int, network: bool, local: bool) -> None:
    program = seccomp.program(machine, network=network, local=local)
    call = (41, 198)[column]
    allowed = {family for family in range(64) if verdict(program, AUDIT[machine], call, family, 1, 5) == ALLOW}
    assert allowed == ({2, 10} if network else set()) | ({1} if local else set())
    assert verdict(program, AUDIT[machine], call, 16, 3, 0) == ALLOW  # asking about routes


@pytest.mark.parametrize(("machine", "column"), BOTH)
def test_nothing_is_typed_into_a_terminal(machine: str, column: int) -> None:
    program = seccomp.program(machine, network=True, local=True)
    call = (16, 29)[column]
    assert [verdict(program, AUDIT[machine], call, 0, what) for what in (0x5412, 0x541C, 0x5413)] == [
        REFUSE, REFUSE, ALLOW,
    ]  # fmt: skip


def test_calls_by_another_convention_do_not_slip_through() -> None:
    program = seccomp.program("x86_64", network=True, local=True)
    assert verdict(program, 0x40000003, 26) == KILL  # 32 bit: other numbers
    assert verdict(program, AUDIT["x86_64"], 0x40000000 | 39) == REFUSE  # x32
