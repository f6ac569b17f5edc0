"""Trigger patterns with a cost that has a bound (C048).

An operator writes a pattern in Python's syntax; a stranger writes the text that it is run on.  Python's own engine
backtracks, so that some pairs of the two take for ever.  Here the pattern becomes an automaton over bit sets: the cost
is one step a character, for every pattern.  What no automaton can do (back-references, look-around) is refused when the
pattern is written.
"""

from __future__ import annotations

import importlib
import re
import warnings
from dataclasses import dataclass, field
from typing import Any

from jackfield.errors import ConfigError

__all__ = ["MAX_POSITIONS", "SCANNED", "Pattern", "check_pattern"]

_parser: Any = importlib.import_module("re._parser")
_constants: Any = importlib.import_module("re._constants")

MAX_POSITIONS = 256
"""How many characters a pattern may stand for, once its counted repeats are written out."""
MAX_CLASSES = 32
SCANNED = 10_000
"""How many characters of a message are looked at."""
_KEPT = 4096
_FIX = "use plain words, sets, groups, `|`, `*`, `+`, `?`, small `{m,n}`, `^`, `$` and `\\b`"
_WORD = re.compile(r"\w")


@dataclass(slots=True)
class _Node:
    """A place of the automaton: free moves, each under an assertion or none, and at most one that takes a character."""

    moves: list[tuple[int, int | None]] = field(default_factory=list)
    takes: int | None = None
    after: int = 0


class _Refused(Exception):
    pass


class _Builder:
    def __init__(self, flags: int) -> None:
        self.nodes: list[_Node] = []
        self.literals: dict[str, int] = {}
        self.classes: dict[tuple[str, int], int] = {}
        self.leaving: list[int] = []
        self.assertions: list[Any] = []
        self.flags = flags

    def node(self) -> int:
        if len(self.nodes) > 16 * MAX_POSITIONS:
            raise _Refused(f"it is too large: more than {MAX_POSITIONS} characters when its repeats are written out")
        self.nodes.append(_Node())
        return len(self.nodes) - 1

    def take(self, start: int, char: str | None, source: str, flags: int) -> int:
        position = len(self.leaving)
        if position >= MAX_POSITIONS:
            raise _Refused(f"it is too large: more than {MAX_POSITIONS} characters when its repeats are written out")
        end = self.node()
        middle = self.node()
        self.nodes[start].moves.append((middle, None))
        self.nodes[middle].takes = position
        self.nodes[middle].after = end
        self.leaving.append(end)
        if char is not None and not flags & re.IGNORECASE:
            self.literals[char] = self.literals.get(char, 0) | 1 << position
            return end
        key = (source, flags & (re.IGNORECASE | re.ASCII | re.DOTALL))
        if key not in self.classes and len(self.classes) >= MAX_CLASSES:
            raise _Refused(f"it has more than {MAX_CLASSES} different sets of characters")
        self.classes[key] = self.classes.get(key, 0) | 1 << position
        return end

    def sequence(self, items: Any, start: int, flags: int) -> int:
        for code, argument in items:
            start = self.item(code, argument, start, flags)
        return start

    def item(self, code: Any, argument: Any, start: int, flags: int) -> int:
        c = _constants
        if code is c.LITERAL:
            return self.take(start, chr(argument), _quoted(argument), flags)
        if code is c.NOT_LITERAL:
            return self.take(start, None, f"[^{_quoted(argument)}]", flags)
        if code is c.ANY:
            return self.take(start, None, ".", flags)
        if code is c.IN:
            return self.take(start, None, _set_source(argument), flags)
        if code is c.BRANCH:
            end = self.node()
            for branch in argument[1]:
                self.nodes[self.sequence(branch, self.fork(start), flags)].moves.append((end, None))
            return end
        if code is c.SUBPATTERN:
            _group, added, removed, inner = argument
            return self.sequence(inner, start, (flags | added) & ~removed)
        if code in (c.MAX_REPEAT, c.MIN_REPEAT):
            least, most, inner = argument
            return self.repeat(least, most, inner, start, flags)
        if code is c.AT:
            return self.assertion(argument, start, flags)
        raise _Refused(f"it uses {_words(code)}, whose cost has no bound")

    def fork(self, start: int) -> int:
        inner = self.node()
        self.nodes[start].moves.append((inner, None))
        return inner

    def repeat(self, least: int, most: Any, items: Any, start: int, flags: int) -> int:
        if least > MAX_POSITIONS or (most is not _constants.MAXREPEAT and most > MAX_POSITIONS):
            raise _Refused(f"it repeats something more than {MAX_POSITIONS} times")
        for _ in range(least):
            start = self.sequence(items, start, flags)
        if most is _constants.MAXREPEAT:
            loop = self.fork(start)
            self.nodes[self.sequence(items, self.fork(loop), flags)].moves.append((loop, None))
            return self.fork(loop)
        end = self.node()
        for _ in range(most - least):
            self.nodes[start].moves.append((end, None))
            start = self.sequence(items, self.fork(start), flags)
        self.nodes[start].moves.append((end, None))
        return end

    def assertion(self, kind: Any, start: int, flags: int) -> int:
        c = _constants
        if flags & re.MULTILINE and kind in (c.AT_BEGINNING, c.AT_END):
            kind = c.AT_BEGINNING_LINE if kind is c.AT_BEGINNING else c.AT_END_LINE
        ascii_word = bool(flags & re.ASCII) and kind in (c.AT_BOUNDARY, c.AT_NON_BOUNDARY)
        wanted = (kind, ascii_word)
        if wanted not in self.assertions:
            self.assertions.append(wanted)
        end = self.node()
        self.nodes[start].moves.append((end, self.assertions.index(wanted)))
        return end


