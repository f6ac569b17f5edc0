"""Work that an agent does at a time of its own: series, their occurrences, and what becomes of each run.

What falls due and what follows from an end is decided in `times`, `plan` and `wishes`, from values to values; the units
of work in `claiming` make it durable; `Schedule` runs it, `Series` changes it, `TaskDesk` is its door for agents.
"""

from __future__ import annotations

from jackfield.host.schedule.desk import TaskDesk
from jackfield.host.schedule.schedule import Schedule
from jackfield.host.schedule.series import Series

__all__ = ["Schedule", "Series", "TaskDesk"]
