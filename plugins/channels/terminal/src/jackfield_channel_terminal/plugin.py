"""The entry point `terminal` of `jackfield.channels`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jackfield.api import Channel, ChannelInfo, ChannelType, hookimpl

if TYPE_CHECKING:
    from jackfield_channel_terminal.settings import TerminalSettings

__all__ = ["create", "register_channels"]


def create(instance: str, settings: TerminalSettings | dict[str, Any]) -> Channel:
    """The channel of one instance; an empty dict takes the default settings."""
    from jackfield_channel_terminal.channel import TerminalChannel
    from jackfield_channel_terminal.settings import TerminalSettings

    return TerminalChannel(
        instance, TerminalSettings.model_validate(settings) if isinstance(settings, dict) else settings
    )


@hookimpl
def register_channels() -> Sequence[ChannelType]:
    """The one channel of this distribution."""
    from jackfield_channel_terminal.settings import TerminalSettings

    info = ChannelInfo(
        type="terminal",
        title="Terminal",
        terminology="chat",
        id_help="the folder of the agent group, like `home`",
        local=True,
    )
    return [ChannelType(info=info, create=create, settings=TerminalSettings)]
