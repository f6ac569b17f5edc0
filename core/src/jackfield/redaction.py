"""Taking secrets out of text that leaves the host's trust: logs, crash reports, chats, commands (architecture 8).

Values that are known to be secret go by value, whatever they look like and however they are encoded (C133, C137);
patterns are only an addition for those nobody told us of, and only for logs: a chat may well speak of `--token x`.

One automaton looks through a text once, for a few bytes of each known value and for the words near which patterns find
something; what it finds is then compared in full.  Of each value it knows the bytes that are least like ordinary text:
so it seldom leaves its first states, and the time hardly depends on how many secrets there are (`make bench B=redact`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ahocorasick_rs

    from jackfield.secret_patterns import Span

# What costs time to import comes when there is something to mask: small commands import this and log nothing.

__all__ = ["LEAST", "MASK", "REDACTOR", "Redactor", "encodings"]

MASK = "[secret]"
LEAST = 8
"""Characters of the shortest value that is masked: shorter ones would take ordinary words out of every line."""
_ANCHOR = 6
"""Bytes of a value that the automaton knows."""
_REACH = 24
"""How far into a value these may lie."""
_TABLES = 20_000
"""Up to so many anchors, the automaton is the fast kind, which takes half a KiB for each of their bytes."""
_LINE = 16
"""Characters of the shortest line of a longer value that is masked by itself."""


@dataclass(frozen=True, slots=True)
class _Net:
    automaton: ahocorasick_rs.BytesAhoCorasick
    triggers: int
    """The automaton's numbers below this are those of `secret_patterns.TRIGGERS`."""
    words: tuple[tuple[tuple[int, bytes], ...], ...]
    """By the numbers after these: the encoded values with that anchor, and where they have it."""


