"""How the Bot API reads requests, and refuses them: multipart bodies, its HTML, lengths in UTF-16 units."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, unquote

from jackfield_channel_kit.testing.platform import Recorded, Reply

__all__ = ["Refusal", "Unparsable", "arguments_of", "file_of", "number_of", "parse_html", "rich_text", "utf16"]

_STRUCTURED = frozenset(
    {
        "allowed_updates", "commands", "entities", "link_preview_options", "media", "reaction", "reply_markup",
        "reply_parameters", "rich_message",
    }
)  # fmt: skip
"""Arguments that are JSON inside a form."""

_TAGS = {
    "b": "bold", "strong": "bold", "i": "italic", "em": "italic", "u": "underline", "ins": "underline",
    "s": "strikethrough", "strike": "strikethrough", "del": "strikethrough", "code": "code", "pre": "pre",
    "blockquote": "blockquote", "a": "text_link",
}  # fmt: skip
_RICH_BLOCKS = {
    "p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "table", "tr", "td", "th", "thead", "tbody", "pre",
    "blockquote", "hr", "br",
}  # fmt: skip
_VOID = {"br", "hr"}


class Unparsable(ValueError):
    """Markup that Telegram refuses."""


def utf16(text: str) -> int:
    """The length in UTF-16 units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def parse_html(text: str) -> tuple[str, list[dict[str, Any]]]:
    """Text and entities of `parse_mode=HTML`.

    Raises:
        Unparsable: an unknown, unclosed or wrongly nested tag.
    """
    reader = _Reader(set(_TAGS))
    reader.feed(text)
    reader.close()
    return reader.done(), reader.entities


def rich_text(text: str) -> str:
    """What a rich message's HTML reads like, a line for each block.

    Raises:
        Unparsable: as `parse_html`.
    """
    reader = _Reader(set(_TAGS) | _RICH_BLOCKS)
    reader.feed(text)
    reader.close()
    return re.sub(r"\n{2,}", "\n", reader.done()).strip()


class _Reader(HTMLParser):
    def __init__(self, known: set[str]) -> None:
        super().__init__(convert_charrefs=True)
        self.entities: list[dict[str, Any]] = []
        self._known = known
        self._text = ""
        self._open: list[tuple[str, int, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self._known:
            raise Unparsable(f'Unsupported start tag "{tag}" at byte offset {len(self._text)}')
        if tag in _RICH_BLOCKS - {"pre", "blockquote"}:
            self._text += "\n"
        if tag not in _VOID:
            self._open.append((tag, utf16(self._text), dict(attrs)))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1][0] != tag:
            raise Unparsable(f'Unmatched end tag at byte offset {len(self._text)}, found "</{tag}>"')
        name, start, attrs = self._open.pop()
        length = utf16(self._text) - start
        if name in _TAGS and length:
            inside = name == "code" and self._open and self._open[-1][0] == "pre"
            entity: dict[str, Any] = {"type": _TAGS[name], "offset": start, "length": length}
            if name == "a":
                entity["url"] = attrs.get("href") or ""
            if not inside:
                self.entities.append(entity)
        if name in _RICH_BLOCKS and name not in _TAGS:
            self._text += "\n"

    def handle_data(self, data: str) -> None:
        self._text += data

    def done(self) -> str:
        if self._open:
            raise Unparsable(f'Can\'t find end tag corresponding to start tag "{self._open[-1][0]}"')
        return self._text


def arguments_of(request: Recorded) -> tuple[dict[str, Any], dict[str, tuple[str, bytes]]]:
    """A method's arguments in any of the forms that the Bot API takes, and the files that came along by field."""
    kind = request.headers.get("content-type", "")
    given: dict[str, Any] = dict(request.query)
    files: dict[str, tuple[str, bytes]] = {}
    if kind.startswith("application/json"):
        given |= json.loads(request.body or b"{}")
    elif kind.startswith("multipart/"):
        fields, files = _multipart(kind, request.body)
        given |= fields
    else:
        given |= dict(parse_qsl(request.body.decode(), keep_blank_values=True))
    for name in _STRUCTURED & given.keys():
        if isinstance(given[name], str):
            given[name] = json.loads(given[name])
    return given, files


def _multipart(content_type: str, body: bytes) -> tuple[dict[str, str], dict[str, tuple[str, bytes]]]:
    """Fields, and files by field as (name, bytes)."""
    boundary = content_type.partition("boundary=")[2].strip('"').encode()
    fields: dict[str, str] = {}
    files: dict[str, tuple[str, bytes]] = {}
    for part in body.split(b"--" + boundary)[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        content = content.removesuffix(b"\r\n")
        disposition = next(
            line for line in head.decode("utf-8").split("\r\n") if line.lower().startswith("content-disposition")
        )
        name = _parameter(disposition, "name") or ""
        filename = _parameter(disposition, "filename")
        if filename is None:
            fields[name] = content.decode("utf-8")
        else:
            files[name] = (filename, content)
    return fields, files


def _parameter(header: str, name: str) -> str | None:
    if extended := re.search(rf"; ?{name}\*=utf-8''([^;]+)", header, re.IGNORECASE):
        return unquote(extended[1])
    if quoted := re.search(rf'; ?{name}="([^"]*)"', header):
        return re.sub(r"%(22|0D|0A)", lambda found: chr(int(found[1], 16)), quoted[1])
    return None


class Refusal(Exception):
    """An answer with `ok: false`."""

    def __init__(self, code: int, description: str, **parameters: Any) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters

    def reply(self) -> Reply:
        body: dict[str, Any] = {"ok": False, "error_code": self.code, "description": self.description}
        if self.parameters:
            body["parameters"] = self.parameters
        return Reply(self.code, body)


def file_of(value: Any, name: str, files: Mapping[str, tuple[str, bytes]]) -> tuple[str, bytes]:
    """A file of the request, by its `attach://` name or that of its field."""
    key = str(value).removeprefix("attach://") if value else name
    if key not in files:
        raise Refusal(400, "Bad Request: there is no file in the request")
    return files[key]


def number_of(value: Any) -> int:
    """A message's id, whatever a client sent as one."""
    try:
        return int(value)
    except ValueError:
        raise Refusal(400, "Bad Request: message identifier is not specified") from None
