"""The settings: `[channels.<instance>]` with `type = "terminal"` in `jackfield.toml`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["TerminalSettings"]


class TerminalSettings(BaseModel):
    """What may be set for a terminal."""

    model_config = ConfigDict(extra="forbid")

    group: str | None = None
    """The folder of the group to talk to when a client names none."""
    keep_files_days: int = Field(default=30, ge=0)
    """How long files that agents sent are kept in the channel's folder; 0 keeps them for good."""
    file_limit: int = Field(default=50 * 1024 * 1024, ge=1)
    """Bytes that one file of a person may have."""
    confirm_seconds: float = Field(default=10.0, gt=0)
    """How long an attached client may take to confirm that it showed a message."""
