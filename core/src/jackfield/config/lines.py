"""Which line of a TOML text a key is on.

`tomllib` gives values without places and tomlkit gives none either, so a small scanner walks the text once.  It is
meant for text that `tomllib` has accepted; on any other it finds what it can and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["KeyPath", "find_lines", "line_of", "split_key"]

KeyPath = tuple[str, ...]

_DEPTH = 32
"""No setting lies deeper, and a hostile key of thousands of parts must not cost the square of its length."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = " \t"
_ESCAPE = re.compile(r'\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[btnfr"\\])')
_SHORT = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}


def find_lines(text: str) -> dict[KeyPath, int]:
    """Lines, from 1, of every table header and key, by full path.

    Elements of an array of tables have their index as a part of the path.  A table that exists only through longer
    keys has the line of the first of these.
    """
    return _Scanner(text).scan()


def line_of(lines: Mapping[KeyPath, int], path: KeyPath) -> int | None:
    """The line of `path`, or of the nearest table around it."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def split_key(text: str) -> KeyPath:
    """A dotted key, whose parts may be quoted, as its parts; empty when it is no key."""
    scanner = _Scanner(text)
    path = scanner.key()
    return path if scanner.at == len(text) else ()


def _unescape(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] not in "uU":
        return _SHORT[code]
    number = int(code[1:], 16)
    return chr(number) if number < 0x110000 else "\ufffd"


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.found: dict[KeyPath, int] = {}
        self.arrays: dict[KeyPath, int] = {}

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        while self.at < len(self.text):
            before = self.at
            self.skip(_BLANK + "\r\n")
            if self.peek("#"):
                self.skip_comment()
            elif self.peek("["):
                table = self.header()
            elif self.at < len(self.text):
                self.pair(table)
            if self.at == before:
                self.step()
        return self.found

    def peek(self, word: str) -> bool:
        return self.text.startswith(word, self.at)

    def step(self, count: int = 1) -> None:
        self.line += self.text.count("\n", self.at, self.at + count)
        self.at = min(len(self.text), self.at + count)

    def skip(self, characters: str) -> None:
        while self.at < len(self.text) and self.text[self.at] in characters:
            self.step()

    def skip_comment(self) -> None:
        """To the end of the line."""
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def note(self, path: KeyPath, line: int) -> None:
        for length in range(1, min(len(path), _DEPTH) + 1):
            self.found.setdefault(path[:length], line)

    def header(self) -> KeyPath:
        line = self.line
        many = self.peek("[[")
        self.step(2 if many else 1)
        self.skip(_BLANK)
        path = self.place(self.key())
        if many:
            index = self.arrays[path] = self.arrays.get(path, -1) + 1
            self.note(path, line)
            path = (*path, str(index))
        self.note(path, line)
        self.skip_comment()
        return path

    def place(self, path: KeyPath) -> KeyPath:
        """The path with the present index put in after each array of tables that it goes through."""
        out: KeyPath = ()
        for number, part in enumerate(path):
            out = (*out, part)
            if out in self.arrays and number < len(path) - 1:
                out = (*out, str(self.arrays[out]))
        return out

    def key(self) -> KeyPath:
        parts: list[str] = []
        while self.at < len(self.text):
            self.skip(_BLANK)
            if self.peek('"'):
                parts.append(_ESCAPE.sub(_unescape, self.quoted('"')))
            elif self.peek("'"):
                parts.append(self.quoted("'"))
            elif word := _BARE.match(self.text, self.at):
                parts.append(word[0])
                self.at = word.end()
            else:
                break
            self.skip(_BLANK)
            if not self.peek("."):
                break
            self.step()
        return tuple(parts)

    def quoted(self, mark: str) -> str:
        """Step over a string that starts here and return what is between its marks."""
        long = mark * 3
        if self.peek(long):
            self.step(3)
            return self.until(long, escapes=mark == '"')
        self.step()
        return self.until(mark, escapes=mark == '"')

    def until(self, end: str, *, escapes: bool) -> str:
        start = self.at
        position = self.at
        while position < len(self.text):
            if escapes and self.text[position] == "\\":
                position += 2
            elif self.text.startswith(end, position) or (len(end) == 1 and self.text[position] == "\n"):
                break
            else:
                position += 1
        position = min(position, len(self.text))
        inside = self.text[start:position]
        self.step(position - start)
        if self.peek(end):
            self.step(len(end))
            while len(end) == 3 and self.peek(end[0]):  # a long string may end in up to two more marks
                self.step()
        return inside

    def pair(self, table: KeyPath) -> None:
        line = self.line
        key = self.key()
        path = (*table, *key)
        if key:
            self.note(path, line)
        self.skip(_BLANK)
        if self.peek("="):
            self.step()
            self.value(path)

    def value(self, path: KeyPath) -> None:
        """Step over a value.  Iterative over nested arrays and inline tables, so that depth can't exhaust the stack."""
        open_marks: list[tuple[str, KeyPath]] = []
        expect_key = False
        while self.at < len(self.text):
            character = self.text[self.at]
            if expect_key and character not in " \t\r\n,#}":
                line = self.line
                key = self.key()
                if not key:
                    self.step()
                    continue
                path = (*open_marks[-1][1], *key)
                self.note(path, line)
                self.skip(_BLANK)
                if self.peek("="):
                    self.step()
                expect_key = False
            elif character in "\"'":
                self.quoted(character)
            elif character == "#":
                self.skip_comment()
            elif character in "[{":
                open_marks.append((character, path))
                expect_key = character == "{"
                self.step()
            elif character in "]}":
                self.step()
                if open_marks:
                    open_marks.pop()
                expect_key = False
                if not open_marks:
                    return
            elif character == ",":
                self.step()
                expect_key = bool(open_marks) and open_marks[-1][0] == "{"
            elif character == "\n" and not open_marks:
                return
            else:
                self.step()
