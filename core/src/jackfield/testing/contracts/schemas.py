"""What a tool's JSON Schema may look like, and arguments made from one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["faults_of", "sample", "wrong_values"]

_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
_WRONG: dict[str, tuple[Any, ...]] = {
    "string": ({"a": 1}, [1], 7),
    "integer": ("many", {}, 1.5),
    "number": ("much", [], {}),
    "boolean": ("perhaps", {}, 17),
    "array": ({"a": 1}, 7),
    "object": ("text", 7),
}


def faults_of(schema: Any, place: str = "$") -> Iterator[str]:
    """What some engine would stumble over: references, unknown types, required names that are no properties."""
    if not isinstance(schema, dict):
        yield f"{place} is {schema!r}, no schema"
        return
    for key in ("$ref", "$defs", "definitions", "allOf", "oneOf", "if", "patternProperties"):
        if key in schema:
            yield f"{place} uses {key!r}, which several engines refuse; use plain parameters"
    kind = schema.get("type")
    if kind is not None and kind not in _TYPES:
        yield f"{place} has the type {kind!r}, allowed are {', '.join(_TYPES)}"
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        yield f"{place}.properties is no object"
        return
    for name in schema.get("required", ()):
        if name not in properties:
            yield f"{place} requires {name!r}, which is no property"
    for name, inner in properties.items():
        yield from faults_of(inner, f"{place}.{name}")
    if "items" in schema:
        yield from faults_of(schema["items"], f"{place}[]")
    for number, inner in enumerate(schema.get("anyOf", ())):
        yield from faults_of(inner, f"{place}|{number}")


def sample(schema: dict[str, Any], text: str = "x") -> Any:
    """A value that fits the schema; every text in it is `text` where nothing else is asked for."""
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    if schema.get("anyOf"):
        return sample(schema["anyOf"][0], text)
    match schema.get("type"):
        case "string":
            least = int(schema.get("minLength", 0))
            return (text * (least or 1))[: schema.get("maxLength")] if len(text) < least else text
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return False
        case "array":
            return [sample(schema.get("items", {}), text) for _ in range(max(1, int(schema.get("minItems", 0))))]
        case "object":
            required = schema.get("required", ())
            return {
                name: sample(inner, text) for name, inner in schema.get("properties", {}).items() if name in required
            }
        case _:
            return text


def _number(schema: dict[str, Any]) -> float | int:
    if "minimum" in schema:
        return int(schema["minimum"])
    if "exclusiveMinimum" in schema:
        return int(schema["exclusiveMinimum"]) + 1
    if "maximum" in schema:
        return min(1, int(schema["maximum"]))
    return 1


def wrong_values(schema: dict[str, Any]) -> tuple[Any, ...]:
    """Values that a parameter of one plain type can't take."""
    return _WRONG.get(str(schema.get("type")), ()) if "anyOf" not in schema and "enum" not in schema else ()
