"""Taking secrets out of text that leaves the host's trust: logs, the console, crash reports (architecture 8).

Values that are known to be secret go by value, whatever they look like and however they are encoded (C133, C137);
patterns are only an addition for those nobody told us of.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

__all__ = ["LEAST", "MASK", "REDACTOR", "Redactor", "encodings"]

MASK = "[secret]"
LEAST = 8
"""Characters of the shortest value that is masked: shorter ones would take ordinary words out of every line."""

# No repetition below may both begin anywhere in a long run of its own characters and take all of it: texts that
# strangers wrote come through here, and the time must grow with their length only.
_NAMES = r"(?:[\w-]{0,40}(?:token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key|private[_-]?key|signature|auth))"
_KEPT_1 = (
    r"(?i:(\b(?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?)(?:(?:bearer|basic|token|bot|digest)\s+)?[^\s\"',;]+)",
    r"(?i:(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,})",
    r"(?i:(\b(?:set-)?cookie[\"']?\s*:\s*)[^\r\n\"']+)",
    # An argument, a parameter of a URL, a field: `--token x`, `?token=x`, `"token": "x"`.
    rf"(?i:(--{_NAMES}(?:\s+|=))[^\s\"']+)",
    rf"(?i:([?&]{_NAMES}=)[^&\s\"'#]+)",
    rf"(?i:([\"']{_NAMES}[\"']\s*:\s*[\"'])[^\"']+)",
    r"(://[^\s/:@]{0,200}:)[^\s/@]+(?=@)",
)
_WHOLE = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    r"(?:(?<![A-Za-z0-9])|(?<=bot))\d{6,12}:[A-Za-z0-9_-]{30,}",
    r"\bxox[a-z]-[A-Za-z0-9-]{10,}|\bxapp-[A-Za-z0-9-]{10,}",
    r"\bsk-[A-Za-z0-9_-]{8,}",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bglpat-[A-Za-z0-9_-]{16,}",
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[A-Za-z0-9_-]{35}",
    r"\bwhsec_[A-Za-z0-9+/=]{16,}|\bsyt_[A-Za-z0-9_]{16,}|\blin_(?:api|oauth)_[A-Za-z0-9]{16,}",
    r"\beyJ[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]{8,8000}\.[A-Za-z0-9_-]*",
    r"\b[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}",
)


class Redactor:
    """Knows the secrets of this process.  Safe to use from any thread."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._values: re.Pattern[str] | None = None
        self._lock = threading.Lock()

    def register(self, *values: str) -> None:
        """From now on these never pass.  Known and too short ones change nothing."""
        with self._lock:
            fresh = {value for value in values if len(value) >= LEAST} - self._known
            if fresh:
                self._known |= fresh
                words = {word for value in self._known for word in encodings(value)}
                # The longest first: one secret may be the beginning of another.
                ordered = sorted(words, key=lambda word: (-len(word), word))
                self._values = re.compile("|".join(map(re.escape, ordered)))

    def __call__(self, text: str) -> str:
        """The text with every secret replaced by a mask."""
        if self._values is not None:
            text = self._values.sub(MASK, text)
        for pattern in _with_a_start():
            text = pattern.sub(rf"\g<1>{MASK}", text)
        return _whole().sub(MASK, text)


REDACTOR = Redactor()
"""The one of this process: for the log file and the console alike."""


def encodings(value: str) -> Iterable[str]:
    """The value as it may appear: as it is, in a URL, in JSON, in base64 at each of its three positions."""
    yield value
    yield quote(value, safe="")
    yield quote(value)
    yield quote_plus(value)
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    data = value.encode("utf-8", "surrogatepass")
    for shift in range(3):
        # The first and the last characters depend on the neighbours; what lies between does not.
        first, end = (0, 2, 3)[shift], (len(data) + shift) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(b"\0" * shift + data + b"\0\0")[first:end].decode()


_compiled: tuple[tuple[re.Pattern[str], ...], re.Pattern[str]] | None = None
# Compiled when first needed: small commands import this and log nothing.


def _patterns() -> tuple[tuple[re.Pattern[str], ...], re.Pattern[str]]:
    global _compiled
    if _compiled is None:
        _compiled = (tuple(map(re.compile, _KEPT_1)), re.compile("|".join(_WHOLE), re.DOTALL))
    return _compiled


def _with_a_start() -> tuple[re.Pattern[str], ...]:
    return _patterns()[0]


def _whole() -> re.Pattern[str]:
    return _patterns()[1]
