"""The agents tools keep the contract of tool sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from jackfield.testing import ToolsContract


class TestAgents(ToolsContract):
    plugin = "agents"
    examples: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "create_agent": {"name": "Research Bot", "instructions": "Look things up."},
        "list_agents": {},
    }
    answers: ClassVar[Mapping[str, Any]] = {"create_agent": {"approval": "ap_0123456789abcdefghjk", "state": "pending"}}
