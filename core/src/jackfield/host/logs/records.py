"""From a `logging` record to the fields of one line."""

from __future__ import annotations

import contextvars
import datetime
import json
import logging
import re
import traceback
from collections.abc import Mapping
from typing import Any

from jackfield.models.addresses import Address
from jackfield.redaction import Redactor

__all__ = ["FIELDS", "about", "bind", "fields_of", "json_line"]

FIELDS = ("channel", "session", "group", "delivery", "event_id", "message", "wiring")
"""What a line may be about, besides its text; in this order."""

_PREFIXES = {"ses": "session", "ag": "group", "dl": "delivery", "ev": "event_id", "in": "message", "wr": "wiring"}
_ID = re.compile(rf"(?<![A-Za-z0-9_])({'|'.join(_PREFIXES)})_[0-9a-z]{{20}}(?![A-Za-z0-9_])")
_LONGEST = 32_768
"""Characters of one text in a line; a stranger's garbage must not fill the file."""

_bound: contextvars.ContextVar[Mapping[str, str] | None] = contextvars.ContextVar("log_fields", default=None)


def bind(**fields: str) -> None:
    """Whatever this task logs from now on, and the tasks that it starts, is about that: `bind(channel="main")`."""
    _bound.set({**(_bound.get() or {}), **fields})


def fields_of(record: logging.LogRecord, redact: Redactor) -> dict[str, Any]:
    """The line's fields: `time` (UTC, milliseconds), `level`, `logger`, `event` (the text), those of `FIELDS` that are
    known, `exception`.

    What a line is about is taken from `extra`, from what was bound, and from addresses and ids among the arguments and
    in the text, in this order; the first one of a kind counts.
    """
    text = _message(record)
    moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    line: dict[str, Any] = {
        "time": moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z",
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": _cut(redact(text)),
    }
    known = about(record, text)
    line.update((name, redact(known[name])) for name in FIELDS if name in known)
    if record.exc_info and record.exc_info[0] is not None:
        line["exception"] = _cut(redact("".join(traceback.format_exception(*record.exc_info)).rstrip()))
    if record.stack_info:
        line["stack"] = _cut(redact(record.stack_info))
    return line


def json_line(fields: Mapping[str, Any]) -> bytes:
    """One line of ASCII: whatever was logged can neither break the line nor steer a terminal (C215)."""
    return json.dumps(fields, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"


def about(record: logging.LogRecord, text: str) -> dict[str, str]:
    """What the record is about, by the names in `FIELDS`."""
    found = {name: str(value) for name in FIELDS if (value := record.__dict__.get(name)) and isinstance(value, str)}
    # `LogRecord` has no `message` before it is formatted, and its own then.
    found.pop("message", None)
    for name, value in (_bound.get() or {}).items():
        found.setdefault(name, value)
    for argument in record.args if isinstance(record.args, tuple) else ():
        if isinstance(argument, Address):
            found.setdefault("channel", argument.instance)
    for match in _ID.finditer(text):
        found.setdefault(_PREFIXES[match[1]], match[0])
    return found


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):  # a plugin's arguments that do not fit its text
        return f"{record.msg} {record.args!r}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text) - _LONGEST:,} more characters)"
