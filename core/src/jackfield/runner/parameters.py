"""What a tool's parameters are, as a pydantic model and as JSON Schema.

In a module of its own: pydantic is loaded when a tool is first called or described to an engine, not at the start.
"""

from __future__ import annotations

import inspect
import typing
from functools import cached_property
from typing import Annotated, Any

import pydantic

from jackfield.api import Tool

__all__ = ["BadArguments", "Parameters", "model_of", "schema_of"]


class BadArguments(ValueError):
    """What the model should read about its arguments."""


class Parameters:
    """A tool's parameters."""

    def __init__(self, tool: Tool) -> None:
        self._model = model_of(tool)

    @cached_property
    def schema(self) -> dict[str, Any]:
        return schema_of(self._model)

    def read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments, validated, by name.

        Raises:
            BadArguments: they don't fit; every fault is named.
        """
        try:
            values = self._model.model_validate(arguments)
        except pydantic.ValidationError as problem:
            raise BadArguments(_faults(problem)) from None
        return {name: getattr(values, name) for name in type(values).model_fields}


def model_of(tool: Tool) -> type[pydantic.BaseModel]:
    """A pydantic model of a tool's parameters but the first, which is the context."""
    function = tool.function
    parameters = list(inspect.signature(function).parameters.values())[1:]
    # Only these annotations are evaluated: the context's may be imported for type checkers alone.
    notes = {p.name: p.annotation for p in parameters if p.annotation is not inspect.Parameter.empty}
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    hints = typing.get_type_hints(type("_", (), {"__annotations__": notes}), scope, None, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in parameters:
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[parameter.name] = (_described(hints.get(parameter.name, Any)), default)
    config = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    return pydantic.create_model(tool.name, __config__=config, **fields)


def _described(hint: Any) -> Any:
    if typing.get_origin(hint) is not Annotated:
        return hint
    inner, *notes = typing.get_args(hint)
    notes = [pydantic.Field(description=note) if isinstance(note, str) else note for note in notes]
    return Annotated[(inner, *notes)]


def schema_of(model: type[pydantic.BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a model: one object without references, titles and `null` alternatives, because some engines
    refuse them (spec/providers.md 6)."""
    schema = model.model_json_schema()
    found: dict[str, Any] = _flat(schema, schema.pop("$defs", {}))
    found.setdefault("properties", {})
    return found


def _flat(value: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_flat(item, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[-1]
        beside = {key: item for key, item in value.items() if key != "$ref"}
        return _flat({**definitions.get(name, {}), **beside}, {k: v for k, v in definitions.items() if k != name})
    found = {
        key: {name: _flat(item, definitions) for name, item in part.items()}
        if key == "properties"
        else _flat(part, definitions)
        for key, part in value.items()
        if key != "title" and not (key == "default" and part is None)
    }
    choices = found.get("anyOf")
    if isinstance(choices, list):
        rest = [choice for choice in choices if choice != {"type": "null"}]
        if len(rest) == 1:
            del found["anyOf"]
            found = {**rest[0], **found}
        else:
            found["anyOf"] = rest
    return found


def _faults(problem: pydantic.ValidationError) -> str:
    faults = []
    for fault in problem.errors(include_url=False, include_context=False):
        place = ".".join(map(str, fault["loc"])) or "arguments"
        shown = "" if fault["type"] == "missing" else f" (got {repr(fault['input'])[:80]})"
        faults.append(f"{place}: {fault['msg']}{shown}")
    return "these arguments can't be used: " + "; ".join(faults)
