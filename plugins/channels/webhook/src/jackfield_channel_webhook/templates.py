"""Templates in Jinja's notation, of which only what can't do harm is left: paths, conditions, loops, a few filters.

Calls, arithmetic, assignments, macros and imports are refused when the template is read, so that nothing in a body can
make it large or run long; Python's attributes are out of reach, because only keys of JSON objects are looked up.  What
is left is bounded in steps, time and output.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from jinja2 import ChainableUndefined, TemplateError, nodes
from jinja2.runtime import LoopContext, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from jackfield_channel_webhook.rules import shown

__all__ = ["TemplateFailed", "compile_template"]

STEPS = 10_000
"""Rounds of all loops together."""
SECONDS = 2.0
OUTPUT = 262_144
"""Characters."""
NESTED = 4
"""Loops within loops."""

_ALLOWED: tuple[type[nodes.Node], ...] = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.For, nodes.Name, nodes.Const, nodes.Getattr,
    nodes.Getitem, nodes.Filter, nodes.Test, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not,
    nodes.CondExpr, nodes.Tuple, nodes.List, nodes.Keyword,
)  # fmt: skip
_LOOP = frozenset({"index", "index0", "first", "last", "length", "revindex", "revindex0"})


class TemplateFailed(ValueError):
    """A template went over its bounds, or met data that it can't work with."""


class _Bounds:
    """What one rendering has left."""

    def __init__(self) -> None:
        self.steps = STEPS
        self.until = time.monotonic() + SECONDS

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise TemplateFailed(f"the template takes over {STEPS} steps")
        if time.monotonic() > self.until:
            raise TemplateFailed(f"the template takes over {SECONDS:g} s")


_bounds: ContextVar[_Bounds] = ContextVar("bounds")


def compile_template(source: str) -> Callable[[Any, Mapping[str, str]], str]:
    """A rule: `body` and `headers` (names in lower case) are what the template sees.

    Raises:
        ValueError: it is no template, or uses what is not allowed; the message says what, and on which line.
    """
    environment = _Environment()
    try:
        tree = environment.parse(source)
        _check(tree, 0)
        template = environment.from_string(tree)
    except TemplateError as problem:
        raise ValueError(f"the template is wrong: {problem.message or problem}") from None
    except RecursionError:
        raise ValueError("the template is wrong: it is nested too deeply") from None

    def rule(body: Any, headers: Mapping[str, str]) -> str:
        bounds = _Bounds()
        token = _bounds.set(bounds)
        try:
            parts: list[str] = []
            size = 0
            for part in template.generate(body=body, headers=dict(headers)):
                bounds.step()
                size += len(part)
                if size > OUTPUT:
                    raise TemplateFailed(f"the template makes over {OUTPUT} characters")
                parts.append(part)
            return "".join(parts).strip()
        except (TemplateError, TypeError, ArithmeticError, RecursionError) as problem:
            raise TemplateFailed(f"the template failed: {type(problem).__name__}: {problem}"[:200]) from None
        finally:
            _bounds.reset(token)

    return rule


class _Environment(ImmutableSandboxedEnvironment):
    """Looks up keys and places of JSON, and what a loop knows of itself; nothing else of any object."""

    def __init__(self) -> None:
        super().__init__(undefined=ChainableUndefined, autoescape=False, finalize=_finalize, cache_size=0)
        self.globals.clear()
        self.filters.clear()
        self.filters.update(_FILTERS)
        self.filters[_COUNTED] = _counted

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, LoopContext) and attribute in _LOOP:
            return getattr(obj, attribute)
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(argument, Undefined):
            argument = None
        if isinstance(obj, dict) and isinstance(argument, str) and argument in obj:
            return obj[argument]
        if isinstance(obj, (list, str)) and isinstance(argument, int) and -len(obj) <= argument < len(obj):
            return obj[argument]
        return self.undefined(obj=obj, name=str(argument))


def _finalize(value: Any) -> Any:
    """What `{{ }}` shows: JSON as `shown` has it, and never an object's own form."""
    if isinstance(value, Undefined):
        return ""
    if value is None or isinstance(value, (str, int, float, dict, list)):
        return shown(value)
    raise TemplateFailed(f"a {type(value).__name__} can't be shown")


def _check(node: nodes.Node, loops: int) -> None:
    """Refuse what is not on the list, and have every loop counted.

    Raises:
        ValueError: names the construct and its line.
    """
    if not isinstance(node, _ALLOWED):
        raise ValueError(f"line {node.lineno}: a template can't use {type(node).__name__.lower()} here")
    if isinstance(node, nodes.For):
        loops += 1
        if loops > NESTED or node.recursive:
            raise ValueError(f"line {node.lineno}: a loop is recursive, or inside {NESTED} others")
    if isinstance(node, nodes.Filter) and node.name not in _FILTERS:
        raise ValueError(
            f"line {node.lineno}: there is no filter {node.name!r}; there are {', '.join(sorted(_FILTERS))}"
        )
    for child in node.iter_child_nodes():
        _check(child, loops)
    if isinstance(node, nodes.For):
        node.iter = nodes.Filter(node.iter, _COUNTED, [], [], None, None, lineno=node.lineno)


def _counted(value: Any) -> Iterator[Any]:
    """What a `for` goes through: a list, or the keys of an object."""
    if not isinstance(value, (list, tuple, dict)):
        return
    bounds = _bounds.get()
    for one in value:
        bounds.step()
        yield one


def _text(value: Any) -> str:
    return "" if isinstance(value, Undefined) else shown(value)


def _bounded(parts: Iterable[str]) -> str:
    out: list[str] = []
    size = 0
    for part in parts:
        size += len(part)
        if size > OUTPUT:
            raise TemplateFailed(f"a filter makes over {OUTPUT} characters")
        out.append(part)
    return "".join(out)


def _join(value: Any, separator: Any = "") -> str:
    between = _text(separator)
    items = value if isinstance(value, (list, tuple, dict)) else ()
    return _bounded(
        part for number, item in enumerate(items) for part in ((between,) if number else ()) + (_text(item),)
    )


def _default(value: Any, other: Any = "") -> Any:
    return other if isinstance(value, Undefined) or value is None or value == "" else value


def _truncate(value: Any, length: Any = 255, end: Any = "…") -> str:
    text, room = _text(value), length if isinstance(length, int) and length >= 0 else 255
    return text if len(text) <= room else text[: max(0, room - len(_text(end)))] + _text(end)


def _end(place: int) -> Callable[[Any], Any]:
    def pick(value: Any) -> Any:
        return value[place] if isinstance(value, (list, str)) and value else ""

    return pick


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (list, str, dict, tuple)) else 0


def _items(value: Any) -> list[list[Any]]:
    return [[name, inner] for name, inner in value.items()] if isinstance(value, dict) else []


_COUNTED = "_counted"
_FILTERS: dict[str, Callable[..., Any]] = {
    "default": _default,
    "first": _end(0),
    "items": _items,
    "join": _join,
    "json": lambda value: json.dumps(_default(value, None), ensure_ascii=False),
    "last": _end(-1),
    "length": _length,
    "lower": lambda value: _text(value).lower(),
    "trim": lambda value: _text(value).strip(),
    "truncate": _truncate,
    "upper": lambda value: _text(value).upper(),
}
