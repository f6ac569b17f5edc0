"""The schedule tools keep the contract of tool sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from jackfield.testing import ToolsContract

TASK = {
    "id": "tsk_0123456789abcdefghjk",
    "state": "active",
    "prompt": "Water the plants",
    "next_at": 1_800_000_000_000,
    "next_local": "Jan 15, 2027, 8:00 AM (UTC)",
    "timezone": "UTC",
    "cron": "0 8 * * *",
    "script": None,
    "catch_up": "latest",
    "stop_after": None,
    "place": "terminal:terminal:andy",
    "elsewhere": False,
    "running": False,
    "failures": 0,
    "reason": None,
}
OUTCOME = {"task": TASK, "begun": False}


class TestSchedule(ToolsContract):
    plugin = "schedule"
    examples: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "schedule_task": {"prompt": "Water the plants", "cron": "0 8 * * *"},
        "list_tasks": {"state": "active"},
        "update_task": {"task_id": TASK["id"], "prompt": "Water the plants well"},
        "pause_task": {"task_id": TASK["id"]},
        "resume_task": {"task_id": TASK["id"]},
        "cancel_task": {"task_id": TASK["id"]},
    }
    answers: ClassVar[Mapping[str, Any]] = {
        "schedule_task": {"task": TASK},
        "list_tasks": {"tasks": [TASK]},
        "update_task": OUTCOME,
        "pause_task": OUTCOME,
        "resume_task": OUTCOME,
        "cancel_task": OUTCOME,
    }
