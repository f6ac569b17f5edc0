"""Values against a settings model: what is unknown, what is wrong, on which line, and what would do."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from jackfield.config.lines import KeyPath, line_of
from jackfield.config.problems import BadValue, Problem, Severity, near, shown

__all__ = ["Checked", "Text", "check_table"]

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Text:
    """The text of a file and where its keys are."""

    file: Path
    lines: Mapping[KeyPath, int]

    def problem(
        self,
        path: KeyPath,
        message: str,
        severity: Severity,
        *,
        allowed: str | None = None,
        suggestion: str | None = None,
    ) -> Problem:
        return Problem(
            file=self.file,
            line=line_of(self.lines, path),
            key=".".join(path),
            message=message,
            severity=severity,
            allowed=allowed,
            suggestion=suggestion,
        )


@dataclass(frozen=True)
class Checked(Generic[M]):
    """`settings` is None when a value is wrong and there is no default to fall back on."""

    settings: M | None
    problems: tuple[Problem, ...]


def check_table(
    model: type[M], table: Mapping[str, Any], text: Text, prefix: KeyPath = (), *, fall_back: bool = False
) -> Checked[M]:
    """Validate `table`, which lies at `prefix` of the file, against `model`.

    Unknown keys are warnings and are left out.  A wrong value is an error; with `fall_back` it is left out as well,
    so that its default stands, else the whole table has no settings.
    """
    problems: list[Problem] = []
    clean = _known(model, table, text, prefix, problems)
    for _ in range(len(problems) + _leaves(clean) + 1):
        try:
            return Checked(model.model_validate(clean), tuple(problems))
        except ValidationError as error:
            found = error.errors(include_url=False)
            new = [_problem(model, clean, detail, text, prefix) for detail in found]
            problems.extend(problem for problem in new if problem not in problems)
            if not fall_back or not _without(clean, found):
                break
    return Checked(None, tuple(problems))


def _known(
    model: type[BaseModel], table: Mapping[str, Any], text: Text, prefix: KeyPath, problems: list[Problem]
) -> dict[str, Any]:
    """The table without what the model doesn't know, at every depth."""
    out: dict[str, Any] = {}
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    if model.model_config.get("populate_by_name") or model.model_config.get("validate_by_name"):
        fields.update(model.model_fields)
    for key, value in table.items():
        if key not in fields:
            if model.model_config.get("extra") == "allow":
                out[key] = value
                continue
            message = "unknown key" if not isinstance(value, dict) else "unknown table"
            problems.append(
                text.problem(
                    (*prefix, key), message, Severity.WARNING, suggestion=near(key, fields), allowed=_names(key, fields)
                )
            )
            continue
        inner = _inner_model(fields[key].annotation)
        if inner is not None and isinstance(value, dict):
            value = _known(inner, value, text, (*prefix, key), problems)
        named = _model_of_values(fields[key].annotation)
        if named is not None and isinstance(value, dict):
            value = {
                name: _known(named, one, text, (*prefix, key, name), problems) if isinstance(one, dict) else one
                for name, one in value.items()
            }
        out[key] = value
    return out


def _names(key: str, known: Mapping[str, object]) -> str | None:
    """All known names, but only where no near one says it better."""
    if near(key, known) is not None or not known:
        return None
    return ", ".join(sorted(known))


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation, or one side of its union, stands for."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, BaseModel) else None
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        models = [inner for part in typing.get_args(annotation) if (inner := _inner_model(part)) is not None]
        return models[0] if len(models) == 1 else None
    return None


def _model_of_values(annotation: Any) -> type[BaseModel] | None:
    """The model of each value, where the annotation is a table of them."""
    if typing.get_origin(annotation) is not dict:
        return None
    return _inner_model(typing.get_args(annotation)[1])


