"""One line of the protocol: reading it, writing it.  What people wrote can never become a second line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Line", "parse", "shown", "written"]

_BREAKS = re.compile("[\x00\r\n]+")
_CONTROL = re.compile("\x03(?:\\d{1,2}(?:,\\d{1,2})?)?|\x04(?:[0-9A-Fa-f]{6})?|[\x00-\x1f\x7f]")
_ESCAPES = {":": ";", "s": " ", "\\": "\\", "r": "\r", "n": "\n"}
_ESCAPED = re.compile(r"\\(.?)", re.S)
_TO_ESCAPE = {ord(";"): "\\:", ord(" "): "\\s", ord("\\"): "\\\\", ord("\r"): "\\r", ord("\n"): "\\n", 0: ""}


@dataclass(frozen=True, slots=True)
class Line:
    """A command or numeric with its parameters, who it is from (`nick!user@host`, or a server), and its tags."""

    command: str
    params: tuple[str, ...] = ()
    source: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def nick(self) -> str:
        """Who it is from, without user and host."""
        return self.source.partition("!")[0]

    def param(self, index: int) -> str:
        """A parameter, counted from the end when negative; empty when there is none."""
        return self.params[index] if -len(self.params) <= index < len(self.params) else ""


def shown(text: str) -> str:
    """What somebody wrote, without colours and other control codes."""
    return _CONTROL.sub("", text)


def parse(raw: bytes) -> Line | None:
    """A line without its end; None when it says nothing.

    Text that is no UTF-8 is read as Windows-1252, as old clients write it.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode("cp1252", "replace")
    text = _BREAKS.sub("", text)
    tags: dict[str, str] = {}
    if text.startswith("@"):
        head, _, text = text.partition(" ")
        for tag in head[1:].split(";"):
            name, _, value = tag.partition("=")
            if name:
                tags[name] = _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), value)
    text = text.lstrip(" ")
    source = ""
    if text.startswith(":"):
        source, _, text = text[1:].partition(" ")
    text, colon, trailing = text.lstrip(" ").partition(" :")
    words = text.split()
    if not words:
        return None
    params = (*words[1:], trailing) if colon else tuple(words[1:])
    return Line(words[0].upper(), params, source, tags)


def written(command: str, *params: str, tags: Mapping[str, str] | None = None) -> bytes:
    """A line to send.  Line ends and NUL in parameters become spaces.

    Raises:
        ValueError: a parameter before the last is empty, holds a space or begins with a colon.
    """
    cleaned = [_BREAKS.sub(" ", param) for param in params]
    for param in cleaned[:-1]:
        if not param or " " in param or param.startswith(":"):
            raise ValueError(f"{param!r} can't be a parameter of {command}")
    if cleaned:
        last = cleaned[-1]
        if command in ("PRIVMSG", "NOTICE") or not last or " " in last or last.startswith(":"):
            cleaned[-1] = ":" + last
    head = ""
    if tags:
        head = "@" + ";".join(f"{name}={value.translate(_TO_ESCAPE)}" for name, value in tags.items()) + " "
    return (head + " ".join((command, *cleaned))).encode("utf-8", "replace") + b"\r\n"
