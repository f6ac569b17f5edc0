"""Finding a name in what somebody wrote (C044), and the spans of a text that are no prose.

Every scan is linear in the length of the text, whatever it holds (C217).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

__all__ = ["code_spans", "mention_in", "without_code_and_links"]

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})", re.M)
_TICKS = re.compile(r"`+")
_LINKISH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,15}://\S*|www\.\S+", re.I)


def code_spans(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    """Start and end of every inline code span, back-ticks included: a run closes with the next run of its length."""
    runs = [(found.start(), found.end()) for found in _TICKS.finditer(text, start, len(text) if end is None else end)]
    following: dict[int, list[int]] = {}
    for index in range(len(runs) - 1, -1, -1):
        following.setdefault(runs[index][1] - runs[index][0], []).append(index)
    index = 0
    while index < len(runs):
        same = following[runs[index][1] - runs[index][0]]
        while same and same[-1] <= index:
            same.pop()
        if same:
            yield runs[index][0], runs[same[-1]][1]
            index = same[-1]
        index += 1


def _fenced(text: str) -> Iterator[tuple[int, int]]:
    opened: tuple[int, str] | None = None
    for found in _FENCE.finditer(text):
        marker = found[1]
        if opened is None:
            opened = (found.start(), marker)
        elif marker[0] == opened[1][0] and len(marker) >= len(opened[1]):
            yield opened[0], found.end()
            opened = None
    if opened is not None:
        yield opened[0], len(text)


def _blank(text: str, spans: Iterable[tuple[int, int]]) -> str:
    out: list[str] = []
    at = 0
    for start, end in spans:
        out += (text[at:start], " " * (end - start))
        at = end
    out.append(text[at:])
    return "".join(out)


def without_code_and_links(text: str) -> str:
    """The text with fenced blocks, code spans and URLs replaced by as many spaces."""
    text = _blank(text, _fenced(text))
    text = _blank(text, code_spans(text))
    return _blank(text, ((found.start(), found.end()) for found in _LINKISH.finditer(text)))


def _separates(edge: str, neighbour: str) -> bool:
    """Whether a word ends between the two.  Scripts that write without spaces never join a name."""
    if not (neighbour.isalnum() or neighbour == "_"):
        return True
    return ord(neighbour) >= 0x2E80 or (ord(edge) >= 0x2E80 and not edge.isascii())


def _stands_alone(text: str, start: int, end: int) -> bool:
    if start:
        before = text[start - 1]
        if before == "@":
            # `x@miso.example` is an address, `@miso` a mention.
            if start > 1 and (text[start - 2].isalnum() or text[start - 2] in "._-+"):
                return False
        elif before in "-./" or not _separates(text[start], before):
            return False
    if end < len(text):
        after = text[end]
        if not _separates(text[end - 1], after):
            return False
        if after in "-.@/" and end + 1 < len(text) and (text[end + 1].isalnum() or text[end + 1] == "_"):
            return False
    return True


def mention_in(text: str, names: Iterable[str]) -> bool:
    """Whether one of the names stands in the text as a whole token, with or without `@`, in any case.

    Not inside a longer word, an e-mail address, a URL or code (C044).  For channels whose platform does not mark
    mentions; one that does knows better.
    """
    wanted = [name.lstrip("@").casefold() for name in names if name.strip("@ \t")]
    if not wanted:
        return False
    prose = without_code_and_links(text).casefold()
    for name in wanted:
        at = prose.find(name)
        while at >= 0:
            if _stands_alone(prose, at, at + len(name)):
                return True
            at = prose.find(name, at + 1)
    return False
