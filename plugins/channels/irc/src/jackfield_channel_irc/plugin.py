"""The entry point `irc` of `jackfield.channels`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jackfield.api import Channel, ChannelInfo, ChannelType, hookimpl

if TYPE_CHECKING:
    from jackfield_channel_irc.settings import IrcSettings

__all__ = ["create", "register_channels"]


def create(instance: str, settings: IrcSettings | dict[str, Any]) -> Channel:
    """The channel of one network."""
    from jackfield_channel_irc.channel import IrcChannel
    from jackfield_channel_irc.settings import IrcSettings

    return IrcChannel(instance, IrcSettings.model_validate(settings) if isinstance(settings, dict) else settings)


@hookimpl
def register_channels() -> Sequence[ChannelType]:
    """The one channel of this distribution."""
    from jackfield_channel_irc.settings import IrcSettings

    info = ChannelInfo(
        type="irc",
        title="IRC",
        terminology="channel",
        id_help="a channel such as #dev, or a nick, in lower case",
    )
    secrets = ("password", "account_password", "keys")
    return [ChannelType(info=info, create=create, settings=IrcSettings, secrets=secrets)]