def _field(model: type[BaseModel], path: Sequence[int | str]) -> FieldInfo | None:
    current: type[BaseModel] | None = model
    field: FieldInfo | None = None
    for part in path:
        if current is None or not isinstance(part, str):
            return field
        field = current.model_fields.get(part) or next(
            (one for one in current.model_fields.values() if one.alias == part), None
        )
        if field is None:
            return None
        current = _inner_model(field.annotation)
    return field


def _located(table: Mapping[str, Any], error: ErrorDetails) -> KeyPath:
    """The keys of an error's place that are keys of the table; pydantic also names union members and indexes there."""
    path: list[str] = []
    current: Any = table
    for part in error["loc"]:
        if isinstance(current, list) and isinstance(part, int) and part < len(current):
            current = current[part]
            continue
        if not isinstance(current, dict) or not isinstance(part, str):
            break
        if part not in current:
            if error["type"] == "missing":
                path.append(part)
            break
        path.append(part)
        current = current[part]
    return tuple(path)


def _problem(
    model: type[BaseModel], table: Mapping[str, Any], error: ErrorDetails, text: Text, prefix: KeyPath
) -> Problem:
    where = _located(table, error)
    path = (*prefix, *where)
    kind, context = error["type"], error.get("ctx", {})
    value = shown(path[-1] if path else "", error.get("input"))
    if kind == "missing":
        field = _field(model, where)
        hint = f" ({field.description})" if field is not None and field.description else ""
        return text.problem(path, f"it is missing and has no default{hint}", Severity.ERROR)
    if kind == "literal_error":
        choices = _choices(_field(model, where))
        guess = error.get("input")
        return text.problem(
            path,
            f"{value} is none of the possible values",
            Severity.ERROR,
            allowed=", ".join(repr(choice) for choice in choices) or str(context.get("expected")),
            suggestion=near(guess, choices) if isinstance(guess, str) else None,
        )
    if kind == "value_error":
        reason = context.get("error")
        return text.problem(
            path,
            f"{value} can't be used: {reason or error['msg']}",
            Severity.ERROR,
            allowed=reason.allowed if isinstance(reason, BadValue) else None,
            suggestion=reason.suggestion if isinstance(reason, BadValue) else None,
        )
    allowed = _ALLOWED.get(kind, "").format_map(_Blank(context)) or None
    message = f"{value} can't be used" if allowed else f"{value} can't be used: {error['msg'].lower()}"
    return text.problem(path, message, Severity.ERROR, allowed=allowed)


class _Blank(dict[str, Any]):
    """An error's context, whole numbers without a fraction."""

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def __missing__(self, key: str) -> str:
        return "?"


_ALLOWED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a text in quotes",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "list_type": "a list",
    "tuple_type": "a list",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "string_pattern_mismatch": "a text like {pattern}",
    "string_too_short": "a text of {min_length} or more characters",
    "string_too_long": "a text of at most {max_length} characters",
    "too_long": "at most {max_length} entries",
}


def _choices(field: FieldInfo | None) -> list[str]:
    """The words of a `Literal`, wherever in the annotation it is."""
    found: list[str] = []

    def walk(annotation: Any) -> None:
        if typing.get_origin(annotation) is typing.Literal:
            found.extend(str(word) for word in typing.get_args(annotation))
        else:
            for part in typing.get_args(annotation):
                walk(part)

    if field is not None:
        walk(field.annotation)
    return found


def _leaves(table: Mapping[str, Any]) -> int:
    return sum(1 + (_leaves(value) if isinstance(value, dict) else 0) for value in table.values())


def _without(table: dict[str, Any], errors: Sequence[ErrorDetails]) -> bool:
    """Take the wrong values out of `table`; whether there was anything to take out."""
    taken = False
    for error in errors:
        current: Any = table
        where = _located(table, error)
        for part in where[:-1]:
            current = current[part]
        if where and isinstance(current, dict) and where[-1] in current:
            del current[where[-1]]
            taken = True
    return taken