class Redactor:
    """Knows the secrets of this process.  Safe to use from any thread."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._net: _Net | None = None
        self._lock = threading.Lock()

    def register(self, *values: str) -> None:
        """From now on these never pass.  Known and too short ones change nothing."""
        with self._lock:
            fresh = {value for value in values if len(value) >= LEAST} - self._known
            if fresh:
                self._known |= fresh
                self._net = None

    def __call__(self, text: str) -> str:
        """The text with every known secret, and all that looks like one, replaced by a mask: for logs."""
        from jackfield.secret_patterns import found_anywhere, found_at

        data = text.encode("utf-8", "surrogatepass")
        net = self._net or self._made()
        spans: list[Span] = list(found_anywhere(data))
        done = 0
        for number, start, end in net.automaton.find_matches_as_indexes(data, overlapping=True):
            if number < net.triggers:
                # What a pattern took is not looked through again by the next one: it may be the whole text.
                span = found_at(number, data, start, end) if start >= done else None
                if span is not None:
                    spans.append(span)
                    done = span[1]
            else:
                spans += _compared(data, start, net.words[number - net.triggers])
        return _masked(data, spans) if spans else text

    @property
    def knows_any(self) -> bool:
        """Whether any value is registered, so that `values` can change anything."""
        return bool(self._known)

    def opening(self, text: str) -> str:
        """`values` for a text that still grows, without its last word: that may be the beginning of a secret."""
        if not self._known:
            return text
        words = text.rstrip()
        last = max(words.rfind(" "), words.rfind("\n"), words.rfind("\t"))
        return self.values(text if len(words) < len(text) else text[: last + 1])

    def values(self, text: str) -> str:
        """The text with every known secret replaced, and nothing else touched: for what people and agents read."""
        if not self._known:
            return text
        data = text.encode("utf-8", "surrogatepass")
        net = self._net or self._made()
        spans: list[Span] = []
        for number, start, _ in net.automaton.find_matches_as_indexes(data, overlapping=True):
            if number >= net.triggers:
                spans += _compared(data, start, net.words[number - net.triggers])
        return _masked(data, spans) if spans else text

    def suspects(self, text: str) -> list[str]:
        """What in the text looks like a secret, by the patterns alone."""
        from jackfield.secret_patterns import found_anywhere, found_at

        data = text.encode("utf-8", "surrogatepass")
        net = self._net or self._made()
        spans = list(found_anywhere(data))
        for number, start, end in net.automaton.find_matches_as_indexes(data, overlapping=True):
            if number < net.triggers and (span := found_at(number, data, start, end)) is not None:
                spans.append(span)
        return [data[start:end].decode("utf-8", "replace") for start, end in spans]

    def inside(self, value: Any) -> Any:
        """`values` for each text in JSON values, also for the keys of tables."""
        if isinstance(value, str):
            return self.values(value)
        if isinstance(value, dict):
            return {self.inside(key): self.inside(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.inside(one) for one in value]
        return value

    def _made(self) -> _Net:
        import ahocorasick_rs

        from jackfield.secret_patterns import TRIGGERS

        with self._lock:
            if self._net is None:
                anchored: dict[bytes, set[tuple[int, bytes]]] = {}
                for value in self._known:
                    for word in set(_words(value)):
                        at = _rarest(word)
                        anchored.setdefault(word[at : at + _ANCHOR], set()).add((at, word))
                implementation = ahocorasick_rs.Implementation
                self._net = _Net(
                    ahocorasick_rs.BytesAhoCorasick(
                        [*TRIGGERS, *anchored],
                        matchkind=ahocorasick_rs.MatchKind.Standard,
                        implementation=implementation.DFA if len(anchored) <= _TABLES else implementation.ContiguousNFA,
                    ),
                    len(TRIGGERS),
                    tuple(tuple(words) for words in anchored.values()),
                )
            return self._net


REDACTOR = Redactor()
"""The one of this process: for all its outlets alike."""


def encodings(value: str) -> Iterable[str]:
    """The value as it may appear: as it is, in a URL, in JSON, in HTML, in base64 at each of its three positions."""
    import base64
    import html
    import json
    import re
    from urllib.parse import quote, quote_plus

    yield value
    for quoted in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield quoted
        yield re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), quoted)
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield json.dumps(value).replace("/", "\\/")[1:-1]
    yield json.dumps(json.dumps(value)[1:-1])[1:-1]  # JSON as a text in JSON
    yield repr(value)[1:-1]
    yield html.escape(value)
    yield html.escape(value, quote=False)
    data = value.encode("utf-8", "surrogatepass")
    for shift in range(3):
        # The first and the last characters depend on the neighbours; what lies between does not.
        first, end = (0, 2, 3)[shift], (len(data) + shift) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(b"\0" * shift + data + b"\0\0")[first:end].decode()


def _words(value: str) -> Iterator[bytes]:
    for word in encodings(value):
        yield word.encode("utf-8", "surrogatepass")
    for line in value.splitlines() if "\n" in value else ():
        # A key of many lines is logged line by line.  Its first and last one, and words of a table, tell nothing.
        line = line.strip()
        if len(line) >= _LINE and " " not in line and not line.startswith("-----"):
            yield line.encode("utf-8", "surrogatepass")


def _rarest(word: bytes) -> int:
    """Where the word is least like ordinary text, by two bytes."""
    last = min(len(word) - _ANCHOR, _REACH)
    return min(range(last + 1), key=lambda at: 4 * _COMMON[word[at]] + _COMMON[word[at + 1]])


_COMMON = bytes(3 if 97 <= b <= 122 or b == 32 else 2 if chr(b) in "0123456789-_/:.,=" else 1 for b in range(256))
"""By byte, how usual it is: lower case, then digits and what ids and paths are made with, then all else."""


def _compared(data: bytes, anchor: int, words: Sequence[tuple[int, bytes]]) -> Iterator[Span]:
    for at, word in words:
        start = anchor - at
        if start >= 0 and data.startswith(word, start):
            yield start, start + len(word)


def _masked(data: bytes, spans: list[Span]) -> str:
    """What overlaps becomes one mask: one secret may be the beginning of another."""
    parts: list[bytes] = []
    done = 0
    spans.sort()
    for start, end in spans:
        if start >= done:
            parts += (data[done:start], MASK.encode())
            done = end
        elif end > done:
            done = end
    parts.append(data[done:])
    return b"".join(parts).decode("utf-8", "surrogatepass")
