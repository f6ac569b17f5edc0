"""What may be set for one bot."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

__all__ = ["TelegramSettings"]


class TelegramSettings(BaseModel):
    """What may be set for one bot."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    token: str = Field(min_length=1)
    """Name of the secret that holds the bot's token, as @BotFather gave it."""
    api_url: str = Field(default="https://api.telegram.org", max_length=500, pattern=r"^https?://[^\s?#@]+$")
    """The Bot API server; another one only if you run it yourself."""
    webhook: bool = False
    """Telegram calls us, at the public URL of the host's HTTP server (`[ingress] public_url`). Without it we ask
    Telegram, which needs no public URL."""
    webhook_secret: str | None = Field(default=None, min_length=1, validate_default=True)
    """Name of the secret with which Telegram proves itself at the webhook: 1 to 256 of A-Z, a-z, 0-9, _ and -."""
    rich: bool = True
    """Send tables, headings, lists and long answers as rich messages. Apps from before June 2026 ask for an update
    instead of showing them; then set it to false."""
    album_seconds: float = Field(default=1.0, ge=0.0, le=10.0)
    """How long to wait for the next file of several that were sent at once."""
    pacing: bool = True
    """Keep below Telegram's limits: 1 message a second to a chat, 20 a minute to a group, 30 a second in all. Off only
    for a server of your own that has none."""

    @field_validator("webhook_secret")
    @classmethod
    def _belongs_to_webhook(cls, value: str | None, info: ValidationInfo) -> str | None:
        if bool(info.data.get("webhook")) != (value is not None):
            raise ValueError("webhook = true and webhook_secret belong together")
        return value
