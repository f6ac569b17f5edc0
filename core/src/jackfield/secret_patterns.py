"""What looks like a secret although nobody told us of it: headers, arguments, parameters, tokens of known forms.

Each pattern hangs on a few fixed words (`TRIGGERS`), which an automaton finds; here it is only decided what lies
around one.  No pattern may begin anywhere in a long run of its own characters and take all of it: texts that strangers
wrote come through here, and the time must grow with their length only.  All is bytes of UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

__all__ = ["TRIGGERS", "Span", "found_anywhere", "found_at"]

Span = tuple[int, int]
"""From this byte up to, and without, that one."""

_Rule = Callable[[bytes, int, int], Span | None]
_WORD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_WORD_BYTES = frozenset(_WORD)
_LOOK_BACK = 42

_ARGUMENT = re.compile(rb"[\s=]*([^\s\"']+)")
_PARAMETER = re.compile(rb"([^&\s\"'#]+)")
_FIELD = re.compile(rb"\s*:\s*\\?[\"']([^\"'\\]+)")
_BOT_TOKEN = re.compile(rb"[A-Za-z0-9_-]{30,}")


def found_at(number: int, data: bytes, start: int, end: int) -> Span | None:
    """What is to be masked where the trigger of that number stands, if anything."""
    return _RULES[number](data, start, end)


def found_anywhere(data: bytes) -> Iterator[Span]:
    """What hangs on no word but on single characters: passwords in URLs, Discord's tokens."""
    for match in _IN_URL.finditer(data):
        yield match.span(1)
    for match in _DOTTED.finditer(data):
        lead = data[max(0, match.start() - 29) : match.start()]
        run = len(lead) - len(lead.rstrip(_WORD))
        if 24 <= run <= 28 and lead[-run] in b"MNO":
            yield match.start() - run, match.end()


_IN_URL = re.compile(rb"://[^\s/:@]{0,200}:([^\s/@]+)(?=@)")
_DOTTED = re.compile(rb"\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}")


def _header(pattern: bytes) -> _Rule:
    """A word and what follows it, of which the group is secret."""
    compiled = re.compile(pattern, re.IGNORECASE)

    def rule(data: bytes, start: int, end: int) -> Span | None:
        match = compiled.match(data, start)
        return match.span(1) if match and not (start and data[start - 1 : start].isalnum()) else None

    return rule


def _token(pattern: bytes) -> _Rule:
    """A token that begins with the trigger, and in the middle of no word."""
    compiled = re.compile(pattern)

    def rule(data: bytes, start: int, end: int) -> Span | None:
        if start and data[start - 1] in _WORD_BYTES:
            return None
        match = compiled.match(data, start)
        return match.span() if match else None

    return rule


def _named(data: bytes, start: int, end: int) -> Span | None:
    """`--token x`, `--api-key=x`, `?access_token=x`, `"client_secret": "x"`: the trigger is the name's end and what
    follows it."""
    lead = data[max(0, start - _LOOK_BACK) : start]
    rest = lead.rstrip(_WORD)
    mark = data[end - 1 : end]
    match = None
    if mark in (b'"', b"'"):
        if rest.endswith(mark):
            match = _FIELD.match(data, end)
    elif b"--" in lead[len(rest) :]:
        match = _ARGUMENT.match(data, end)
    elif mark == b"=" and rest.endswith((b"?", b"&")):
        match = _PARAMETER.match(data, end)
    return match.span(1) if match else None


def _bot_token(data: bytes, start: int, end: int) -> Span | None:
    """Telegram's: 6 to 12 digits, a colon, and a token that begins with AA."""
    lead = data[max(0, start - 13) : start]
    digits = len(lead) - len(lead.rstrip(b"0123456789"))
    match = _BOT_TOKEN.match(data, start + 1) if 6 <= digits <= 12 else None
    return (start - digits, match.end()) if match else None


def _private_key(data: bytes, start: int, end: int) -> Span | None:
    """In PEM form, up to its end or, when that is missing, the text's."""
    if b"PRIVATE KEY-----" not in data[end : end + 40]:
        return None
    last = data.find(b"-----END ", end)
    close = data.find(b"-----", last + 9) if last >= 0 else -1
    return start, close + 5 if close >= 0 else len(data)


def _cases(*words: str) -> Iterator[str]:
    for word in words:
        yield from dict.fromkeys((word, word.title(), word.upper()))


_NAMES = (
    *_cases("token", "secret", "passwd", "password", "signature", "auth"),
    *(
        form
        for first in ("api", "access", "private")
        for separator in ("", "_", "-")
        for form in (*_cases(f"{first}{separator}key"), f"{first}Key")
    ),
)  # fmt: skip
_TABLE: dict[str, _Rule] = {
    **dict.fromkeys((name + mark for name in _NAMES for mark in "=\"' \t\n"), _named),
    **dict.fromkeys(
        _cases("authorization"),
        _header(rb"authorization\\?[\"']?\s*[:=]\s*\\?[\"']?((?:(?:bearer|basic|token|bot|digest)\s+)?[^\s\"',;\\]+)"),
    ),
    **dict.fromkeys(_cases("bearer", "basic"), _header(rb"(?:bearer|basic)\s+([A-Za-z0-9._~+/=-]{8,})")),
    **dict.fromkeys(_cases("cookie"), _header(rb"cookie\\?[\"']?\s*:\s*([^\r\n\"']+)")),
    ":AA": _bot_token,
    "-----BEGIN ": _private_key,
    "xox": _token(rb"xox[a-z]-[A-Za-z0-9-]{10,}"),
    "xapp-": _token(rb"xapp-[A-Za-z0-9-]{10,}"),
    "sk-": _token(rb"sk-[A-Za-z0-9_-]{8,}"),
    **{f"gh{kind}_": _token(rb"gh[pousr]_[A-Za-z0-9]{20,}") for kind in "pousr"},
    "github_pat_": _token(rb"github_pat_[A-Za-z0-9_]{20,}"),
    "glpat-": _token(rb"glpat-[A-Za-z0-9_-]{16,}"),
    "AKIA": _token(rb"AKIA[0-9A-Z]{16}(?![0-9A-Z])"),
    "ASIA": _token(rb"ASIA[0-9A-Z]{16}(?![0-9A-Z])"),
    "AIza": _token(rb"AIza[A-Za-z0-9_-]{35}"),
    "whsec_": _token(rb"whsec_[A-Za-z0-9+/=]{16,}"),
    "syt_": _token(rb"syt_[A-Za-z0-9_]{16,}"),
    "lin_api_": _token(rb"lin_api_[A-Za-z0-9]{16,}"),
    "lin_oauth_": _token(rb"lin_oauth_[A-Za-z0-9]{16,}"),
    "eyJ": _token(rb"eyJ[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]{8,8000}\.[A-Za-z0-9_-]*"),
}
TRIGGERS = tuple(word.encode() for word in _TABLE)
_RULES = tuple(_TABLE.values())
