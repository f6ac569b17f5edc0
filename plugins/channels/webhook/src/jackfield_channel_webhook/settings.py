"""The settings: `[channels.<instance>]` with `type = "webhook"` in `jackfield.toml`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from jackfield_channel_webhook.rules import Rule, parse_rule

__all__ = ["HmacSettings", "MapSettings", "Verify", "WebhookSettings"]

Verify = Literal["standard", "github", "bearer", "hmac", "timed", "none"]

_HEADER = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$"


def _names(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _rule(text: str) -> str:
    parse_rule(text)
    return text


SecretNames = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_names), Field(max_length=10)]
RuleText = Annotated[str, Field(max_length=8192)]


class HmacSettings(BaseModel):
    """How the sender of a hook with `verify = "hmac"` or `"timed"` signs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    header: str = Field(default="X-Signature", pattern=_HEADER)
    """The header with the signature."""
    prefix: str = Field(default="", max_length=100)
    """What stands before the signature in it, such as `sha256=`."""
    algorithm: Literal["sha1", "sha256", "sha512"] = "sha256"
    """The hash of the HMAC."""
    encoding: Literal["hex", "base64"] = "hex"
    """How the signature is written."""
    template: str = Field(default="{body}", max_length=200)
    """What is signed: text with `{body}` once, and `{timestamp}` where there is a `timestamp_header`."""
    timestamp_header: str | None = Field(default=None, pattern=_HEADER)
    """The header with the time, in seconds since 1970."""
    scheme: str = Field(default="v1", max_length=20)
    """With `verify = "timed"`: the name of the signatures in `t=1700000000,v1=...`."""

    @field_validator("template")
    @classmethod
    def _has_body(cls, value: str) -> str:
        if value.count("{body}") != 1:
            raise ValueError("it must hold {body} once")
        return value

    @field_validator("timestamp_header")
    @classmethod
    def _is_signed(cls, value: str | None, info: ValidationInfo) -> str | None:
        if ("{timestamp}" in info.data.get("template", "")) != (value is not None):
            raise ValueError(
                "set it, and have {timestamp} in the template, or neither: an unsigned time proves nothing"
            )
        return value


class MapSettings(BaseModel):
    """What becomes of a body: each a path like `$.alert.title`, or a template like `{{ body.alert.title }}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: RuleText | None = None
    """What the agent reads. A delivery for which it is empty is acknowledged and left out. Without it: the field
    `text` if there is one, else the whole body."""
    id: RuleText | None = None
    """What tells one message from another; needed where the sender signs no id of its own."""
    thread: RuleText | None = None
    """Deliveries with the same value belong together, and are answered with it."""
    chat: RuleText | None = None
    """Splits a hook into several chats, such as one for each project."""
    user: RuleText | None = None
    """Who did it, as far as the sender tells; the hook itself without it."""
    user_name: RuleText | None = None
    """That person's name for reading."""
    bot: RuleText | None = None
    """Whether a program did it: yes for `true`, `yes`, `1` and `bot`."""

    @field_validator("*")
    @classmethod
    def _can_be_read(cls, value: str | None) -> str | None:
        return value if value is None else _rule(value)

    def rules(self) -> dict[str, Rule]:
        """The rules that are set, ready to use."""
        return {name: parse_rule(text) for name, text in self if text is not None}


class WebhookSettings(BaseModel):
    """What may be set for one hook."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    verify: Verify = "standard"
    """How a delivery proves who sent it: Standard Webhooks, GitHub's `X-Hub-Signature-256`, a bearer token, an HMAC
    as `hmac` describes it, the same in the form `t=...,v1=...` (`timed`), or not at all."""
    insecure: bool = False
    """Must be true for `verify = "none"`, which takes what programs on this machine send, unproved."""
    secrets: SecretNames = Field(default=(), validate_default=True)
    """Names of secrets. Any of them may have signed, so that one can be replaced by the next without a gap."""
    hmac: HmacSettings = HmacSettings()
    """How the sender signs, for `verify = "hmac"` and `"timed"`."""
    tolerance: float = Field(default=300.0, ge=1, le=604_800)
    """Seconds that a signed time may be old. As long as the sender's retries, where those keep the first time; what
    came once is known for 7 days and not taken twice."""
    max_bytes: int = Field(default=262_144, ge=1, le=10_485_760)
    """Bytes that a body may have."""
    map: MapSettings = MapSettings()
    """What becomes of a body."""
    wait_limit: float = Field(default=30.0, ge=0, le=50)
    """Seconds that `?wait=` may ask for at most; 0 refuses it."""
    url: str | None = Field(default=None, max_length=2000, pattern=r"^https?://[^\s/?#@]+([/?][^\s#]*)?$")
    """Where answers are posted. Without it (and `url_secret`) only `?wait=` is answered."""
    url_secret: str | None = Field(default=None, min_length=1)
    """Name of a secret that holds the URL, for one that is a credential itself."""
    sign: SecretNames | None = None
    """Names of secrets that sign what is posted, as Standard Webhooks; `secrets` without it, and none if empty."""
    allow_private: bool = False
    """Whether `url` may lead to an address that is not public, such as this machine's own."""
    idempotent: bool = False
    """The receiver drops a second request with the same `webhook-id`, as the standard asks of it."""

    @field_validator("insecure")
    @classmethod
    def _is_meant(cls, value: bool, info: ValidationInfo) -> bool:
        if info.data.get("verify") != "none" and value:
            raise ValueError('it belongs to verify = "none" only')
        return value

    @field_validator("secrets")
    @classmethod
    def _are_needed(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        verify = info.data.get("verify")
        if verify == "none" and not info.data.get("insecure"):
            raise ValueError(
                'verify = "none" takes what anybody on this machine sends: say insecure = true if you mean it'
            )
        if verify not in ("none", None) and not value:
            raise ValueError(f'verify = "{verify}" needs the name of at least one secret')
        return value

    @field_validator("url_secret")
    @classmethod
    def _one_url(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("url") is not None:
            raise ValueError("set url or url_secret, not both")
        return value
