"""Text from outside made harmless for a terminal (C215).

A name that somebody else chose may hold escape sequences, line ends and characters that turn the reading direction
around.  What is stored stays as it is; only what is printed passes through here.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata

__all__ = ["block", "cut", "harmless_json", "json_text", "line", "told", "width"]

_ISOLATE, _POP = "\u2068", "\u2069"
_BIDI_MARKS = "\u061c\u200e\u200f"
_BIDI_OPEN = {"\u202a": "\u202c", "\u202b": "\u202c", "\u202d": "\u202c", "\u202e": "\u202c"} | {
    "\u2066": _POP, "\u2067": _POP, "\u2068": _POP,
}  # fmt: skip
_BIDI_CLOSE = "\u202c\u2069"
_BIDI = _BIDI_MARKS + "".join(_BIDI_OPEN) + _BIDI_CLOSE
_KEPT_INVISIBLE = "\u200c\u200d"
"""Joiners: Persian words and many emoji need them."""
_UNSAFE_IN_JSON = f"[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff{_BIDI}]"


def line(text: str) -> str:
    """One line: white space folded, control and direction characters made visible, right-to-left text isolated."""
    folded = " ".join(text.split())
    shown = "".join(character if _plain(character) else _escaped(character) for character in folded)
    return f"{_ISOLATE}{shown}{_POP}" if _turns(shown) else shown


def block(text: str) -> str:
    """Several lines, such as a message: line ends stay; direction characters stay where they are balanced in a line."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(_balanced("".join(_in_block(character) for character in one)) for one in lines)


def told(text: str) -> str:
    """Our own words, in lines, with somebody else's in them: none of theirs turns the rest of a line around."""
    return "\n".join(
        "".join(character if _plain(character) else _escaped(character) for character in one.replace("\t", "    "))
        for one in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    )


def harmless_json(text: str) -> str:
    """JSON text whose dangerous characters are written as escapes; it decodes to the same values."""
    if text.isascii() and "\x7f" not in text:  # compiling the pattern takes longer than all the rest
        return text
    return re.sub(_UNSAFE_IN_JSON, lambda found: f"\\u{ord(found[0]):04x}", text)


def json_text(value: object) -> str:
    """What `--json` prints for these JSON values: ASCII only, where standard output can't carry every letter."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    everything = encoding.lower().replace("_", "-").startswith("utf")
    return harmless_json(json.dumps(value, ensure_ascii=not everything, indent=2))


def width(text: str) -> int:
    """How many columns a printed text takes."""
    columns = 0
    for character in text:
        if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Mn", "Me"):
            continue
        columns += 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return columns


def cut(text: str, columns: int) -> str:
    """The printed text, or as much of it as fits, with an ellipsis; an isolation that was opened is closed again."""
    if width(text) <= columns:
        return text
    out, used = "", 0
    for character in text:
        step = width(character)
        if used + step > max(0, columns - 1):
            break
        out, used = out + character, used + step
    out += "…"
    return out + _POP if text.startswith(_ISOLATE) else out


def _plain(character: str) -> bool:
    if character in _KEPT_INVISIBLE:
        return True
    return unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _in_block(character: str) -> str:
    if character == "\t":
        return "    "
    return character if character in _BIDI or _plain(character) else _escaped(character)


def _turns(text: str) -> bool:
    return any(unicodedata.bidirectional(character) in ("R", "AL", "AN") for character in text)


def _balanced(text: str) -> str:
    """One line in which every opened direction is closed and nothing is closed that was not opened."""
    waiting: list[str] = []
    out: list[str] = []
    for character in text:
        if character in _BIDI_OPEN:
            waiting.append(_BIDI_OPEN[character])
        elif character in _BIDI_CLOSE:
            if not waiting or waiting[-1] != character:
                continue
            waiting.pop()
        out.append(character)
    return "".join(out) + "".join(reversed(waiting))
