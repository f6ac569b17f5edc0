"""From a JSON body to texts: paths like `$.alert.labels["app name"][0]`, and templates.

Both read data only.  A value that is not there is the empty text, never an error: senders leave fields out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["BadBody", "Rule", "parse_body", "parse_rule", "shown"]

Rule = Callable[[Any, Mapping[str, str]], str]
"""`rule(body, headers)`: a text.  It may take a moment, so not on the event loop."""

MAX_DEPTH = 64
"""Nesting of a body (C219)."""

_STEP = re.compile(r"""\.([A-Za-z_][\w-]*)|\[(-?\d{1,6})\]|\["([^"\\\[\]]*)"\]|\['([^'\\\[\]]*)'\]""", re.ASCII)


class BadBody(ValueError):
    """The body is no JSON that is taken here."""


def parse_rule(text: str) -> Rule:
    """A path when it begins with `$`, else a template.

    Raises:
        ValueError: it is neither; says where.
    """
    if not text.startswith("$"):
        from jackfield_channel_webhook.templates import compile_template

        return compile_template(text)
    steps = _steps(text)

    def rule(body: Any, headers: Mapping[str, str]) -> str:
        return shown(_follow(body, steps))

    return rule


def parse_body(raw: bytes) -> Any:
    """The JSON value in a body.

    Raises:
        BadBody: no UTF-8, no JSON, nested too deeply, or with numbers that are none (NaN, thousands of digits).
    """
    try:
        body = json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse)
    except RecursionError:
        raise BadBody("it is nested too deeply") from None
    except ValueError as problem:
        raise BadBody(f"it is no JSON: {problem}"[:200]) from None
    _check_depth(body)
    return body


def shown(value: Any) -> str:
    """A JSON value as text: texts as they are, nothing for null, the rest as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        # A lone surrogate (JSON's "\ud800") can't be stored anywhere.
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace").decode()


def _steps(text: str) -> tuple[str | int, ...]:
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise ValueError(f'{text!r} is no path at {text[at:]!r}; write it like $.alert.items[0]["a name"]')
        name, number, *quoted = found.groups()
        steps.append(int(number) if number is not None else next(one for one in (name, *quoted) if one is not None))
        at = found.end()
    return tuple(steps)


def _follow(value: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and -len(value) <= step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def _check_depth(body: Any) -> None:
    level = [body]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return
    raise BadBody("it is nested too deeply")


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number")
