"""Cutting a long text into messages that a platform takes, for channels that don't cut themselves (C021-C031).

The text is CommonMark.  A cut prefers a blank line, then a line's end, a sentence's end, a space; it never falls into a
link, URL or code span that fits a message, nor between the code points of one character as people see it.  A fenced
block that fits a message moves to the next one as a whole; a longer one is cut between lines and each piece is fenced
again.  The cost is linear in the length of the text, whatever it holds (C217).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from jackfield.models.boundaries import Spans, best_break, hard_cut, outside, skip
from jackfield.models.capabilities import TextUnit
from jackfield.models.mentions import code_spans

__all__ = ["LEAST_LIMIT", "measure", "opening", "split_text"]

LEAST_LIMIT = 16
"""No platform has a smaller one; below it there is no room for a fence."""
_FENCE = re.compile(r"^([ ]*)(`{3,}|~{3,})([^\n]*)\n?$")
_LIST_ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_AUTOLINK = re.compile(r"<[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]*>")
_URL = re.compile(r"\bhttps?://[^\s<>]+", re.I)
_TITLE = re.compile(r"""[ \t\n]+(?:"[^"\n]{0,300}"|'[^'\n]{0,300}')[ \t]*\)""")


def measure(text: str, unit: TextUnit) -> int:
    """The length in the platform's unit."""
    if unit is TextUnit.CODEPOINTS or text.isascii():
        return len(text)
    if unit is TextUnit.UTF16:
        return len(text.encode("utf-16-le", "surrogatepass")) // 2
    return len(text.encode("utf-8", "surrogatepass"))


def split_text(text: str, limit: int | None, unit: TextUnit = TextUnit.CODEPOINTS) -> list[str]:
    """The text in pieces of at most `limit` units each; whole and unchanged when it fits, no piece when it is empty.

    Between two pieces only white space is dropped and only fences are added.

    Raises:
        ValueError: the limit is below `LEAST_LIMIT`.
    """
    if limit is not None and limit < LEAST_LIMIT:
        raise ValueError(f"a text limit of {limit} is too small to send anything; at least {LEAST_LIMIT}")
    if not text.strip():
        return []
    if limit is None or measure(text, unit) <= limit:
        return [text]
    filler = _Filler(limit, unit)
    for segment in _segments(text):
        if isinstance(segment, _Fence) and filler.fence(segment):
            continue
        filler.prose(segment if isinstance(segment, str) else segment.text)
    filler.flush()
    return filler.chunks


def opening(text: str, size: int, unit: TextUnit = TextUnit.UTF8) -> str:
    """The first `size` units of a text, not cut inside a character; of a text at least one code point."""
    end = _reach(text, 0, size, unit)
    return text if end == len(text) else text[: hard_cut(text, 0, end)]


# ---- blocks


@dataclass(frozen=True, slots=True)
class _Fence:
    indent: str
    marker: str
    head: str
    body: tuple[str, ...]
    tail: str
    """The closing line, empty when the text ends inside the block."""

    @property
    def text(self) -> str:
        return self.head + "".join(self.body) + self.tail


def _segments(text: str) -> Iterator[str | _Fence]:
    """The text as fenced blocks and what lies between them; joined they are the text."""
    prose: list[str] = []
    body: list[str] = []
    opened: re.Match[str] | None = None
    in_list = False
    for line in _lines(text):
        found = _FENCE.match(line)
        if opened is not None:
            if found is not None and _closes(opened, found):
                yield _Fence(opened[1], opened[2], opened[0], tuple(body), line)
                opened = None
            else:
                body.append(line)
            continue
        if _LIST_ITEM.match(line):
            in_list = True
        elif line.strip() and not line[0].isspace():
            in_list = False
        if found is not None and (len(found[1]) <= 3 or in_list) and not (found[2][0] == "`" and "`" in found[3]):
            if prose:
                yield "".join(prose)
            prose, body, opened = [], [], found
        else:
            prose.append(line)
    if opened is not None:
        yield _Fence(opened[1], opened[2], opened[0], tuple(body), "")
    if prose:
        yield "".join(prose)


