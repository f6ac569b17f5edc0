"""Cutting prose between words, where links, code and short emphasis stay whole and long emphasis is opened again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jackfield.models import TextUnit
from jackfield.models.splitting import measure, opening

from jackfield_channel_kit.text.dialects.dialect import Dialect

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["Passage", "text_token"]

_SENTENCE = re.compile(r"""[.!?…。！？]["')\]}”’»]*\s+|[。！？]""")
_BREAKS = ("softbreak", "hardbreak")


def text_token(content: str) -> Token:
    """A piece of text as the parser gives it."""
    from markdown_it.token import Token

    return Token("text", "", 0, content=content)


class Passage:
    """One paragraph's inline tokens on their way into pieces of `room` (the first) and `limit` units."""

    def __init__(self, dialect: Dialect, unit: TextUnit, children: Sequence[Token], room: int, limit: int) -> None:
        self._dialect = dialect
        self._unit = unit
        self._limit = limit
        self._target = room
        self._waiting = list(reversed(children))
        self._piece: list[Token] = []
        self._opened: list[Token] = []
        """Emphasis that is longer than a piece and open now."""
        self._used = 0
        self._safe: tuple[int, int] | None = None
        """The last place in the piece after white space, and what lies before it, as a size; None when emphasis
        opened or closed since."""
        self._line: tuple[int, int] | None = None
        """The same, of the last end of a line."""

    def pieces(self) -> Iterator[list[Token]]:
        """The tokens of each piece."""
        while self._waiting:
            token = self._waiting.pop()
            if token.type == "text":
                yield from self._text(token.content)
            elif token.type in _BREAKS:
                yield from self._whole([token])
            elif token.nesting > 0:
                yield from self._group(token)
            elif token.nesting < 0:
                self._close(token)
            else:
                yield from self._whole([token])
        if self._piece:
            yield self._taken()

    # ---- what comes next

    def _size(self, tokens: Sequence[Token]) -> int:
        return measure(self._dialect.inline(tokens), self._unit)

    def _text_size(self, content: str) -> int:
        return measure(self._dialect.text(content), self._unit)

    def _text(self, content: str) -> Iterator[list[Token]]:
        """As much of a text as fits, up to the end of a sentence or a word; the rest waits."""
        room = self._target - self._used
        window = content if len(content) <= room else content[: max(room, 0) + 1]
        size = self._text_size(window)
        if size <= room and len(window) == len(content):
            self._add([text_token(content)], size, content[-1:].isspace())
            return
        end = len(window)
        while size > room and end > 0:
            end = min(end - 1, end * max(room, 0) // size)
            size = self._text_size(content[:end])
        cut = _word_end(content, end, not self._piece)
        if cut > 0:
            self._add([text_token(content[:cut])], self._text_size(content[:cut]), True)
            self._waiting.append(text_token(content[cut:]))
            yield self._taken()
        elif self._has_content():
            self._waiting.append(text_token(content))
            yield self._taken(glued=not content[:1].isspace())
        else:
            head = opening(content, max(end, 1), TextUnit.CODEPOINTS)
            self._add([text_token(head)], self._text_size(head), False)
            self._waiting.append(text_token(content[len(head) :]))
            yield self._taken()

    def _group(self, token: Token) -> Iterator[list[Token]]:
        """A link, or emphasis."""
        group = [token]
        depth = 1
        while depth and self._waiting:
            group.append(self._waiting.pop())
            depth += group[-1].nesting
        size = self._size(group)
        if size <= self._limit:
            yield from self._whole(group, size)
        elif token.type == "link_open":
            target = str(token.attrs.get("href", ""))
            exploded = [text_token(target)]
            if token.markup != "bare" and target.lower().startswith(("https://", "http://")):
                exploded = [_line_end(), *group[1:-1], _line_end(), *_bare(target), _line_end()]
            elif token.markup != "bare":
                exploded = [*group[1:-1], text_token(f" ({target})")]
            self._waiting += reversed(exploded)
        else:
            self._waiting += reversed(group[1:])
            self._opened.append(token)
            self._add([token], 2 * self._size([token]) + 1, True)
            self._safe = self._line = None

    def _close(self, token: Token) -> None:
        if self._opened:
            self._opened.pop()
            self._piece.append(token)
            self._safe = self._line = None

    def _whole(self, tokens: list[Token], size: int | None = None) -> Iterator[list[Token]]:
        """What stays in one piece if a piece can hold it."""
        size = self._size(tokens) if size is None else size
        if self._used + size > self._target and self._has_content():
            self._waiting += reversed(tokens)
            yield self._taken(glued=tokens[0].type not in _BREAKS)
        elif size > max(self._target, self._limit) and tokens[0].type not in _BREAKS:
            yield from self._long(tokens[0])
        elif self._used + size > self._target and self._target < self._limit:
            self._target = self._limit
            self._waiting += reversed(tokens)
        else:
            self._add(tokens, size, tokens[0].type in _BREAKS)

    def _long(self, token: Token) -> Iterator[list[Token]]:
        """A code span or an image that is longer than a piece."""
        content = token.content
        if token.type != "code_inline":
            target = str(token.attrs.get("src", ""))
            self._waiting += [text_token(target), _line_end(), text_token(content)] if content else [text_token(target)]
            return
        from markdown_it.token import Token

        wanted = self._limit
        while True:
            head = opening(content, max(1, wanted), self._unit)
            piece = Token("code_inline", "code", 0, content=head, markup=token.markup)
            size = self._size([piece])
            if size <= self._limit or wanted <= 1:
                break
            wanted = min(wanted - 1, wanted * self._limit // size)
        self._add([piece], size, False)
        if len(head) < len(content):
            self._waiting.append(Token("code_inline", "code", 0, content=content[len(head) :], markup=token.markup))
        yield self._taken()

    # ---- the piece

    def _add(self, tokens: list[Token], size: int, safe: bool) -> None:
        self._piece += tokens
        self._used += size
        if safe:
            self._safe = len(self._piece), self._used
        if tokens[0].type in _BREAKS:
            self._line = self._safe

    def _has_content(self) -> bool:
        return any(token.type in ("code_inline", "image") or token.content.strip() for token in self._piece)

    def _taken(self, glued: bool = False) -> list[Token]:
        """The piece so far, with its emphasis closed; the next one begins with it opened again."""
        from markdown_it.token import Token

        piece = self._piece
        if self._waiting and self._line is not None and self._line[1] >= self._target * 2 // 3:
            count = self._line[0]
            self._waiting += reversed(piece[count:])
            piece = piece[:count]
        elif glued:
            piece = self._unglued()

        closings = [
            Token(one.type.replace("_open", "_close"), one.tag, -1, markup=one.markup) for one in reversed(self._opened)
        ]
        self._piece = list(self._opened)
        self._used = sum(2 * self._size([token]) + 1 for token in self._opened)
        self._target = self._limit
        self._safe = self._line = None
        return _trimmed([*piece, *closings])

    def _unglued(self) -> list[Token]:
        """Up to the last white space, when that is near; what follows it waits again."""
        piece = self._piece
        if not piece:
            return piece
        last = piece[-1]
        if last.type == "text":
            cut = _last_space(last.content)
            if cut > 0 and self._text_size(last.content[cut:]) <= self._limit // 4:
                self._waiting.append(text_token(last.content[cut:]))
                return [*piece[:-1], text_token(last.content[:cut])]
        if self._safe is not None and 0 < self._safe[0] < len(piece):
            count, size = self._safe
            if self._used - size <= self._limit // 4:
                self._waiting += reversed(piece[count:])
                return piece[:count]
        return piece


def _line_end() -> Token:
    from markdown_it.token import Token

    return Token("softbreak", "br", 0)


def _bare(target: str) -> list[Token]:
    """A URL as the parser gives it when it stands in the text."""
    from markdown_it.token import Token

    opened = Token("link_open", "a", 1, attrs={"href": target}, markup="bare")
    return [opened, text_token(target), Token("link_close", "a", -1, markup="bare")]


def _last_space(content: str) -> int:
    """The index after the last white space; 0 when there is none."""
    at = len(content)
    while at > 0 and not content[at - 1].isspace():
        at -= 1
    return at


def _word_end(content: str, end: int, first: bool) -> int:
    """The best place to cut, not after `end`: behind a sentence in the second half, else behind a word; 0 for none."""
    between = end >= len(content) or (end > 0 and content[end].isspace())
    space = end if between else _last_space(content[:end])
    best = 0
    for found in _SENTENCE.finditer(content, end // 2, min(len(content), end + 1)):
        if found.end() <= max(space, end):
            best = found.end()
    if best > end // 2:
        return min(best, end)
    return space if first or space > 0 else 0


def _trimmed(tokens: list[Token]) -> list[Token]:
    """Without white space at the edges, and without emphasis around nothing."""
    out: list[Token] = []
    for token in tokens:
        if token.nesting < 0:
            while out and (out[-1].type in _BREAKS or (out[-1].type == "text" and not out[-1].content.strip())):
                out.pop()
            if out and out[-1].nesting > 0:
                out.pop()
                continue
            if out and out[-1].type == "text" and out[-1].content[-1:].isspace():
                out[-1] = text_token(out[-1].content.rstrip())
        elif token.type in _BREAKS and all(one.nesting > 0 for one in out):
            continue
        elif token.type == "text" and (not out or out[-1].nesting > 0) and token.content[:1].isspace():
            token = text_token(token.content.lstrip())
            if not token.content:
                continue
        out.append(token)
    while out and (out[-1].type in _BREAKS or (out[-1].type == "text" and not out[-1].content.strip())):
        out.pop()
    if out and out[-1].type == "text":
        out[-1] = text_token(out[-1].content.rstrip())
    return out
