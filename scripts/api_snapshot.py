"""Writes down every public signature of what plugins build on: `jackfield.api`, `models`, `errors`, `clock` and `ids`.

    python scripts/api_snapshot.py                 write core/tests/api_snapshot.json after a bump of API_VERSION
    python scripts/api_snapshot.py --unreleased    write it without one: the stored version was never published
    python scripts/api_snapshot.py --check         only compare

A test holds that nothing changes without a bump: the minor number for additions, the major one for the rest.  An
addition is a line of its own here (an argument, a field, a member of an enum or a union); one that what exists can't
live with, as a field without a default, counts as the rest (`breaks`).
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
import sys
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Any

from jackfield import API_VERSION

TARGET = Path(__file__).resolve().parent.parent / "core" / "tests" / "api_snapshot.json"
MODULES = (
    "jackfield.api",
    "jackfield.api.client",
    "jackfield.models",
    "jackfield.errors",
    "jackfield.clock",
    "jackfield.ids",
)
VERSION_LINE = "API_VERSION"
HANDED_OUT = (
    "ChannelContext", "Clock", "CommandHost", "Connection", "HostContext", "LocalClient", "LocalConnection",
    "ModelService", "RuntimeContext", "ToolContext",
)  # fmt: skip
"""Protocols that the core implements, so they may grow.  A plugin implements every other one."""

Signatures = dict[str, str]


def signatures() -> Signatures:
    """Dotted name to signature, for each public name, argument, field, member and method."""
    found: Signatures = {}
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name in sorted(module.__all__):
            if name != VERSION_LINE:
                _describe(f"{module_name}.{name}", getattr(module, name), found)
    return dict(sorted(found.items()))


def _describe(place: str, value: Any, found: Signatures) -> None:
    if inspect.isclass(value):
        _describe_class(place, value, found)
    elif inspect.isfunction(value):
        _describe_function(place, value, found)
    elif isinstance(value, dict):
        found[place] = "table"
        found.update({f"{place}[{key}]": _plain(item) for key, item in value.items()})
    elif isinstance(value, types.UnionType) or typing.get_origin(value) is typing.Literal:
        found[place] = "one of"
        found.update({f"{place}[{_plain(item)}]": "" for item in typing.get_args(value)})
    else:
        found[place] = _plain(value)


def _describe_class(place: str, cls: type[Any], found: Signatures) -> None:
    bases = ", ".join(base.__name__ for base in cls.__bases__ if base is not object)
    found[place] = f"class({bases})"
    if issubclass(cls, Enum):
        for member in cls:
            found[f"{place}.{member.name}"] = repr(member.value)
        return
    if dataclasses.is_dataclass(cls):
        for number, field in enumerate(dataclasses.fields(cls)):
            order = "keyword" if field.kw_only else f"{number}:"
            found[f"{place}.{field.name}"] = f"{order} {field.type}{_default_of(field)}"
    for name, member in vars(cls).items():
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(member, (staticmethod, classmethod)):
            _describe_function(f"{place}.{name}", member.__func__, found, type(member).__name__ + " ")
        elif isinstance(member, property):
            found[f"{place}.{name}"] = "property " + _annotation(inspect.signature(member.fget).return_annotation)  # type: ignore[arg-type]  # a property of a class has a getter
        elif inspect.isfunction(member) and not (name == "__init__" and _generated(cls)):
            _describe_function(f"{place}.{name}", member, found)


def _describe_function(place: str, function: Any, found: Signatures, prefix: str = "") -> None:
    """The result at its own name, each argument at `name(argument)`."""
    signature = inspect.signature(function)
    kind = "async " if inspect.iscoroutinefunction(function) else ""
    found[place] = f"{prefix}{kind}-> {_annotation(signature.return_annotation)}"
    for number, parameter in enumerate(signature.parameters.values()):
        default = "" if parameter.default is inspect.Parameter.empty else f" = {_plain(parameter.default)}"
        named = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        order = "keyword" if named else f"{number}:"
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            order, default = parameter.kind.description, " = ()"
        if parameter.name != "self":
            found[f"{place}({parameter.name})"] = f"{order} {_annotation(parameter.annotation)}{default}"


def _generated(cls: type[Any]) -> bool:
    """Whether the class's `__init__` says nothing of its own: a dataclass's, or a Protocol's."""
    return dataclasses.is_dataclass(cls) or bool(getattr(cls, "_is_protocol", False))


