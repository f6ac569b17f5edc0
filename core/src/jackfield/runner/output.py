"""The model's words to what is sent where.  Pure, and linear in the length of the text (C217).

`<message to="name">…</message>` addresses a text, `<internal>`, `<think>` and `<thinking>` never leave the runner,
`<final>` is taken off (C167).  A block ends at the last closing tag before the next opening one or the end, so that a
closing tag in the body does not cut it short; tags in code spans and fences are text.  What is not addressed is for the
conversation that the turn answers.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Segment", "parse_output", "visible_output"]


@dataclass(frozen=True, slots=True)
class Segment:
    """One text and the name that it is addressed to; None is the conversation of the turn."""

    to: str | None
    text: str


_HIDDEN = {"internal": "internal", "think": "think", "thinking": "think"}
_NAMES = "message|internal|thinking|think|final"
_TAG = re.compile(rf"<(/?)({_NAMES})(?=[\s/>])([^<>]{{0,512}})>", re.IGNORECASE)
_TO = re.compile(r"""(?:^|\s)to\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'/]+))""", re.IGNORECASE)
_HALF_TAG = re.compile(rf"<(?:/?[a-z]{{0,8}}|/?(?:{_NAMES})\s[^<>]{{0,512}}|(?:{_NAMES})/)$", re.IGNORECASE)
_FENCE = re.compile(r"[ ]{0,3}(`{3,}(?=[^`\n]*$)|~{3,})")
_AFTER_FENCE = re.compile(rf"[ \t]*(?:$|</(?:{_NAMES})[\s>])", re.IGNORECASE)
_TICKS = re.compile(r"`+")


def parse_output(text: str) -> list[Segment]:
    """The whole text of a reply, in order; segments without any text are left out."""
    code, _ = _code(text)
    reader = _Reader()
    at = 0
    for found in _tags(text, code):
        reader.text(text[at : found.start()])
        reader.tag(found)
        at = found.end()
    reader.text(text[at:])
    return reader.end(growing=False)


def visible_output(text: str) -> list[Segment]:
    """What may be shown while the text still grows: only what no later word can hide, move or take back.

    Each segment begins like the one at the same place that `parse_output` finds once the text is complete.
    """
    # A run of backticks at the end may still become another one; so may a blank after a closing fence.
    text = text.rstrip("`~ \t") if text[-1:] in "`~ \t" else text
    code, opened = _code(text)
    half = _HALF_TAG.search(text, max(0, len(text) - 600))
    end = len(text) if half is None else half.start()
    reader = _Reader()
    at = 0
    for found in _tags(text, code):
        if opened is not None and found.start() > opened:
            end = min(end, found.start())
            break
        reader.text(text[at : found.start()])
        reader.tag(found)
        at = found.end()
    reader.text(text[at : max(at, end)])
    return reader.end(growing=True)


class _Reader:
    """Takes text and tags in order and makes segments of them."""

    def __init__(self) -> None:
        self._done: list[Segment] = []
        self._hidden: list[str] = []
        self._depth = dict.fromkeys(_HIDDEN.values(), 0)
        self._outside: list[str] = []
        self._to: str | None = None
        self._body: list[str] | None = None
        self._after: list[str] | None = None  # since the last closing tag of the block

    def text(self, text: str) -> None:
        if text and not self._hidden:
            self._place().append(text)

    def tag(self, found: re.Match[str]) -> None:
        closing, name, rest = bool(found[1]), found[2].lower(), found[3]
        if name in _HIDDEN:
            self._hide(_HIDDEN[name], closing, empty=rest.endswith("/"))
        elif name == "message" and not self._hidden:
            if closing:
                self._close(found[0])
            else:
                self._finish(growing=False)
                to = _TO.search(rest)
                self._to = None if to is None else html.unescape(to[1] or to[2] or to[3] or "")
                self._body = []
                if rest.endswith("/"):
                    self._after = []

    def end(self, *, growing: bool) -> list[Segment]:
        self._finish(growing=growing)
        return self._done

    def _place(self) -> list[str]:
        if self._after is not None:
            return self._after
        return self._outside if self._body is None else self._body

    def _hide(self, name: str, closing: bool, *, empty: bool) -> None:
        if not closing:
            if not empty:
                self._hidden.append(name)
                self._depth[name] += 1
        elif self._depth[name]:
            inner = ""
            while inner != name:
                inner = self._hidden.pop()
                self._depth[inner] -= 1

    def _close(self, written: str) -> None:
        if self._body is None:
            return
        if self._after is not None:
            self._body += [written, *self._after]
        self._after = []

    def _finish(self, *, growing: bool) -> None:
        if self._body is not None:
            self._add(self._to, self._body)
            # While the text grows, a later closing tag may still take what follows into the block.
            self._outside = [] if growing else self._after or []
            self._to = self._body = self._after = None
            if growing:
                return
        if self._outside:
            self._add(None, self._outside)
            self._outside = []

    def _add(self, to: str | None, pieces: list[str]) -> None:
        text = "".join(pieces).strip()
        if text:
            self._done.append(Segment(to, text))


