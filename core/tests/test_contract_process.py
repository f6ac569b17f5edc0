"""The built-in process runtime keeps the contract of runtimes, at whatever level this machine allows and at none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from jackfield.testing import RuntimeContract


class TestProcess(RuntimeContract):
    plugin = "process"


class TestProcessWithoutIsolation(RuntimeContract):
    plugin = "process"
    settings: ClassVar[Mapping[str, Any]] = {"isolation": "none"}
