"""The settings: `[providers.mock]` of an `agent.toml`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from jackfield_provider_mock.defaults import Defaults
from jackfield_provider_mock.script import read_steps

__all__ = ["MockSettings"]


_UNSET = Defaults()


class MockSettings(BaseModel):
    """`[providers.mock]` of an `agent.toml`."""

    model_config = ConfigDict(extra="forbid")

    script: list[dict[str, Any]] | str | None = _UNSET.script
    """Steps, or the path of a TOML file with `[[steps]]`, relative to the workspace or the group's folder."""
    reply: str = _UNSET.reply
    """What is said when neither a step nor a command in the text says otherwise."""
    delay: float = Field(default=_UNSET.delay, ge=0)
    """Seconds before each turn's first action."""
    stream: bool = _UNSET.stream
    """Whether texts come in pieces before they are whole."""
    commands: bool = _UNSET.commands
    """Whether `mock: ...` in a message is obeyed."""

    @field_validator("script")
    @classmethod
    def _can_be_played(cls, value: list[dict[str, Any]] | str | None) -> list[dict[str, Any]] | str | None:
        if value == "":
            raise ValueError("script is empty: leave it out, or name a TOML file")
        if isinstance(value, list):
            read_steps(value)
        return value