def _quoted(code: int) -> str:
    return f"\\U{code:08x}"


def _set_source(items: Any) -> str:
    c = _constants
    names = {
        c.CATEGORY_DIGIT: "\\d",
        c.CATEGORY_NOT_DIGIT: "\\D",
        c.CATEGORY_SPACE: "\\s",
        c.CATEGORY_NOT_SPACE: "\\S",
        c.CATEGORY_WORD: "\\w",
        c.CATEGORY_NOT_WORD: "\\W",
    }
    out = []
    for code, argument in items:
        if code is c.NEGATE:
            out.append("^")
        elif code is c.LITERAL:
            out.append(_quoted(argument))
        elif code is c.RANGE:
            out.append(f"{_quoted(argument[0])}-{_quoted(argument[1])}")
        else:
            out.append(names[argument])
    return "[" + "".join(out) + "]"


def _words(code: Any) -> str:
    return {
        "GROUPREF": "a back-reference",
        "GROUPREF_EXISTS": "a conditional group",
        "ASSERT": "look-around",
        "ASSERT_NOT": "look-around",
        "ATOMIC_GROUP": "an atomic group",
        "POSSESSIVE_REPEAT": "a possessive repeat",
    }.get(str(code), str(code).lower())


class Pattern:
    """A checked pattern.  `search` tells whether it matches anywhere in the first `SCANNED` characters."""

    __slots__ = ("_assertions", "_classes", "_closures", "_leaving", "_literals", "_masks", "_nodes", "_steps", "text")

    def __init__(self, text: str, builder: _Builder, end: int) -> None:
        self.text = text
        self._nodes = builder.nodes
        self._leaving = builder.leaving
        self._literals = builder.literals
        self._classes = [(re.compile(source, flags), mask) for (source, flags), mask in builder.classes.items()]
        self._assertions: list[tuple[Any, bool]] = builder.assertions
        self._masks: dict[str, int] = {}
        self._closures: dict[tuple[int, int], int] = {}
        self._steps: dict[tuple[int, int], int] = {}
        # The accepting place takes a position of its own, so that one bit of a set says "matched".
        self._nodes[end].takes = len(self._leaving)

    def search(self, text: str) -> bool:
        text = text[:SCANNED]
        accept = 1 << len(self._leaving)
        taken = 0
        masks, steps = self._masks, self._steps
        context = 0
        for index, char in enumerate(text):
            if self._assertions:
                context = self._context(text, index)
            ready = steps.get((taken, context))
            if ready is None:
                ready = self._step(taken, context)
            if ready & accept:
                return True
            mask = masks.get(char)
            taken = ready & (self._mask(char) if mask is None else mask)
        context = self._context(text, len(text)) if self._assertions else 0
        return bool(self._step(taken, context) & accept)

    def _mask(self, char: str) -> int:
        mask = self._literals.get(char, 0)
        for kind, positions in self._classes:
            if kind.match(char):
                mask |= positions
        if len(self._masks) >= _KEPT:
            self._masks.clear()
        self._masks[char] = mask
        return mask

    def _step(self, taken: int, context: int) -> int:
        """The positions that can take the next character, once those in `taken` took the last one."""
        ready = self._closure(0, context)
        if taken:
            for chunk, byte in enumerate(taken.to_bytes((taken.bit_length() + 7) // 8, "little")):
                if byte:
                    ready |= self._chunk(chunk << 8 | byte, context)
        if len(self._steps) >= _KEPT:
            self._steps.clear()
        self._steps[taken, context] = ready
        return ready

    def _chunk(self, chunk: int, context: int) -> int:
        key = (-1 - chunk, context)
        found = self._closures.get(key)
        if found is None:
            found = 0
            for bit in range(8):
                if chunk >> bit & 1:
                    found |= self._closure(self._leaving[(chunk >> 8) * 8 + bit], context)
            self._closures[key] = found
        return found

    def _closure(self, node: int, context: int) -> int:
        found = self._closures.get((node, context))
        if found is not None:
            return found
        found, seen, waiting = 0, {node}, [node]
        while waiting:
            place = self._nodes[waiting.pop()]
            if place.takes is not None:
                found |= 1 << place.takes
            for target, assertion in place.moves:
                if target not in seen and (assertion is None or context >> assertion & 1):
                    seen.add(target)
                    waiting.append(target)
        self._closures[node, context] = found
        return found

    def _context(self, text: str, index: int) -> int:
        """One bit for each assertion of the pattern that holds before the character at `index`."""
        c = _constants
        found = 0
        for bit, (kind, ascii_word) in enumerate(self._assertions):
            if kind in (c.AT_BEGINNING, c.AT_BEGINNING_STRING):
                holds = index == 0
            elif kind is c.AT_BEGINNING_LINE:
                holds = index == 0 or text[index - 1] == "\n"
            elif kind is c.AT_END_STRING:
                holds = index == len(text)
            elif kind is c.AT_END:
                holds = index == len(text) or (index == len(text) - 1 and text[index] == "\n")
            elif kind is c.AT_END_LINE:
                holds = index == len(text) or text[index] == "\n"
            else:
                before = index > 0 and _is_word(text[index - 1], ascii_word)
                after = index < len(text) and _is_word(text[index], ascii_word)
                holds = (before != after) == (kind is c.AT_BOUNDARY)
            found |= holds << bit
        return found


def _is_word(char: str, ascii_only: bool) -> bool:
    return (char.isalnum() or char == "_") and (not ascii_only or char.isascii())


def check_pattern(text: str) -> Pattern:
    """The pattern, ready to search.  Called when one is written, so that a stored one is always usable.

    Raises:
        ConfigError: it is empty, no regular expression, too large, or of a kind whose cost has no bound.
    """
    if not text:
        raise ConfigError("an empty pattern matches everything", fix="use the engage mode `always`")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = _parser.parse(text)
        builder = _Builder(tree.state.flags)
        start = builder.node()
        end = builder.sequence(tree, start, tree.state.flags)
        return Pattern(text, builder, end)
    except re.error as problem:
        raise ConfigError(f"pattern {text!r} is no regular expression: {problem}", fix=_FIX) from None
    except _Refused as problem:
        raise ConfigError(f"pattern {text!r} can't be used: {problem}", fix=_FIX) from None
    except (RecursionError, OverflowError):
        raise ConfigError(
            f"pattern {text[:60]!r} can't be used: it is nested too deeply or repeats too often"
        ) from None
