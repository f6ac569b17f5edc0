"""The suites for plugins that are named on the command line: `--plugin NAME`, as often as you like."""

from __future__ import annotations

import pytest

from jackfield.plugins.discovery import Discovery
from jackfield.testing.contracts import CONTRACTS, PluginContract
from jackfield.testing.pytest import chosen_plugins

__all__: list[str] = []


def suites(names: list[str]) -> dict[str, type[PluginContract]]:
    """A test class for each installed plugin of one of these names.

    Raises:
        pytest.UsageError: a name is not installed.
    """
    everything = Discovery().read().found()
    made: dict[str, type[PluginContract]] = {}
    for name in names:
        found = [one for one in everything if one.name == name]
        if not found:
            known = ", ".join(sorted({one.name for one in everything})) or "none"
            raise pytest.UsageError(f"no plugin {name!r} is installed; there are: {known}")
        for one in found:
            title = f"Test{one.kind.title()}{name.title().replace('-', '')}"
            made[title] = type(title, (CONTRACTS[one.kind],), {"plugin": name, "__module__": __name__})
    return made


if not chosen_plugins():
    pytest.skip("name what to test: --plugin NAME (with -p jackfield.testing.pytest)", allow_module_level=True)
globals().update(suites(chosen_plugins()))
