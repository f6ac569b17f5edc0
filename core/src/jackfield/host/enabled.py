"""What agent groups and the configuration name: the plugins of it are loaded, its runtimes made."""

from __future__ import annotations

import asyncio
import logging

from jackfield.errors import ConfigError, JackfieldError
from jackfield.host.hub import Hub
from jackfield.host.launching import Launcher
from jackfield.plugins import Kind
from jackfield.store import groups

__all__ = ["load_plugins", "prepare_runtimes"]

log = logging.getLogger(__name__)


async def load_plugins(hub: Hub) -> None:
    """The host halves of what groups use: actions and hooks must be there before the first message."""
    wanted: dict[tuple[Kind, str], None] = {}
    for group in await hub.store.read(groups.agent_groups):
        try:
            agent = hub.agent_settings(group)
        except ConfigError:
            continue  # told by prepare_runtimes
        wanted.update({(Kind.TOOLS, name): None for name in agent.tools})
        wanted.update({(Kind.PACK, name): None for name in agent.packs})
    wanted.update({(Kind.EXTENSION, name): None for name in hub.configuration.extensions})
    await hub.plugins.load_enabled(list(wanted))


async def prepare_runtimes(hub: Hub, launcher: Launcher) -> None:
    """Create the runtimes that groups name, so that what they left behind is found."""
    names = set()
    for group in await hub.store.read(groups.agent_groups):
        try:
            names.add(hub.agent_settings(group).runtime)
        except ConfigError as problem:
            log.error("agent group %s can't run until its agent.toml is mended: %s", group.folder, problem)
    for name in sorted(names):
        try:
            await asyncio.to_thread(launcher.runtime, name)
        except JackfieldError as problem:
            log.error("runtime %s can't be used: %s", name, problem)
