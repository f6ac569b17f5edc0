"""What this machine isolates, proved by a run and never by looking for a program or a version."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jackfield.api import Isolation, RuntimeHealth
from jackfield.process.settings import ProcessSettings
from jackfield.process.view import NOTHING, Confinement

__all__ = ["Proof", "prove"]


@dataclass(frozen=True, slots=True)
class Proof:
    confinement: Confinement
    health: RuntimeHealth


async def prove(settings: ProcessSettings, folder: Path, *, uid: int | None) -> Proof:
    """The best level that the settings ask for and a run has shown to hold."""
    return Proof(NOTHING, RuntimeHealth(ok=True, isolation=Isolation.NONE, detail="not probed yet"))
