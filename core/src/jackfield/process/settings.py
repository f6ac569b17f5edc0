"""`[runtimes.process]`: what an operator may say about the built-in runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["IsolationChoice", "ProcessSettings"]

IsolationChoice = Literal["auto", "namespaces", "restricted", "none"]


class ProcessSettings(BaseModel):
    """Everything has a default that suits most machines."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    isolation: IsolationChoice = "auto"
    """`auto` takes the best level that a probe proves; any other is that level or a refusal.  `none` runs agents with
    the host's own rights."""

    network: bool = True
    """Whether runners reach the network.  Providers that run in the runner need it."""

    memory: int | None = Field(default=None, ge=64 * 1024 * 1024)
    """Bytes of address space for each process; None sets no limit.  Engines on Node.js reserve many GiB."""

    processes: int = Field(default=256, ge=8)
    """At most so many processes and threads for each agent group, where the kernel can count them for itself."""

    file_size: int = Field(default=104_857_600, ge=1024 * 1024)
    """Bytes of the largest file that may be written."""

    open_files: int = Field(default=1024, ge=64)
    """How many files each process may hold open."""

    readable: tuple[Path, ...] = ()
    """More paths that runners may read: where engines and their tools are installed."""

    writable: tuple[Path, ...] = ()
    """More paths that runners may change; every agent group shares them."""

    pass_environment: tuple[str, ...] = ()
    """Names of variables of the host's environment that runners get too; never put a secret's name here."""

    launch_timeout: float = Field(default=30.0, gt=0)
    """Seconds until a runner that has not begun counts as failed."""

    nursery: bool = True
    """Fork runners from one process that has imported what they need, where the level is `namespaces`.  False starts an
    interpreter for each: a third of a second more of CPU time and 20 MB, for an address layout of its own."""
