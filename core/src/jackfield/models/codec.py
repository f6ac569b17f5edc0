"""Models to JSON and back, strictly.

One generic pair for every dataclass of this package: no second description of any shape.  Decoding is meant for data
that a hostile process wrote: each value must have its declared type, unions are told apart by a `"type"` tag with the
class's name, unknown keys are ignored (a newer peer may add some), missing ones take their default or are an error.
Decoders are built once per type and cached; there is no reflection on the message path.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, Literal, NewType, TypeVar, Union, get_args, get_origin, get_type_hints, overload

from jackfield.errors import MalformedData

__all__ = ["decode", "dumps", "encode", "loads"]

T = TypeVar("T")
Json = Any
_Decoder = Callable[[Json, str], Any]
MAX_JSON_DEPTH = 64
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode(value: object) -> Json:
    """A model as JSON-ready values.  Every dataclass carries its class's name under `type`."""
    kind: Any = type(value)
    if kind is str or value is None:
        return value
    fields = _encoded_fields(kind)
    if fields is not None:
        out: dict[str, Json] = {"type": kind.__name__}
        for name, default in fields:
            item = getattr(value, name)
            if item is None or item == default:
                continue
            out[name] = encode(item)
        return out
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(encode(item) for item in value)
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    return value


def dumps(value: object) -> str:
    """A model as JSON text: compact, UTF-8 as it is; lone surrogates become U+FFFD, so that SQLite takes it."""
    text = _COMPACT(encode(value))
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-8", "replace").decode()
    return text


@overload
def decode(kind: type[T], value: Json) -> T: ...
@overload
def decode(kind: Any, value: Json) -> Any: ...
def decode(kind: Any, value: Json) -> Any:
    """JSON-ready values as a model.

    Raises:
        MalformedData: a value has another type than declared; the message names the place.
    """
    found: _Decoder = _decoder(kind)
    return found(value, "$")


@overload
def loads(kind: type[T], text: str | bytes) -> T: ...
@overload
def loads(kind: Any, text: str | bytes) -> Any: ...
def loads(kind: Any, text: str | bytes) -> Any:
    """JSON text as a model.

    Raises:
        MalformedData: no JSON, nested too deeply, or of another shape.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise MalformedData(f"not JSON: {problem}") from None
    return decode(kind, value)


_MISSING = object()


@cache
def _fields(kind: type) -> tuple[tuple[str, object], ...]:
    found = []
    for field in dataclasses.fields(kind):
        default: object = _MISSING if field.default is dataclasses.MISSING else field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        found.append((field.name, default))
    return tuple(found)


@cache
def _encoded_fields(kind: type) -> tuple[tuple[str, object], ...] | None:
    """None for what is no dataclass."""
    return _fields(kind) if dataclasses.is_dataclass(kind) else None


def _expected(what: str, value: Json, place: str) -> MalformedData:
    shown = repr(value)
    return MalformedData(f"{place}: expected {what}, got {shown[:60]}")


@cache
def _decoder(kind: Any) -> _Decoder:  # Any: a type, a union, a Literal or a NewType
    if isinstance(kind, NewType):
        return _decoder(kind.__supertype__)
    if kind in (Any, object):
        return lambda value, place: value
    if kind is type(None):
        return _none
    if kind is bool:
        return _bool
    if kind is int:
        return _int
    if kind is float:
        return _float
    if kind is str:
        return _str
    origin = get_origin(kind)
    if origin is Literal:
        return _literal(get_args(kind))
    if origin in (Union, types.UnionType):
        return _union(get_args(kind))
    if origin in (tuple, list, frozenset, set):
        return _sequence(origin, get_args(kind)[0])
    if origin is dict:
        return _mapping(get_args(kind)[1])
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _dataclass(kind)
    raise TypeError(f"the codec has no decoder for {kind!r}")


def _none(value: Json, place: str) -> None:
    if value is not None:
        raise _expected("null", value, place)


def _bool(value: Json, place: str) -> bool:
    if not isinstance(value, bool):
        raise _expected("true or false", value, place)
    return value


def _int(value: Json, place: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise _expected("a whole number", value, place)
    return value


def _float(value: Json, place: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or value != value or abs(value) == float("inf"):
        raise _expected("a number", value, place)
    return float(value)


def _str(value: Json, place: str) -> str:
    if not isinstance(value, str):
        raise _expected("text", value, place)
    return value


def _literal(allowed: tuple[Any, ...]) -> _Decoder:
    def read(value: Json, place: str) -> Any:
        if not isinstance(value, (str, int)) or value not in allowed:
            raise _expected("one of " + ", ".join(map(str, allowed)), value, place)
        return value

    return read


def _enum(kind: type[Enum]) -> _Decoder:
    by_value = {member.value: member for member in kind}

    def read(value: Json, place: str) -> Enum:
        if not isinstance(value, (str, int)) or value not in by_value:
            raise _expected("one of " + ", ".join(map(str, by_value)), value, place)
        return by_value[value]

    return read


def _sequence(origin: Any, item: Any) -> _Decoder:
    inner = _decoder(item)

    def read(value: Json, place: str) -> Any:
        if not isinstance(value, list):
            raise _expected("a list", value, place)
        return origin(inner(part, f"{place}[{index}]") for index, part in enumerate(value))

    return read


def _mapping(item: Any) -> _Decoder:
    inner = _decoder(item)

    def read(value: Json, place: str) -> Any:
        if not isinstance(value, dict):
            raise _expected("an object", value, place)
        return {key: inner(part, f"{place}.{key}") for key, part in value.items()}

    return read


def _union(kinds: tuple[Any, ...]) -> _Decoder:
    classes: dict[str, Any] = {
        kind.__name__: kind for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind)
    }
    plain = [_decoder(kind) for kind in kinds if not dataclasses.is_dataclass(kind)]

    def read(value: Json, place: str) -> Any:
        if isinstance(value, dict) and classes:
            tag = value.get("type")
            found = classes.get(tag) if isinstance(tag, str) else None
            if found is None and len(classes) == 1 and tag is None:
                found = next(iter(classes.values()))
            if found is not None:
                return _decoder(found)(value, place)
            if not plain:
                raise _expected("an object of type " + " or ".join(sorted(classes)), value, place)
        problem: MalformedData | None = None
        for inner in plain:
            try:
                return inner(value, place)
            except MalformedData as error:
                problem = error
        raise problem or _expected(" or ".join(sorted(classes)), value, place)

    return read


def _dataclass(kind: type) -> _Decoder:
    hints = get_type_hints(kind)
    defaults = dict(_fields(kind))
    inner: dict[str, Any] = {}  # filled at the first use, so that recursive types work

    def read(value: Json, place: str) -> Any:
        if not isinstance(value, dict):
            raise _expected(f"an object of type {kind.__name__}", value, place)
        if place.count(".") > MAX_JSON_DEPTH:
            raise MalformedData(f"{place[:80]}: nested too deeply")
        if not inner:
            inner.update({name: _decoder(hints[name]) for name in defaults})
        got: dict[str, Any] = {}
        for name, default in defaults.items():
            if name in value:
                got[name] = inner[name](value[name], f"{place}.{name}")
            elif default is _MISSING:
                # An optional field that encode left out because it was None.
                if type(None) not in get_args(hints[name]):
                    raise MalformedData(f"{place}: {kind.__name__} lacks {name!r}")
                got[name] = None
        return kind(**got)

    return read