def _lines(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        end = text.find("\n", at) + 1 or len(text)
        yield text[at:end]
        at = end


def _closes(opened: re.Match[str], line: re.Match[str]) -> bool:
    same = line[2][0] == opened[2][0] and len(line[2]) >= len(opened[2])
    return same and not line[3].strip() and (len(line[1]) <= 3 or len(opened[1]) > 3)


# ---- filling


class _Filler:
    """Packs segments into chunks, one after the other."""

    def __init__(self, limit: int, unit: TextUnit) -> None:
        self.limit = limit
        self.unit = unit
        self.chunks: list[str] = []
        self._pieces: list[str] = []
        self._used = 0

    @property
    def _room(self) -> int:
        return self.limit - self._used

    def _add(self, piece: str) -> None:
        self._pieces.append(piece)
        self._used += measure(piece, self.unit)

    def flush(self) -> None:
        chunk = "".join(self._pieces).lstrip("\n").rstrip()
        if chunk.strip():
            self.chunks.append(chunk)
        self._pieces, self._used = [], 0

    def fence(self, fence: _Fence) -> bool:
        """Place a fenced block; False when its fence leaves no room for a body, so that it must go as prose."""
        whole = fence.text if fence.tail else _ended(fence.text) + fence.indent + fence.marker
        size = measure(whole.rstrip(), self.unit)
        if size <= self.limit:
            if size > self._room:
                self.flush()
            if measure(whole, self.unit) > self._room:
                whole = whole.rstrip()
            self._add(whole)
            return True
        tail = fence.indent + fence.marker
        head = _ended(fence.head)
        if measure(head + tail, self.unit) + 1 > self.limit // 2:
            head = tail + "\n"
        overhead = measure(head + tail, self.unit) + 1
        if overhead > self.limit // 2:
            return False
        self._cut_fence(fence, head, tail, overhead)
        return True

    def _cut_fence(self, fence: _Fence, head: str, tail: str, overhead: int) -> None:
        reserve = measure(tail, self.unit) + 1
        first = measure(fence.body[0], self.unit) if fence.body else 0
        if self._used and self._room < max(self.limit // 3, overhead + min(first, self.limit - overhead)):
            self.flush()
        self._add(head)
        empty = True
        for line in fence.body:
            size = measure(line, self.unit)
            if size > self._room - reserve and not empty:
                self._close(tail)
                self._add(head)
            at = 0
            while size > self._room - reserve:
                end = hard_cut(line, at, _reach(line, at, self._room - reserve, self.unit))
                self._add(line[at:end])
                self._close(tail)
                self._add(head)
                at, size = (
                    end,
                    measure(line[end:], self.unit) if self.unit is not TextUnit.CODEPOINTS else len(line) - end,
                )
            self._add(line[at:])
            empty = False
        if not self._pieces[-1].endswith("\n"):
            self._add("\n")
        self._add(tail)
        if fence.tail.endswith("\n"):
            self._add("\n")

    def _close(self, tail: str) -> None:
        if not self._pieces[-1].endswith("\n"):
            self._add("\n")
        self._add(tail)
        self.flush()

    def prose(self, text: str) -> None:
        text, spans = _protected(text, self.limit, self.unit)
        at = 0
        while at < len(text):
            end = _reach(text, at, self._room, self.unit)
            if end == len(text):
                self._add(text[at:])
                return
            if self._used and self._room < self.limit // 3:
                self.flush()
                continue
            cut = best_break(text, at, end, spans)
            if cut is None:
                if self._used:
                    self.flush()
                    continue
                stop = hard_cut(text, at, outside(spans, at, end))
                cut = stop, stop
            self._add(text[at : cut[0]])
            self.flush()
            at = cut[1]


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


def _reach(text: str, start: int, room: int, unit: TextUnit) -> int:
    """The farthest index whose text from `start` takes at most `room` units."""
    if room <= 0:
        return start
    end = min(len(text), start + room)
    if unit is TextUnit.CODEPOINTS or text[start:end].isascii():
        return end
    used = 0
    for index in range(start, end):
        code = ord(text[index])
        if unit is TextUnit.UTF16:
            used += 2 if code > 0xFFFF else 1
        else:
            used += 1 if code < 0x80 else 2 if code < 0x800 else 3 if code < 0x10000 else 4
        if used > room:
            return index
    return end


# ---- what stays in one piece


def _protected(text: str, limit: int, unit: TextUnit) -> tuple[str, Spans]:
    """The prose with links that are longer than a message written out, and the spans to keep whole."""
    links = list(_links(text))
    long = [link for link in links if measure(text[link[0] : link[3]], unit) > limit]
    if long:
        out: list[str] = []
        at = 0
        for start, label, target, end in long:
            if start < at:
                continue
            before = "" if not text[:start].strip(" ") or text[start - 1] == "\n" else "\n"
            end = skip(text, end, " ")
            after = "" if text.startswith("\n", end) or end == len(text) else "\n"
            out += (text[at:start], before, text[label[0] : label[1]], "\n", text[target[0] : target[1]], after)
            at = end
        out.append(text[at:])
        text = "".join(out)
        links = [link for link in _links(text) if measure(text[link[0] : link[3]], unit) <= limit]
    found = [(link[0], link[3]) for link in links]
    found += [(match.start(), match.end()) for match in _AUTOLINK.finditer(text)]
    found += [(match.start(), match.end()) for match in _URL.finditer(text)]
    found += list(code_spans(text))
    found.sort(key=lambda span: (span[0], -span[1]))
    starts: list[int] = []
    ends: list[int] = []
    for start, end in found:
        if (not ends or start >= ends[-1]) and end - start <= limit and measure(text[start:end], unit) <= limit:
            starts.append(start)
            ends.append(end)
    return text, (starts, ends)


_Link = tuple[int, tuple[int, int], tuple[int, int], int]
"""Start, label, target, end."""


def _links(text: str) -> Iterator[_Link]:
    """`[label](target "title")` and images, outermost last, in the order of their ends.  One pass over the text."""
    closing = _closing_parens(text)
    brackets: list[int] = []
    for found in re.finditer(r"[\[\]]|\n[ \t]*\n", text):
        at, token = found.start(), found[0]
        if token == "[":
            brackets.append(at)
        elif token == "]":
            if not brackets:
                continue
            start = brackets.pop()
            if not text.startswith("(", at + 1):
                continue
            image = 1 if start > 0 and text[start - 1] == "!" else 0
            target = closing.get(at + 1)
            if target is None:
                continue
            stop, end = target
            yield start - image, (start + 1, at), (at + 2, stop), end
        else:
            brackets.clear()


def _closing_parens(text: str) -> dict[int, tuple[int, int]]:
    """For each `(` that holds a link's target: where the target ends, and where the whole construct ends."""
    found: dict[int, tuple[int, int]] = {}
    waiting: list[int] = []
    for match in re.finditer(r"[()\s]", text):
        at, token = match.start(), match[0]
        if token == "(":
            waiting.append(at)
        elif token == ")":
            if waiting:
                found[waiting.pop()] = (at, at + 1)
        else:
            if waiting and text[waiting[0] - 1 : waiting[0]] == "]":
                title = _TITLE.match(text, at)
                if title is not None:
                    found[waiting[0]] = (at, title.end())
            waiting.clear()
    return found
