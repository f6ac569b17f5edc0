"""The messaging tools keep the contract of tool sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from jackfield.testing import ToolRecorder, ToolsContract


class TestMessaging(ToolsContract):
    plugin = "messaging"
    examples: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "send_message": {"text": "hello", "to": "home"},
        "send_file": {"path": "report.txt", "text": "here"},
        "edit_message": {"message_id": 3, "text": "better"},
        "add_reaction": {"message_id": 3, "emoji": "thumbs_up"},
        "send_card": {"title": "Build", "fields": [{"name": "State", "value": "green"}]},
        "ask_user_question": {"title": "Drink", "question": "What?", "options": ["Tea", "Coffee"], "timeout": 5},
    }

    def prepare(self, context: ToolRecorder) -> None:
        (context.workspace / "report.txt").write_text("all is well", encoding="utf-8")
