"""The settings: `[channels.<instance>]` with `type = "irc"` in `jackfield.toml`."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

__all__ = ["IrcSettings"]

NICK = r"^[A-Za-z_\[\]\\`^{}|][A-Za-z0-9_\[\]\\`^{}|-]{0,49}$"
ROOM = r"^[#&+!][^\x00-\x20,:\x7f]{1,199}$"

Nick = Annotated[str, Field(pattern=NICK)]
Room = Annotated[str, Field(pattern=ROOM)]
SecretName = Annotated[str, Field(min_length=1)]


class IrcSettings(BaseModel):
    """What may be set for one network."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(min_length=1, max_length=253, pattern=r"^[^\s/]+$")
    """The server's name or address."""
    port: int = Field(default=6697, ge=1, le=65535)
    """The server's port."""
    tls: bool = True
    """Encrypt the connection. Off only for a server or bouncer on this machine."""
    tls_verify: bool = True
    """Have the server prove its name. Without it anybody between can read along, passwords too."""
    ca_file: str | None = None
    """A PEM file with the authority that signed the server's certificate, for one that the system does not know."""
    cert_file: str | None = None
    """A PEM file with a client certificate and its key, for `sasl = "external"`."""
    nick: Nick
    """What people call the bot."""
    alternates: Annotated[tuple[Nick, ...], Field(max_length=10)] = ()
    """Other nicks, tried in this order while the first is taken; then the first with `_` behind it. The first is taken
    back as soon as it is free."""
    user: str = Field(default="jackfield", pattern=r"^[A-Za-z0-9_.-]{1,20}$")
    """The user name, which stands before the host in `nick!user@host`."""
    real_name: str = Field(default="Jackfield", min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")
    """What `/whois` shows."""
    password: SecretName | None = None
    """Name of the secret with the server's password."""
    sasl: Literal["none", "plain", "external"] = "none"
    """How the bot logs in to its account: not, with a password, or by its client certificate."""
    account: str | None = Field(default=None, min_length=1, max_length=100, pattern=r"^[^\x00-\x20\x7f]+$")
    """The account's name; the nick without it."""
    account_password: SecretName | None = None
    """Name of the secret with the account's password, for `sasl = "plain"`."""
    channels: Annotated[tuple[Room, ...], Field(max_length=200)] = ()
    """Where the bot is: joined at the start, and again after a kick."""
    keys: dict[Room, SecretName] = Field(default_factory=dict)
    """Names of secrets with the keys of channels that need one."""
    burst: int = Field(default=5, ge=1, le=100)
    """Lines that may be sent at once."""
    line_seconds: float = Field(default=2.0, ge=0.0, le=60.0)
    """Seconds a line after that; less only where the server allows it."""

    @field_validator("keys")
    @classmethod
    def _one_key_each(cls, value: dict[str, str]) -> dict[str, str]:
        folded = [name.lower() for name in value]
        if len(set(folded)) != len(folded):
            raise ValueError("a channel has two keys")
        return value

    @model_validator(mode="after")
    def _fits(self) -> IrcSettings:
        if not self.tls and not is_loopback(self.host):
            raise ValueError(f"tls = false is for a server on this machine, and {self.host} is not: set tls = true")
        if not self.tls and (self.ca_file or self.cert_file or self.sasl == "external"):
            raise ValueError('ca_file, cert_file and sasl = "external" need tls = true')
        if self.sasl == "plain" and self.account_password is None:
            raise ValueError('sasl = "plain" needs account_password, the name of a secret')
        if self.sasl == "external" and self.cert_file is None:
            raise ValueError('sasl = "external" needs cert_file')
        known = {name.lower() for name in self.channels}
        if unknown := [name for name in self.keys if name.lower() not in known]:
            raise ValueError(f"keys names {unknown[0]}, which is not in channels")
        return self


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine are reached there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
