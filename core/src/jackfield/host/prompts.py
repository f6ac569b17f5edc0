"""What the host adds to the system prompt of a session, and the whole of it as `jackfield group prompt` shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from jackfield.config import AgentSettings
from jackfield.errors import JackfieldError, NotFound, PluginBroken
from jackfield.host import instructions
from jackfield.host.channels import ChannelDirectory
from jackfield.host.hub import Hub
from jackfield.mailbox import read_regular
from jackfield.models import AgentGroup, Capabilities, Destination, Session, Support
from jackfield.models.group_files import MEMORY_INDEX, MEMORY_LIMIT, WORDS_FILES, WORDS_LIMIT, join_words
from jackfield.models.prompt_layers import PromptLayer, prompt_layers
from jackfield.store import wirings

__all__ = ["channel_note", "channel_notes", "layers_of"]


def channel_notes(channels: ChannelDirectory, destinations: Sequence[Destination]) -> dict[str, str]:
    """What the agent should know of each channel that it may write to, by channel type; of those that work now."""
    notes: dict[str, str] = {}
    for place in sorted(destinations, key=lambda one: one.name):
        address = place.address
        if address is None or address.channel_type in notes:
            continue
        instance = channels.instance(address.channel_type, address.instance)
        if instance is not None and instance.channel is not None:
            notes[address.channel_type] = channel_note(instance.channel.capabilities(address))
    return notes


async def layers_of(
    hub: Hub, channels: ChannelDirectory | None, session: Session, group: AgentGroup, agent: AgentSettings
) -> list[PromptLayer]:
    """The system prompt that a runner of the session would begin a conversation with now."""
    destinations = await hub.store.read(wirings.destinations, group.id)
    folder, tools = hub.home.groups / group.folder, tuple(agent.tools)
    changed = await instructions.tool_instructions(hub, tools)
    return prompt_layers(
        agent_name=agent.name or group.name,
        destinations=destinations,
        unwrapped=agent.unwrapped,
        channels=channel_notes(channels, destinations) if channels is not None else {},
        documents=await instructions.additions(hub, session, group, tools),
        words=join_words([await _text(folder / name, WORDS_LIMIT) for name in WORDS_FILES]),
        memory=await _text(folder / MEMORY_INDEX, MEMORY_LIMIT),
        tools=[one for name in tools if (one := await _tool_set(hub, name, changed)) is not None],
    )


async def _tool_set(hub: Hub, name: str, changed: dict[str, str]) -> tuple[str, str, str] | None:
    try:
        found = await asyncio.to_thread(hub.plugins.tool_set, name)
    except (NotFound, PluginBroken):
        return None  # its runner meets the same problem, and tells the people who wrote
    return name, found.title, changed.get(name, found.instructions)


async def _text(path: Path, limit: int) -> str:
    """A file of the group's; empty when none lies there, or no plain one: an agent may write there."""
    try:
        return (await asyncio.to_thread(read_regular, path, limit)).decode("utf-8", "replace")
    except (JackfieldError, OSError):
        return ""


def channel_note(can: Capabilities) -> str:
    """What an agent should know about a channel when it writes there, in one line."""
    said = ["plain text only" if can.dialect == "plain" else "Markdown"]
    if can.dialect != "plain" and can.tables <= Support.NONE:
        said[0] += ", but no tables"
    if can.text_limit is not None:
        said.append(f"a text over {can.text_limit:,} characters becomes several messages")
    if can.files is Support.NONE:
        said.append("no files")
    else:
        said.append("files" if can.file_max_bytes is None else f"files up to {_size(can.file_max_bytes)}")
    said.append("reactions" if can.react > Support.NONE else "no reactions")
    said.append("messages can be changed" if can.edit > Support.NONE else "what is sent can't be changed")
    return "; ".join(said) + "."


def _size(count: int) -> str:
    return f"{count // 2**20} MiB" if count >= 2**20 else f"{max(1, count // 1024)} KiB"
