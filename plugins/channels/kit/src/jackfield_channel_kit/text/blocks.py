"""Rendering a text in parts: cutting lists, quotes, tables and code that are longer than a part."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jackfield.models import TextUnit
from jackfield.models.splitting import LEAST_LIMIT, measure, opening

from jackfield_channel_kit.text.dialects.commonmark import CommonMark, fenced
from jackfield_channel_kit.text.dialects.dialect import Dialect, closing, table_cells
from jackfield_channel_kit.text.markdown import parse
from jackfield_channel_kit.text.packing import Packer, Pair
from jackfield_channel_kit.text.passages import Passage, text_token

if TYPE_CHECKING:
    from markdown_it.token import Token

__all__ = ["Cutter"]

_DEEPEST = 4
"""Lists and quotes in each other that are cut as such; what is longer than a part further inside is cut as prose."""
_MARKER = re.compile(r"^ {0,3}([-*+]|(\d{1,9})([.)]))( *)(.*)$")
_QUOTED = re.compile(r"^ {0,3}> ?")
_PLAIN = re.compile(r"[^\\`*_\[\]<>&~|#!:=+\n-]*")
"""A piece that means what it says whatever stands before it."""


class Cutter:
    def __init__(self, dialect: Dialect, unit: TextUnit) -> None:
        self.dialect = dialect
        self.unit = unit
        self.commonmark = CommonMark()

    def size(self, text: str) -> int:
        return measure(text, self.unit)

    def render(self, text: str) -> str:
        return self.dialect.separator.join(self.dialect.blocks(parse(text)))

    def parts(self, text: str, limit: int, depth: int = 0) -> list[Pair]:
        """The parts of a cleaned text, each of at most `limit`."""
        definitions: dict[str, Any] = {}
        tokens = parse(text, definitions)
        if definitions.get("references"):
            # A part can't see the definitions of the others.
            text = "\n\n".join(self.commonmark.blocks(tokens))
            tokens = parse(text)
        rendered = self.dialect.blocks(tokens)
        whole = self.dialect.separator.join(rendered)
        if self.size(whole) <= limit:
            return [(text, whole)] if whole.strip() else []
        packer = Packer(self.dialect.separator, limit)
        lines = text.split("\n")
        at = 0
        for block in rendered:
            token = tokens[at]
            end = closing(tokens, at) + 1 if token.nesting > 0 else at + 1
            first, last = token.map or [0, 0]
            size = self.size(block)
            if size <= limit:
                packer.add(_closed(token, lines[first:last]), block, size, heading=token.type == "heading_open")
            else:
                room = packer.room()
                for number, (piece, shown) in enumerate(
                    self._cut(tokens[at:end], lines[first:last], room, limit, depth)
                ):
                    if number:
                        packer.flush()
                    packer.add(piece, shown, self.size(shown))
            at = end
        packer.flush()
        return packer.parts

    def _cut(self, tokens: Sequence[Token], lines: list[str], room: int, limit: int, depth: int) -> Iterator[Pair]:
        """The pieces of a block that is longer than `limit`; the first has `room`."""
        kind = tokens[0].type
        if kind in ("fence", "code_block"):
            return self._code(tokens[0], room, limit)
        if kind == "table_open":
            return self._table(tokens, lines, room, limit)
        if kind in ("bullet_list_open", "ordered_list_open"):
            return self._list(tokens, lines, room, limit, depth)
        if kind == "blockquote_open":
            return self._quote(lines, limit, depth)
        level = int(tokens[0].tag[1]) if kind == "heading_open" else 0
        return self.prose(tokens[1].children or (), room, limit, level)

    # ---- prose

    def prose(self, children: Sequence[Token], room: int, limit: int, level: int = 0) -> Iterator[Pair]:
        """Pieces of a paragraph, or of a heading of that level."""
        for index, piece in enumerate(Passage(self.dialect, self.unit, children, room, limit).pieces()):
            yield from self._checked(piece, room if index == 0 else limit, limit, level)

    def _checked(self, children: Sequence[Token], target: int, limit: int, level: int) -> Iterator[Pair]:
        """The piece; cut again when it is longer than its tokens one by one, or read anew."""
        if level:
            text, shown = self.commonmark.heading(level, children), self.dialect.heading(level, children)
        else:
            text = self.commonmark.paragraph(self.commonmark.inline(children), False)
            shown = self.dialect.paragraph(self.dialect.inline(children), False)
        if not text.strip():
            return
        if not level and _PLAIN.fullmatch(text) is None:
            shown = self.render(text)
        if self.size(shown) <= target:
            yield text, shown
            return
        smaller = target * 3 // 4
        if smaller >= LEAST_LIMIT // 2:
            for piece in Passage(self.dialect, self.unit, children, smaller, smaller).pieces():
                yield from self._checked(piece, target, limit, 0 if smaller < limit // 2 else level)
        else:
            yield text, shown

    def _literal(self, text: str, limit: int) -> Iterator[Pair]:
        """What can't be cut as what it is, line by line."""
        from jackfield_channel_kit.text.dialects.plain import Plain

        plain = Plain()
        for line in plain.separator.join(plain.blocks(parse(text))).split("\n"):
            if line.strip():
                yield from self.prose([text_token(line.strip())], limit, limit)

    # ---- code and tables

    def _code(self, token: Token, room: int, limit: int) -> Iterator[Pair]:
        marker, info = token.markup or "```", token.info.strip()
        language = info.split(maxsplit=1)[0] if info else ""
        frame = self.size(self.dialect.code_block("\n", language))
        if max(frame, len(info) + 8) > limit // 2:
            info = language = ""
            frame = self.size(self.dialect.code_block("\n", ""))
        marker = marker[0] * min(len(marker), limit // 8) if len(marker) > 3 else marker
        line_end = self.size(self.dialect.code_block("\n\n", language)) - frame
        whole = token.content.split("\n")
        whole = whole[:-1] if whole and not whole[-1] else whole
        waiting = [line + "\n" for line in reversed(whole)]
        piece: list[str] = []
        used, target = frame, room
        while waiting:
            line = waiting.pop()
            cost = self.size(self.dialect.code_block(line, language)) - frame + (line_end if piece else 0)
            if used + cost <= target:
                piece.append(line)
                used += cost
                continue
            if piece:
                waiting.append(line)
                yield self._code_piece(piece, info, language, marker, target, waiting)
                target = limit
            elif target < limit:
                waiting.append(line)
                target = limit
            else:
                head = self._code_head(line, language, frame, limit)
                waiting.append(line[len(head) :])
                yield fenced(head, info, marker), self.dialect.code_block(head + "\n", language)
            piece, used = [], frame
        if piece:
            yield self._code_piece(piece, info, language, marker, target, waiting)
            while waiting:
                rest, waiting = waiting[::-1], []
                yield self._code_piece(rest, info, language, marker, limit, waiting)

    def _code_piece(
        self, piece: list[str], info: str, language: str, marker: str, target: int, waiting: list[str]
    ) -> Pair:
        """The lines, fenced; those that don't fit after all wait again."""
        while True:
            code = "".join(piece)
            shown = self.dialect.code_block(code, language)
            over = self.size(shown) - target
            if over <= 0 or len(piece) == 1:
                return fenced(code, info, marker), shown
            while over > 0 and len(piece) > 1:
                waiting.append(piece.pop())
                over -= len(waiting[-1])

    def _code_head(self, line: str, language: str, frame: int, limit: int) -> str:
        """The longest beginning of a line that fits alone."""
        wanted = limit - frame
        while True:
            head = opening(line, max(1, wanted), self.unit).removesuffix("\n")
            over = self.size(self.dialect.code_block(head + "\n", language)) - limit
            if over <= 0 or wanted <= 1:
                return head or line[:1]
            wanted = min(wanted - 1, wanted * limit // (limit + over))

    def _table(self, tokens: Sequence[Token], lines: list[str], room: int, limit: int) -> Iterator[Pair]:
        rows, alignments = table_cells(tokens, 0, len(tokens))
        head, body = rows[0], rows[1:]
        at, count, target = 0, 8, room
        if not body:
            yield from self._row(head, limit)
        while at < len(body):
            count = max(1, min(count, len(body) - at))
            shown = self.dialect.table([head, *body[at : at + count]], alignments)
            size = self.size(shown)
            if size > target:
                if count > 1:
                    count = max(1, min(count - 1, count * target // size))
                elif target < limit:
                    target = limit
                else:
                    yield from self._row(body[at], limit)
                    at += 1
                continue
            larger = min(len(body) - at, count * target // size)
            if larger > count:
                more = self.dialect.table([head, *body[at : at + larger]], alignments)
                if self.size(more) <= target:
                    count, shown = larger, more
            yield "\n".join([*lines[:2], *lines[2 + at : 2 + at + count]]), shown
            at, target = at + count, limit

    def _row(self, cells: Sequence[Sequence[Token]], limit: int) -> Iterator[Pair]:
        """A row that is longer than a part, as prose."""
        children: list[Token] = []
        for cell in cells:
            children += [text_token(" | "), *cell] if children else cell
        yield from self.prose(children, limit, limit)

    # ---- lists and quotes

    def _list(self, tokens: Sequence[Token], lines: list[str], room: int, limit: int, depth: int) -> Iterator[Pair]:
        opened, closed = tokens[0], tokens[-1]
        origin = (opened.map or [0, 0])[0]
        ordered = opened.type == "ordered_list_open"
        first_number = int(opened.attrs.get("start", 1)) if ordered else 0
        spans: list[tuple[int, int]] = []
        at = 1
        while at < len(tokens) - 1:
            end = closing(tokens, at) + 1
            spans.append((at, end))
            at = end
        loose = any(
            token.type == "paragraph_open" and not token.hidden and token.level == opened.level + 2 for token in tokens
        )
        between = len(self.dialect.separator) if loose else 1

        def shown(start: int, stop: int) -> str:
            begin = copy.copy(opened)
            begin.attrs = {**opened.attrs, "start": first_number + start} if ordered else opened.attrs
            return self.dialect.blocks([begin, *tokens[spans[start][0] : spans[stop - 1][1]], closed])[0]

        def item_lines(start: int, stop: int) -> str:
            first = (tokens[spans[start][0]].map or [0, 0])[0] - origin
            last = (tokens[spans[stop - 1][0]].map or [0, 0])[1] - origin
            return "\n".join(lines[first:last]).rstrip()

        def source(start: int, stop: int) -> str:
            if not ordered or not start:
                return item_lines(start, stop)
            head = _numbered(item_lines(start, start + 1), first_number + start)
            rest = item_lines(start + 1, stop) if stop > start + 1 else ""
            return head + ("\n\n" if loose else "\n") + rest if rest else head

        sizes = [self.size(shown(number, number + 1)) for number in range(len(spans))]
        start, target = 0, room
        while start < len(spans):
            stop, used = start, -between
            while stop < len(spans) and used + between + sizes[stop] <= target:
                used += between + sizes[stop]
                stop += 1
            if stop == start:
                if target < limit:
                    target = limit
                    continue
                yield from self._item(source(start, start + 1), limit, depth)
                start += 1
                continue
            text = source(start, stop)
            piece = self.render(text) if loose else shown(start, stop)
            while self.size(piece) > target and stop > start + 1:
                stop -= 1
                text = source(start, stop)
                piece = self.render(text)
            if self.size(piece) > target:
                yield from self._item(text, limit, depth)
            else:
                yield text, piece
            start, target = stop, limit

    def _item(self, source: str, limit: int, depth: int) -> Iterator[Pair]:
        """An item that is longer than a part: its beginning bears the marker, what follows stands alone."""
        lines = source.expandtabs(4).split("\n")
        found = _MARKER.match(lines[0])
        if found is None:
            yield from self._literal(source, limit)
            return
        marker, spaces = found[1], len(found[4])
        width = found.end(1) + (spaces if 1 <= spaces <= 4 and found[5] else 1)
        inner = "\n".join([lines[0][width:], *(_dedented(line, width) for line in lines[1:])])
        indent = " " * (len(marker) + 1)

        def placed(number: int, piece: str) -> str:
            return piece if number else f"{marker} " + piece.replace("\n", "\n" + indent)

        yield from self._inside(source, inner, limit, depth, placed)

    def _quote(self, lines: list[str], limit: int, depth: int) -> Iterator[Pair]:
        inner = "\n".join(_QUOTED.sub("", line.expandtabs(4)) for line in lines)

        def placed(number: int, piece: str) -> str:
            return "> " + piece.replace("\n", "\n> ")

        return self._inside("\n".join(lines), inner, limit, depth, placed)

    def _inside(self, source: str, inner: str, limit: int, depth: int, placed: Any) -> Iterator[Pair]:
        """The parts of what a container holds, each put back into one."""
        if depth < _DEEPEST and limit >= 3 * LEAST_LIMIT:
            frame = self.size(self.render(placed(0, "x"))) - self.size(self.render("x"))
            for wanted in (limit - frame - limit // 8, limit // 2):
                if wanted < LEAST_LIMIT:
                    break
                pieces = [
                    placed(number, piece) for number, (piece, _) in enumerate(self.parts(inner, wanted, depth + 1))
                ]
                pairs = [(piece, self.render(piece)) for piece in pieces]
                if all(self.size(shown) <= limit for _, shown in pairs):
                    yield from pairs
                    return
        yield from self._literal(source, limit)


def _closed(token: Token, lines: list[str]) -> str:
    """The source of a block, with the fence that its author forgot."""
    text = "\n".join(lines).rstrip()
    if token.type == "fence":
        last = lines[-1].strip() if len(lines) > 1 else ""
        if len(last) < len(token.markup) or last.strip(token.markup[0]):
            text += "\n" + token.markup
    return text


def _numbered(text: str, number: int) -> str:
    """An ordered item that begins with that number."""
    head, _, rest = text.partition("\n")
    found = _MARKER.match(head)
    if found is None or found[2] is None:
        return text
    wider = len(str(number)) - len(found[2])
    lines = [" " * wider + line if line.strip() and wider > 0 else line for line in rest.split("\n")] if rest else []
    if wider < 0:
        head = head[: found.end(1)] + " " * min(-wider, 3) + head[found.end(1) :]
    return "\n".join([head.replace(found[2], str(number), 1), *lines])


def _dedented(line: str, width: int) -> str:
    blank = len(line) - len(line.lstrip(" "))
    return line[min(blank, width) :]
