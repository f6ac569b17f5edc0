"""The configuration: where it lies, what it may say, how it is read and edited (architecture 2; C198-C200).

Reading is `jackfield.config.load.load(home)`.  Only `Home` is imported at once; the rest needs pydantic or tomlkit and
comes when it is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from jackfield.config.home import Home

if TYPE_CHECKING:
    from jackfield.config.edit import add_channel, remove_channel, set_agent_value, set_host_value
    from jackfield.config.load import (
        AgentFile,
        ChannelSection,
        Configuration,
        ExtensionSection,
        agent_digest,
        load_agent,
        read_agent,
        remember_good,
    )
    from jackfield.config.problems import Problem, Severity
    from jackfield.config.settings import (
        AgentLimits,
        AgentSettings,
        AgentsSettings,
        ApprovalSettings,
        HostSettings,
        IngressSettings,
    )

__all__ = [
    "AgentFile",
    "AgentLimits",
    "AgentSettings",
    "AgentsSettings",
    "ApprovalSettings",
    "ChannelSection",
    "Configuration",
    "ExtensionSection",
    "Home",
    "HostSettings",
    "IngressSettings",
    "Problem",
    "Severity",
    "add_channel",
    "agent_digest",
    "load_agent",
    "read_agent",
    "remember_good",
    "remove_channel",
    "set_agent_value",
    "set_host_value",
]

_ROOMS = {
    "edit": ("add_channel", "remove_channel", "set_agent_value", "set_host_value"),
    "load": (
        "AgentFile", "ChannelSection", "Configuration", "ExtensionSection",
        "agent_digest", "load_agent", "read_agent", "remember_good",
    ),
    "problems": ("Problem", "Severity"),
    "settings": (
        "AgentLimits", "AgentSettings", "AgentsSettings", "ApprovalSettings", "HostSettings", "IngressSettings",
    ),
}  # fmt: skip


def __getattr__(name: str) -> object:
    for module, names in _ROOMS.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
