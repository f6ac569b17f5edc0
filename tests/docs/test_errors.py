"""The errors are an interface: programs look at exit codes, people at the tree."""

from __future__ import annotations

import re

from jackfield import errors
from jackfield.api import ToolFailed

from tests.docs.pages import script

DOCS = script("docs")

EXIT_CODES = {
    "JackfieldError": 1, "OperatorError": 1, "ConfigError": 2, "UsageError": 2, "NotFound": 3, "Conflict": 4,
    "HostRunning": 4, "NotAllowed": 77, "NotInitialised": 3, "NoHost": 1, "VerificationFailed": 7, "StoreNewer": 1,
    "RolledBack": 5, "NotRolledBack": 6,
    "PluginError": 1, "PluginBroken": 1, "HookMisuse": 1, "HookFailed": 1, "MalformedData": 1, "UnsafePath": 1,
}  # fmt: skip


def test_operators_and_authors_can_rely_on_the_exit_codes() -> None:
    found = {one.__name__: one.exit_code for one in DOCS.all_errors() if one is not ToolFailed}
    assert {name: found[name] for name in EXIT_CODES} == EXIT_CODES
    assert {code for name, code in found.items() if name not in EXIT_CODES} == {1}


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    drawn = re.findall(r"^    ([│ ]*)[├└]── (\w+)", errors.__doc__ or "", re.MULTILINE)
    parents: list[str] = ["JackfieldError"]
    for indent, name in drawn:
        depth = len(indent) // 4 + 1
        parents[depth:] = [name]
        assert getattr(errors, name).__bases__[0].__name__ == parents[depth - 1], name
    assert {name for _, name in drawn} | {"JackfieldError"} == {
        one.__name__ for one in DOCS.all_errors() if one is not ToolFailed
    }