def _annotation(annotation: object) -> str:
    if annotation is inspect.Signature.empty:
        return "?"
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _default_of(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f" = {_plain(field.default)}"
    if field.default_factory is not dataclasses.MISSING:
        return f" = {getattr(field.default_factory, '__name__', 'factory')}()"
    return ""


def _plain(value: object) -> str:
    """The value without addresses in memory, and the same on every Python."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if inspect.isfunction(value) or inspect.isclass(value):
        return value.__name__
    return repr(value)


def read() -> tuple[tuple[int, int], Signatures]:
    """The stored version and signatures."""
    stored = json.loads(TARGET.read_text(encoding="utf-8"))
    return (stored["api_version"][0], stored["api_version"][1]), stored["signatures"]


def write() -> None:
    stored = {"api_version": list(API_VERSION), "signatures": signatures()}
    TARGET.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def differences(old: Signatures, new: Signatures) -> list[str]:
    """One line for each signature that is gone, new or another, as a diff would show it."""
    lines = [f"- {name}: {old[name]}" for name in old if old[name] != new.get(name)]
    lines += [f"+ {name}: {new[name]}" for name in new if new[name] != old.get(name)]
    return sorted(lines, key=lambda line: (line[2:].partition(":")[0], line.startswith("+")))


def breaks(old: Signatures, change: str) -> bool:
    """Whether a plugin that was made for `old` can't live with this line of `differences`.

    What is gone or another always breaks it.  What is new breaks it as a required argument or field of what was there,
    and as any method or argument of a protocol that the plugin implements.
    """
    if change.startswith("-"):
        return True
    name, signature = change[2:].split(": ", 1)
    if name in old:
        return True
    function, _, argument = name.partition("(")
    owner = function if argument else name.partition("[")[0].rpartition(".")[0]
    known = old.get(owner)
    if known is None:
        return False  # it belongs to something new, or stands alone
    cls = owner if "class(" in known else owner.rpartition(".")[0]
    if "Protocol" in old.get(cls, "") and cls.rpartition(".")[2] not in HANDED_OUT:
        return True
    taken = re.match(r"(keyword|\d+:) ", signature)
    return taken is not None and " = " not in signature and not _is_hook(cls)


def _is_hook(cls: str) -> bool:
    """Hooks are called by name, and an implementation names only the arguments that it wants."""
    return cls.endswith(".HookSpecs")


def bump_suffices(before: tuple[int, int], now: tuple[int, int], old: Signatures, changes: list[str]) -> bool:
    """Whether the step from one version to the next is large enough for these changes of `old`."""
    if not changes:
        return now >= before
    if any(breaks(old, line) for line in changes) and before[0] > 0:
        return now[0] > before[0]
    return now > before


def main(arguments: list[str]) -> int:
    before, old = read() if TARGET.exists() else ((0, 0), {})
    changes = differences(old, signatures())
    if "--check" in arguments:
        print("\n".join(changes) or "the API is as it was")
        return 1 if changes else 0
    if changes and "--unreleased" not in arguments and not bump_suffices(before, API_VERSION, old, changes):
        print("\n".join(changes))
        print(
            f"API_VERSION is {API_VERSION}, as before or not far enough from {before}: bump it in jackfield/__init__.py"
        )
        return 1
    write()
    print(f"wrote {TARGET.name}: {len(changes)} changes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
