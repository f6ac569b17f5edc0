"""The entry point `telegram` of `jackfield.channels`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jackfield.api import Channel, ChannelInfo, ChannelType, hookimpl

if TYPE_CHECKING:
    from jackfield_channel_telegram.settings import TelegramSettings

__all__ = ["create", "register_channels"]


def create(instance: str, settings: TelegramSettings | dict[str, Any]) -> Channel:
    """The channel of one bot."""
    from jackfield_channel_telegram.channel import TelegramChannel
    from jackfield_channel_telegram.settings import TelegramSettings

    return TelegramChannel(
        instance, TelegramSettings.model_validate(settings) if isinstance(settings, dict) else settings
    )


@hookimpl
def register_channels() -> Sequence[ChannelType]:
    """The one channel of this distribution."""
    from jackfield_channel_telegram.settings import TelegramSettings

    info = ChannelInfo(
        type="telegram",
        title="Telegram",
        terminology="chat",
        id_help="the chat's number: a person's own id, or a negative one for a group, like -1001234567890",
    )
    return [ChannelType(info=info, create=create, settings=TelegramSettings, secrets=("token", "webhook_secret"))]
