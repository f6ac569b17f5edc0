"""The six kinds of plugin, and what each is called where.

Entry-point groups, registration hooks and config all speak of the same kinds (architecture, section 4).
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["GROUPS", "REGISTRATION_HOOKS", "Kind"]


class Kind(StrEnum):
    """What an entry point offers."""

    CHANNEL = "channel"
    PROVIDER = "provider"
    RUNTIME = "runtime"
    TOOLS = "tools"
    PACK = "pack"
    EXTENSION = "extension"


GROUPS: dict[str, Kind] = {
    "jackfield.channels": Kind.CHANNEL,
    "jackfield.providers": Kind.PROVIDER,
    "jackfield.runtimes": Kind.RUNTIME,
    "jackfield.tools": Kind.TOOLS,
    "jackfield.packs": Kind.PACK,
    "jackfield.extensions": Kind.EXTENSION,
}
"""Entry-point group to kind."""

REGISTRATION_HOOKS: dict[Kind, str] = {
    Kind.CHANNEL: "register_channels",
    Kind.PROVIDER: "register_providers",
    Kind.RUNTIME: "register_runtimes",
    Kind.TOOLS: "register_tools",
    Kind.PACK: "register_packs",
    Kind.EXTENSION: "register_extensions",
}
"""Kind to the hook that returns it."""
