"""The entry point `slack` of `jackfield.channels`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jackfield.api import Channel, ChannelInfo, ChannelType, hookimpl

if TYPE_CHECKING:
    from jackfield_channel_slack.settings import SlackSettings

__all__ = ["create", "register_channels"]


def create(instance: str, settings: SlackSettings | dict[str, Any]) -> Channel:
    """The channel of one workspace."""
    from jackfield_channel_slack.channel import SlackChannel
    from jackfield_channel_slack.settings import SlackSettings

    return SlackChannel(instance, SlackSettings.model_validate(settings) if isinstance(settings, dict) else settings)


@hookimpl
def register_channels() -> Sequence[ChannelType]:
    """The one channel of this distribution."""
    from jackfield_channel_slack.settings import SlackSettings

    info = ChannelInfo(
        type="slack",
        title="Slack",
        terminology="conversation",
        id_help="the id of a channel or direct message, like C0123456789 or D0123456789 (its details show it)",
    )
    return [
        ChannelType(
            info=info,
            create=create,
            settings=SlackSettings,
            secrets=("bot_token", "app_token", "signing_secret"),
        )
    ]
