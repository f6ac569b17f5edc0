"""Where a text may be cut: at the end of a paragraph, line, sentence or word, and never inside of a character."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right

__all__ = ["Spans", "best_break", "hard_cut", "outside", "skip"]

_SENTENCE_END = frozenset(".!?…。！？;:")
_CLOSERS = frozenset("\"')]}”’»*_")
_BACK = 256
"""How far a hard cut looks back for a place between two characters."""
Spans = tuple[list[int], list[int]]
"""Starts and ends of what should stay in one piece, in order, without overlap."""


def best_break(text: str, start: int, end: int, spans: Spans) -> tuple[int, int] | None:
    """The best place before `end`: where the piece ends and where the next one begins; None without white space."""
    end = outside(spans, start, end)
    window = end - start
    blank = _last(text, "\n\n", start + window // 2, end, spans)
    if blank is not None:
        return blank
    line = _last(text, "\n", start + window // 3, end, spans)
    if line is not None:
        return line
    space = None
    for least in (start + window // 2, start + window // 4):
        space = _last(text, " ", least, end, spans)
        if space is not None:
            break
    if space is not None:
        sentence = _sentence(text, start + window // 2, space[0], spans)
        return sentence or space
    return _last(text, "\n", start, end, spans) or _last(text, " ", start, end, spans)


def _sentence(text: str, least: int, end: int, spans: Spans) -> tuple[int, int] | None:
    at: tuple[int, int] | None = (end, end)
    while at is not None and at[0] > least:
        before = at[0] - 1
        while before > least and text[before] in _CLOSERS:
            before -= 1
        if text[before] in _SENTENCE_END and text[before] not in ";:":
            return at[0], skip(text, at[0], " ")
        at = _last(text, " ", least, at[0] - 1, spans)
    return None


def _last(text: str, separator: str, least: int, end: int, spans: Spans) -> tuple[int, int] | None:
    """The last usable separator after `least` and not after `end`."""
    while end > least:
        at = text.rfind(separator, least + 1, end + len(separator))
        if at < 0:
            return None
        resume = skip(text, at, separator)
        whole = outside(spans, least, at)
        if whole == at and _between(text, at) and _may_begin(text, resume):
            return at, resume
        end = min(whole, at - 1)
    return None


def skip(text: str, at: int, separator: str) -> int:
    """Past the white space that a cut swallows: all line ends, or all blanks up to a line's end."""
    char = separator[0]
    while at < len(text) and text[at] == char:
        at += 1
    return at


def _may_begin(text: str, at: int) -> bool:
    """Whether a piece may begin here without changing its meaning or tearing a character."""
    fence = text.startswith(("```", "~~~"), at) and at > 0 and text[at - 1] != "\n"
    return not fence and (at >= len(text) or _between(text, at))


def outside(spans: Spans, start: int, at: int) -> int:
    """`at`, or the start of the span that it would tear when there is one that begins after `start`."""
    starts, ends = spans
    index = bisect_right(starts, at - 1) - 1
    if index >= 0 and starts[index] < at < ends[index] and starts[index] > start:
        return starts[index]
    return at


def hard_cut(text: str, start: int, end: int) -> int:
    """The last place up to `end` that lies between two characters; `end` itself when there is none near."""
    for at in range(end, max(start, end - _BACK), -1):
        if _between(text, at) and _may_begin(text, at):
            return at
    return max(end, start + 1)


def _between(text: str, at: int) -> bool:
    """Whether index `at` lies between two characters as people see them (an approximation of UAX 29)."""
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if before.isascii() and after.isascii():
        return before != "\\" and not (before == "\r" and after == "\n")
    code = ord(after)
    if before == "\u200d" or after == "\u200d" or unicodedata.category(after) in ("Mn", "Mc", "Me"):
        return False
    if 0x1F3FB <= code <= 0x1F3FF or 0xE0020 <= code <= 0xE007F:
        return False
    if 0xDC00 <= code <= 0xDFFF and 0xD800 <= ord(before) <= 0xDBFF:
        return False
    if code == 0x200C or code in (0xFF9E, 0xFF9F) or _one_syllable(ord(before), code):
        return False
    if 0x1F1E6 <= code <= 0x1F1FF:
        run = 0
        while run < _BACK and run < at and 0x1F1E6 <= ord(text[at - 1 - run]) <= 0x1F1FF:
            run += 1
        return run % 2 == 0
    return True


def _one_syllable(before: int, after: int) -> bool:
    """Whether two code points belong to one Hangul syllable (UAX 29, GB6-GB8; a little wider)."""
    if 0x1160 <= after <= 0x11FF or 0xD7B0 <= after <= 0xD7FB:
        return 0x1100 <= before <= 0x11FF or 0xA960 <= before <= 0xA97C or 0xAC00 <= before <= 0xD7FB
    leading = 0x1100 <= before <= 0x115F or 0xA960 <= before <= 0xA97C
    return leading and (0x1100 <= after <= 0x115F or 0xA960 <= after <= 0xA97C or 0xAC00 <= after <= 0xD7A3)
