"""The tools keep the contract of tool sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from jackfield.testing import ToolsContract

ASKED = {"approval": "ap_0123456789abcdefghjk", "state": "pending"}


class TestSelfmod(ToolsContract):
    plugin = "selfmod"
    examples: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "install_packages": {"reason": "to draw", "pip": ["pillow==11.1.0"]},
        "add_mcp_server": {"name": "files", "reason": "to read", "command": "npx", "args": ["-y", "files"]},
        "request_rebuild": {"reason": "an import fails"},
    }
    answers: ClassVar[Mapping[str, Any]] = dict.fromkeys(examples, ASKED)
