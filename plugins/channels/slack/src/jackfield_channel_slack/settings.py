"""The settings: `[channels.<instance>]` with `type = "slack"` in `jackfield.toml`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

__all__ = ["SlackSettings"]


def _names(value: object) -> object:
    return (value,) if isinstance(value, str) else value


SecretNames = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_names), Field(max_length=5)]


class SlackSettings(BaseModel):
    """What may be set for one workspace."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["socket", "events"] = "socket"
    """How events come: over a WebSocket that we open (no public URL needed), or by requests that Slack makes to the
    ingress."""
    bot_token: str = Field(min_length=1)
    """Name of the secret with the bot token, `xoxb-...`."""
    app_token: str | None = Field(default=None, min_length=1, validate_default=True)
    """Name of the secret with the app-level token, `xapp-...`, for `mode = "socket"`."""
    signing_secret: SecretNames = Field(default=(), validate_default=True)
    """Names of the secrets that sign what Slack sends, for `mode = "events"`. Any of them may have signed, so that one
    can be replaced by the next without a gap."""
    sockets: int = Field(default=1, ge=1, le=10)
    """WebSockets that are kept open at once. One is enough; a second bridges the loss of the first."""
    thread_replies: bool = True
    """A message of a channel that mentions the bot is answered in a thread below it, and each such thread is a
    conversation of its own. With false, it is answered in the channel itself."""
    markup: Literal["markdown", "mrkdwn"] = "markdown"
    """How texts are sent: as Markdown, or in Slack's older mrkdwn, for a workspace that refuses the other."""
    file_max_bytes: int = Field(default=52_428_800, ge=1, le=1_073_741_824)
    """Bytes that a file may have, in or out."""
    api_url: str = Field(default="https://slack.com/api", pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$")
    """Where Slack's Web API is; another one for GovSlack, `https://slack-gov.com/api`."""

    @field_validator("app_token")
    @classmethod
    def _for_sockets(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("mode") == "socket":
            raise ValueError('mode = "socket" needs it; or say mode = "events"')
        return value

    @field_validator("signing_secret")
    @classmethod
    def _for_events(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if not value and info.data.get("mode") == "events":
            raise ValueError('mode = "events" needs at least one, or anybody could write')
        return value