def _tags(text: str, code: list[tuple[int, int]]) -> Iterator[re.Match[str]]:
    """The tags that don't stand in code."""
    regions = iter(code)
    start, end = next(regions, (len(text), len(text)))
    for found in _TAG.finditer(text):
        while end <= found.start():
            start, end = next(regions, (len(text) + 1, len(text) + 1))
        if found.start() < start:
            yield found


def _code(text: str) -> tuple[list[tuple[int, int]], int | None]:
    """Where code stands, and where code begins that is not closed yet.

    A fence without an end is no code: a forgotten fence must not swallow the tags behind it.
    """
    if "`" not in text and "~~~" not in text:
        return [], None
    found: list[tuple[int, int]] = []
    opened: int | None = None
    fence: tuple[int, str] | None = None
    retry: int | None = None
    at = 0
    for line in _lines(text):
        body = line.rstrip("\r\n")
        if fence is not None:
            end = _fence_end(body, fence[1])
            if end is not None:
                found.append((fence[0], at + end))
                fence = retry = None
        else:
            start = _fence_start(body)
            if start is not None:
                fence = (at + start[0], start[1])
                retry = at + len(line)
            else:
                opened = _spans(body, at, found)
        at += len(line)
    if fence is None or retry is None:
        return found, opened
    at = retry
    for line in _lines(text[retry:]):
        _spans(line, at, found)
        at += len(line)
    return found, fence[0]


def _lines(text: str) -> list[str]:
    return [line + "\n" for line in text.split("\n")]


def _fence_start(line: str) -> tuple[int, str] | None:
    """Where a fence opens in this line: at its start, or right after a tag of ours that starts the line."""
    at = 0
    if line.lstrip().startswith("<"):
        leading = _TAG.match(line, len(line) - len(line.lstrip()))
        at = 0 if leading is None else leading.end()
    found = _FENCE.match(line, at)
    return None if found is None else (found.start(1), found[1])


def _fence_end(line: str, mark: str) -> int | None:
    found = _FENCE.match(line) or re.match(r"[ ]{0,3}(`{3,})", line)
    if found is None or found[1][0] != mark[0] or len(found[1]) < len(mark):
        return None
    return found.end() if _AFTER_FENCE.match(line, found.end()) else None


def _spans(line: str, offset: int, found: list[tuple[int, int]]) -> int | None:
    """Add the code spans of one line; where one opens that this line does not close."""
    runs = [(match.start(), match.end()) for match in _TICKS.finditer(line)]
    if not runs:
        return None
    later: list[int | None] = [None] * len(runs)
    seen: dict[int, int] = {}
    for index in range(len(runs) - 1, -1, -1):
        length = runs[index][1] - runs[index][0]
        later[index] = seen.get(length)
        seen[length] = index
    opened: int | None = None
    index = 0
    while index < len(runs):
        match = later[index]
        if match is None:
            opened = offset + runs[index][0] if opened is None else opened
            index += 1
        else:
            found.append((offset + runs[index][0], offset + runs[match][1]))
            index = match + 1
    return opened
