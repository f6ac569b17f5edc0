"""Make what a model or a stranger wrote safe to print (spec/channels.md 3.13, C215).

Escape sequences are taken out whole, other control characters one by one.  Characters that turn the direction of
writing round are shown instead of obeyed; embeddings and isolates, which honest texts use, are kept and closed at the
end of their line.  Right-to-left text itself is never touched.
"""

from __future__ import annotations

import re

__all__ = ["clean", "clean_name", "shorten"]

_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_BREAKS = re.compile(r"\r\n|[\r\u2028\u2029\x0b\x0c\x85]")
_OVERRIDES = re.compile("[\u202d\u202e]")
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_OPENERS = {"\u202a": "\u202c", "\u202b": "\u202c", "\u2066": "\u2069", "\u2067": "\u2069", "\u2068": "\u2069"}
_FIRST_STRONG, _POP = "\u2068", "\u2069"


def clean(text: str) -> str:
    """A text of several lines, safe to print."""
    text = _OVERRIDES.sub(_shown, _without_controls(text))
    if not _DIRECTION.search(text):
        return text
    return "\n".join(_closed(line) for line in text.split("\n"))


def clean_name(text: str, limit: int = 120) -> str:
    """A name or label for the middle of a line: on one line, of bounded length, and isolated where it is not ASCII."""
    text = " ".join(_DIRECTION.sub(_shown, _without_controls(text)).split())
    text = shorten(text, limit)
    return text if text.isascii() else f"{_FIRST_STRONG}{text}{_POP}"


def shorten(text: str, limit: int) -> str:
    """At most so many characters, with an ellipsis where something was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _without_controls(text: str) -> str:
    text = _BREAKS.sub("\n", _ESCAPES.sub("", text))
    return _CONTROLS.sub(lambda found: "\ufffd" if found[0] >= "\ud800" else "", text)


def _shown(found: re.Match[str]) -> str:
    return f"[U+{ord(found[0]):04X}]"


def _closed(line: str) -> str:
    """The line with what it leaves open closed, innermost first."""
    if not _DIRECTION.search(line):
        return line
    waiting: list[str] = []
    for character in line:
        if character in _OPENERS:
            waiting.append(_OPENERS[character])
        elif waiting and character == waiting[-1]:
            waiting.pop()
    return line + "".join(reversed(waiting))
