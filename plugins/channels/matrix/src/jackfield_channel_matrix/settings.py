"""The settings: `[channels.<instance>]` with `type = "matrix"` in `jackfield.toml`."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

__all__ = ["MatrixSettings"]

_PATTERN = re.compile(r"\*|(?:\*|@[^\s:*]+):[^\s*]+|@\*:[^\s*]+")


def _names(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class MatrixSettings(BaseModel):
    """What may be set for one account."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    homeserver: str = Field(pattern=r"^https?://[^\s/?#]+(?:/[^\s?#]*)?$")
    """The homeserver's URL, such as `https://matrix.example.org`: what a client connects to, which may differ from the
    name behind the colon of a user id."""
    token: str | None = Field(default=None, min_length=1)
    """Name of the secret that holds an access token. Either this or `user` and `password`."""
    user: str | None = Field(default=None, min_length=1)
    """The account's id, such as `@andy:example.org`, for logging in by password."""
    password: str | None = Field(default=None, min_length=1)
    """Name of the secret that holds the password. It is used once; the token it brings is kept in the instance's
    folder."""
    device_name: str = Field(default="Jackfield", min_length=1, max_length=100)
    """How the session is called in the account's list of devices, when it logs in by password."""
    invites: Annotated[tuple[str, ...], BeforeValidator(_names)] = ()
    """Whose invitations are accepted: user ids, `*:example.org` for a whole server, `*` for everybody. Others wait
    unanswered."""
    encryption: bool = False
    """Take part in encrypted rooms. Needs `pip install 'jackfield-channel-matrix[e2e]'`. The keys are kept in the
    instance's folder."""
    stream_interval: float = Field(default=2.0, ge=0.5, le=60)
    """Seconds between two edits of an answer that grows. Homeservers allow few events a second unless told
    otherwise."""

    @field_validator("homeserver")
    @classmethod
    def _without_slash(cls, value: str) -> str:
        if "@" in value:
            raise ValueError("no user or password in the URL; set `user` and the secret `password`")
        return value.rstrip("/")

    @field_validator("user")
    @classmethod
    def _is_user_id(cls, value: str | None) -> str | None:
        if value is not None and re.fullmatch(r"@[^\s:]+:\S+", value) is None:
            raise ValueError("a whole user id such as @andy:example.org")
        return value

    @field_validator("invites")
    @classmethod
    def _are_patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            if _PATTERN.fullmatch(one) is None:
                raise ValueError(f"{one!r} is no user id, no *:server and not *")
        return value

    @model_validator(mode="after")
    def _one_login(self) -> Self:
        if (self.token is None) == (self.password is None):
            raise ValueError("set `token`, or `user` and `password`")
        if self.password is not None and self.user is None:
            raise ValueError("`password` needs `user`")
        return self

    def invited_by(self, user_id: str) -> bool:
        """Whether an invitation of this person is accepted."""
        server = user_id.partition(":")[2]
        return any(one in ("*", user_id) or one in (f"*:{server}", f"@*:{server}") for one in self.invites)
