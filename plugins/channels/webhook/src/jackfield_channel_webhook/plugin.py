"""The entry point `webhook` of `jackfield.channels`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jackfield.api import Channel, ChannelInfo, ChannelType, hookimpl

if TYPE_CHECKING:
    from jackfield_channel_webhook.settings import WebhookSettings

__all__ = ["create", "register_channels"]


def create(instance: str, settings: WebhookSettings | dict[str, Any]) -> Channel:
    """The channel of one hook."""
    from jackfield_channel_webhook.channel import WebhookChannel
    from jackfield_channel_webhook.settings import WebhookSettings

    return WebhookChannel(
        instance, WebhookSettings.model_validate(settings) if isinstance(settings, dict) else settings
    )


@hookimpl
def register_channels() -> Sequence[ChannelType]:
    """The one channel of this distribution."""
    from jackfield_channel_webhook.settings import WebhookSettings

    info = ChannelInfo(
        programs=True,
        type="webhook",
        title="Webhook",
        terminology="hook",
        id_help="the channel's own name, unless `map.chat` says otherwise",
    )
    return [ChannelType(info=info, create=create, settings=WebhookSettings, secrets=("secrets", "sign", "url_secret"))]
