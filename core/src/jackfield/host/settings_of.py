"""A plugin's settings, checked by the plugin's own model, with the errors in the operator's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jackfield.errors import ConfigError

__all__ = ["validated"]


def validated(model: type[Any] | None, values: Mapping[str, Any], where: str) -> Any:
    """An instance of the plugin's settings model, or a dict when it has none.

    Raises:
        ConfigError: a value is wrong or unknown; every problem is named, with its key.
    """
    if model is None:
        return dict(values)
    from pydantic import ValidationError

    try:
        return model.model_validate(dict(values))
    except ValidationError as problem:
        lines = [f"{'.'.join(map(str, error['loc'])) or 'settings'}: {_said(error)}" for error in problem.errors()]
        raise ConfigError(f"{where} can't be used: " + "; ".join(lines), fix="correct it in jackfield.toml") from None


def _said(error: Mapping[str, Any]) -> str:
    return "it is needed" if error["type"] == "missing" else str(error["msg"]).removeprefix("Value error, ")
