"""The mock keeps the contract of providers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from jackfield.errors import ProviderErrorKind
from jackfield.testing import ProviderContract, Stage


class Commands(Stage):
    """The mock obeys what a message says."""

    def say(self, text: str) -> str:
        return f"mock: say {text}"

    def call(self, *calls: tuple[str, Mapping[str, Any]]) -> str:
        return " ".join(f"mock: tool {name} {json.dumps(arguments)}" for name, arguments in calls)

    def go_on(self) -> str:
        return "mock: say working on it mock: hang"

    def fail(self, kind: ProviderErrorKind) -> str:
        return f"mock: fail {kind}"

    def fail_after(self, kind: ProviderErrorKind, call: tuple[str, Mapping[str, Any]]) -> str:
        return f"{self.call(call)} {self.fail(kind)}"

    def retry(self) -> str:
        return "mock: retry 0 overloaded mock: say done"

    def recall(self) -> str:
        return "mock: recall"

    def known_failures(self) -> Sequence[ProviderErrorKind]:
        return get_args(ProviderErrorKind)


class TestMock(ProviderContract):
    plugin = "mock"

    def make_stage(self) -> Stage:
        return Commands()


class TestMockThatDoesNotStream(TestMock):
    """The claims change with the settings, and are tried as they are declared then."""

    settings = {"stream": False}  # noqa: RUF012
