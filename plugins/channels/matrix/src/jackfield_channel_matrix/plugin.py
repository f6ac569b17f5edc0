"""The entry point `matrix` of `jackfield.channels`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jackfield.api import Channel, ChannelInfo, ChannelType, hookimpl

if TYPE_CHECKING:
    from jackfield_channel_matrix.settings import MatrixSettings

__all__ = ["create", "register_channels"]


def create(instance: str, settings: MatrixSettings | dict[str, Any]) -> Channel:
    """The channel of one Matrix account."""
    from jackfield_channel_matrix.channel import MatrixChannel
    from jackfield_channel_matrix.settings import MatrixSettings

    return MatrixChannel(instance, MatrixSettings.model_validate(settings) if isinstance(settings, dict) else settings)


@hookimpl
def register_channels() -> Sequence[ChannelType]:
    """The one channel of this distribution."""
    from jackfield_channel_matrix.settings import MatrixSettings

    info = ChannelInfo(
        type="matrix",
        title="Matrix",
        terminology="room",
        id_help="the room's internal id, such as !abc123:example.org (room settings, Advanced)",
    )
    return [ChannelType(info=info, create=create, settings=MatrixSettings, secrets=("token", "password"))]
