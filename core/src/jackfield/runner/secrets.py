"""The secrets of this runner: read once from the descriptor that it was started with, and nowhere else to be found.

They lie in this process's memory only: not in its environment, its command line, `session.json` or a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from jackfield.errors import MalformedData
from jackfield.models.reserved import GATEWAY_TOKEN

if TYPE_CHECKING:
    from jackfield.api import ToolResult
    from jackfield.redaction import Redactor

__all__ = ["DESCRIPTOR", "Secrets", "read_secrets", "resolve_all"]

T = TypeVar("T")
DESCRIPTOR = "JACKFIELD_SECRETS_FD"
"""The environment variable with the number of that descriptor; there is none when the agent has no secret."""


class Secrets(Mapping[str, str]):
    """By name.  Whoever takes one is noted as having used it."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})
        self.gateway_token = self._values.pop(GATEWAY_TOKEN, "")
        """By what the model gateway knows this session; for its provider only, so it is none of them."""
        self._used: list[str] = []
        self._on_use: Callable[[str], None] = self._used.append
        self._redactor: Redactor | None = None

    def tell(self, on_use: Callable[[str], None]) -> None:
        """From now on `on_use` is called with the name of each that is used, and now with those used before."""
        self._on_use = on_use
        for name in self._used:
            on_use(name)
        self._used.clear()

    def masked(self, value: T) -> T:
        """A text, or JSON values, without any of them: what a tool says goes to a model, and from there anywhere."""
        if not self._values and not self.gateway_token:
            return value
        if self._redactor is None:
            from jackfield.redaction import Redactor

            self._redactor = Redactor()
            self._redactor.register(*self._values.values(), self.gateway_token)
        return cast(T, self._redactor.inside(value))

    def without(self, result: ToolResult) -> ToolResult:
        """A tool's answer without any of them, whatever the tool met on its way."""
        return replace(result, text=self.masked(result.text)) if self._values or self.gateway_token else result

    def __getitem__(self, name: str) -> str:
        value = self._values[name]
        self._on_use(name)
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Secrets({sorted(self._values)})"


def read_secrets() -> Secrets:
    """Take them from the descriptor, which is closed, and forget where it was.

    Raises:
        MalformedData: what lies there is not what a host writes.
    """
    number = os.environ.pop(DESCRIPTOR, "")
    if not number:
        return Secrets()
    try:
        with os.fdopen(int(number), "rb") as stream:
            values = json.loads(stream.read())
    except (OSError, ValueError):
        values = None
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise MalformedData(f"descriptor {number} holds no secrets, although {DESCRIPTOR} says so")
    return Secrets(values)


def resolve_all(value: Any, secrets: Mapping[str, str]) -> Any:
    """Settings with each `secret:NAME` in them replaced, in tables and lists, too.

    Raises:
        NoSecret: one that is referred to is not among the secrets.
    """
    from jackfield.models.secret_references import resolved

    if isinstance(value, str):
        return resolved(value, secrets)
    if isinstance(value, dict):
        return {key: resolve_all(one, secrets) for key, one in value.items()}
    if isinstance(value, list):
        return [resolve_all(one, secrets) for one in value]
    return value
