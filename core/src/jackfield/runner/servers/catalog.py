"""What an MCP server offers and answers, read as the work of a stranger.  Pure.

A tool that can't be used is left out and named; it spoils nothing else of its server (C174).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from jackfield.api import ToolResult

__all__ = ["MOST_TOOLS", "RESULT_LIMIT", "Catalog", "Offered", "read_result", "read_tools"]

Json = Any  # what JSON gives: the peer may send anything

MOST_TOOLS = 100
"""Tools of one server."""
RESULT_LIMIT = 100_000
"""Characters of one result."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_NAME = 64
"""Of the server's and the tool's name together: engines take no longer ones."""
_DESCRIPTION = 4096
_SCHEMA_BYTES = 32 * 1024
_SCHEMA_PARTS = 2000
_TOLD = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A tool as the model is told of it; `called` is what its server calls it."""

    name: str
    called: str
    description: str
    schema: dict[str, Json] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Catalog:
    """The tools of a server that can be used, and what is wrong with the others."""

    tools: tuple[Offered, ...] = ()
    refused: tuple[str, ...] = ()


def read_tools(server: str, listed: Iterable[Json]) -> Catalog:
    """The tools of a `tools/list`.  The first of two with one name is taken, and no more than `MOST_TOOLS`."""
    tools: dict[str, Offered] = {}
    refused: list[str] = []
    for count, item in enumerate(listed):
        if len(tools) >= MOST_TOOLS:
            refused.append(f"all from number {count + 1} on: at most {MOST_TOOLS} tools are taken")
            break
        try:
            tool = _tool(server, item)
            if tool.name in tools:
                raise _Unusable(f"{tool.name} is there already")
        except _Unusable as problem:
            refused.append(f"{_shown(item)}: {problem}")
            continue
        tools[tool.name] = tool
    return Catalog(tuple(tools.values()), tuple(refused))


class _Unusable(ValueError):
    pass


def _shown(item: Json) -> str:
    name = item.get("name") if isinstance(item, dict) else item
    return ascii(name)[:80]


def _tool(server: str, item: Json) -> Offered:
    if not isinstance(item, dict):
        raise _Unusable("it is no object")
    called = item.get("name")
    # Dots and slashes are allowed in MCP and not by the engines.
    short = re.sub(r"[./]", "_", called) if isinstance(called, str) else ""
    name = f"{server}__{short}"
    if not isinstance(called, str) or _NAME.fullmatch(short) is None or len(name) > _LONGEST_NAME:
        raise _Unusable(f"its name can't be used; letters, digits, _ and -, {_LONGEST_NAME} with {server}__ in all")
    description = item.get("description") or item.get("title") or ""
    if not isinstance(description, str):
        raise _Unusable("its description is no text")
    return Offered(
        name=name,
        called=called,
        description=_clean(description)[:_DESCRIPTION],
        schema=_schema(item.get("inputSchema")),
    )


def _schema(given: Json) -> dict[str, Json]:
    """The schema of one object, without references: some engines refuse them (spec/providers.md 6)."""
    if given is None:
        given = {}
    if not isinstance(given, dict) or given.get("type", "object") != "object":
        raise _Unusable("its parameters are no object")
    if not isinstance(given.get("properties", {}), dict):
        raise _Unusable("its properties are no table")
    definitions = {
        f"#/{key}/{name}": part
        for key in ("$defs", "definitions")
        if isinstance(given.get(key), dict)
        for name, part in given[key].items()
    }
    budget = [_SCHEMA_PARTS]
    body = {key: value for key, value in given.items() if key not in ("$defs", "definitions", "$schema", "$id")}
    try:
        schema: dict[str, Json] = _inlined(body, definitions, (), budget)
        size = len(json.dumps(schema).encode())
    except (RecursionError, ValueError, TypeError) as problem:
        raise _Unusable(f"its schema can't be used: {str(problem)[:_TOLD]}") from None
    if size > _SCHEMA_BYTES:
        raise _Unusable(f"its schema has more than {_SCHEMA_BYTES:,} bytes")
    return {**schema, "type": "object", "properties": schema.get("properties", {})}


def _inlined(value: Json, definitions: dict[str, Json], inside: tuple[str, ...], budget: list[int]) -> Json:
    """The value with what its references stand for; one that leads back to itself becomes "anything"."""
    budget[0] -= 1
    if budget[0] < 0:
        raise ValueError(f"it has more than {_SCHEMA_PARTS:,} parts")
    if isinstance(value, list):
        return [_inlined(item, definitions, inside, budget) for item in value]
    if not isinstance(value, dict):
        return value
    reference = value.get("$ref")
    if isinstance(reference, str):
        rest = {key: item for key, item in value.items() if key != "$ref"}
        if reference in inside or reference not in definitions:
            return _inlined(rest, definitions, inside, budget)
        part = _inlined(definitions[reference], definitions, (*inside, reference), budget)
        beside = _inlined(rest, definitions, inside, budget)
        return {**part, **beside} if isinstance(part, dict) else beside
    return {key: _inlined(item, definitions, inside, budget) for key, item in value.items()}


def read_result(result: Json) -> ToolResult:
    """A `tools/call` result as the one text that a model gets.  What is no text is named; too long a text is cut."""
    if not isinstance(result, dict):
        return ToolResult(text="Error: the server's answer is no result", is_error=True)
    content = result.get("content")
    parts = [_part(item) for item in content[:1000]] if isinstance(content, list) else []
    text = "\n".join(part for part in parts if part)
    if not text and result.get("structuredContent") is not None:
        text = json.dumps(result["structuredContent"], ensure_ascii=False)
    text = _clean(text)
    if len(text) > RESULT_LIMIT:
        text = f"{text[:RESULT_LIMIT]}\n[cut here: {len(text) - RESULT_LIMIT:,} characters more]"
    failed = result.get("isError") is True
    if failed and not text.startswith("Error"):
        text = f"Error: {text or 'the tool failed and said nothing'}"
    return ToolResult(text=text or "Done.", is_error=failed)


def _part(item: Json) -> str:
    if not isinstance(item, dict):
        return ""
    match item.get("type"):
        case "text":
            text = item.get("text")
            return text if isinstance(text, str) else ""
        case "resource":
            inner = item.get("resource")
            text = inner.get("text") if isinstance(inner, dict) else None
            return text if isinstance(text, str) else "[a file that is no text]"
        case "resource_link":
            return f"[{str(item.get('name'))[:_TOLD]}: {str(item.get('uri'))[:2000]}]"
        case "image" | "audio" as kind:
            data = item.get("data")
            size = len(data) * 3 // 4 if isinstance(data, str) else 0
            return f"[{kind} {str(item.get('mimeType'))[:_TOLD]}, {size:,} bytes, can't be shown as text]"
        case _:
            return ""


def _clean(text: str) -> str:
    """Without halves of characters, which nothing could store."""
    return text.encode("utf-8", "replace").decode("utf-8")
