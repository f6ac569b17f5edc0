"""The kit for plugin authors: doubles of what a plugin is handed, and one suite of checks for each kind of plugin.

    from jackfield.testing import ToolsContract

    class TestWeather(ToolsContract):
        plugin = "weather"
        settings = {"units": "metric"}

Install `jackfield[testing]` and run `pytest -p jackfield.testing.pytest`, which brings the fixtures too; or write no
code at all: `pytest -p jackfield.testing.pytest --pyargs jackfield.testing.contracts --plugin weather`
(marketplace.md 5.2; `docs/plugins/testing.md`).

The names below are imported when they are first used.  Only the contracts and the fixtures need pytest.

The kit stands on the top floor: it alone may use host and runner both, and nothing else imports it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jackfield.testing.clock import ManualClock
    from jackfield.testing.contracts import (
        Arrived,
        ChannelContract,
        ExtensionContract,
        PackContract,
        Peer,
        PluginContract,
        ProviderContract,
        RuntimeContract,
        Said,
        Stage,
        ToolsContract,
    )
    from jackfield.testing.distributions import Site, install_project, make_distribution
    from jackfield.testing.host_recorder import AgentRecorder, ApprovalRecorder, HostRecorder
    from jackfield.testing.model_recorder import ModelRecorder
    from jackfield.testing.recorders import ChannelMemory, ChannelRecorder, ToolRecorder
    from jackfield.testing.schedule_recorder import ScheduleRecorder
    from jackfield.testing.tools import bind_tools
    from jackfield.testing.workshop_recorder import WorkshopRecorder

__all__ = [
    "AgentRecorder",
    "ApprovalRecorder",
    "Arrived",
    "ChannelContract",
    "ChannelMemory",
    "ChannelRecorder",
    "ExtensionContract",
    "HostRecorder",
    "ManualClock",
    "ModelRecorder",
    "PackContract",
    "Peer",
    "PluginContract",
    "ProviderContract",
    "RuntimeContract",
    "Said",
    "ScheduleRecorder",
    "Site",
    "Stage",
    "ToolRecorder",
    "ToolsContract",
    "WorkshopRecorder",
    "bind_tools",
    "install_project",
    "make_distribution",
]

_HOME_OF = {
    "clock": ("ManualClock",),
    "distributions": ("Site", "install_project", "make_distribution"),
    "host_recorder": ("AgentRecorder", "ApprovalRecorder", "HostRecorder"),
    "model_recorder": ("ModelRecorder",),
    "recorders": ("ChannelMemory", "ChannelRecorder", "ToolRecorder"),
    "schedule_recorder": ("ScheduleRecorder",),
    "workshop_recorder": ("WorkshopRecorder",),
    "tools": ("bind_tools",),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = next((module for module, names in _HOME_OF.items() if name in names), "contracts")
    return getattr(import_module(f"{__name__}.{home}"), name)
