"""What a Matrix event says.  Pure: from the event's JSON, which is a stranger's work, to values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from jackfield.clock import UnixMs
from jackfield.models import Attachment, AttachmentKind
from jackfield.models.mentions import mention_in
from jackfield_channel_kit.text.parse import from_html

__all__ = [
    "attachments",
    "content_of",
    "fallback_removed",
    "in_reply_to",
    "mentioned",
    "occurred_at",
    "relation",
    "text_of",
    "thread_of",
]

Raw = Mapping[str, Any]

_PILL = re.compile(
    r"<a\b[^<>]*?\bhref=([\"'])https://matrix\.to/#/(@|%40)([^\"'<>?]*)(?:\?[^\"'<>]*)?\1[^<>]*>([^<>]*)</a>", re.I
)
_FALLBACK = re.compile(r"(?:>[^\n]*\n)+\n?")
_MEDIA = {
    "m.image": AttachmentKind.IMAGE,
    "m.audio": AttachmentKind.AUDIO,
    "m.video": AttachmentKind.VIDEO,
    "m.file": AttachmentKind.FILE,
    "m.sticker": AttachmentKind.STICKER,
}
_VOICE = ("org.matrix.msc3245.voice", "m.voice")
_HTML_BYTES = 65_536


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _table(value: object) -> Raw:
    return value if isinstance(value, dict) else {}


def content_of(event: Raw) -> Raw:
    return _table(event.get("content"))


def occurred_at(event: Raw, now: UnixMs) -> UnixMs:
    """Milliseconds since 1970; the present where the event says nothing usable."""
    said = event.get("origin_server_ts")
    if isinstance(said, int) and not isinstance(said, bool) and 10**12 < said < 10**13:
        return UnixMs(said)
    return now


def relation(content: Raw) -> tuple[str, str, str]:
    """Kind, target and key of what the event relates to; empty where there is none."""
    relates = _table(content.get("m.relates_to"))
    return _text(relates.get("rel_type")), _text(relates.get("event_id")), _text(relates.get("key"))


def thread_of(content: Raw) -> str | None:
    """The root of the thread that a message is in."""
    kind, target, _ = relation(content)
    return target if kind == "m.thread" and target else None


def in_reply_to(content: Raw) -> str | None:
    """The message that somebody replied to; not the one that a thread's message names for old clients."""
    relates = _table(content.get("m.relates_to"))
    if relates.get("rel_type") == "m.thread" and relates.get("is_falling_back") is True:
        return None
    return _text(_table(relates.get("m.in_reply_to")).get("event_id")) or None


def fallback_removed(body: str) -> str:
    """A reply's body without the quote that old clients put before it."""
    if not body.startswith("> <") and not body.startswith("> * <"):
        return body
    found = _FALLBACK.match(body)
    return body[found.end() :] if found is not None else body


def text_of(content: Raw) -> str:
    """What was written, as CommonMark: the HTML where there is some, else the body as it is.

    A file's caption is its text; without one there is none.
    """
    msgtype = _text(content.get("msgtype"))
    body = _text(content.get("body"))
    if msgtype in _MEDIA and (not _text(content.get("filename")) or body == content.get("filename")):
        return ""
    html = _text(content.get("formatted_body"))
    if html and content.get("format") == "org.matrix.custom.html" and len(html) <= _HTML_BYTES:
        read = from_html(_PILL.sub(_pill, html))
        if read.strip():
            return read
    if msgtype == "m.location":
        return f"{body} ({_text(content.get('geo_uri'))})"
    return fallback_removed(body) if in_reply_to(content) is not None else body


def _pill(found: re.Match[str]) -> str:
    label = found[4].strip()
    return label if label.startswith("@") else f"@{label}"


def mentioned(content: Raw, user_id: str, names: Iterable[str]) -> tuple[tuple[str, ...], bool]:
    """Who was mentioned, and whether `user_id` was.

    A client that says whom it means (`m.mentions`) is believed; from others a pill counts, or the id or one of the
    names as a whole word.
    """
    said = content.get("m.mentions")
    if isinstance(said, dict):
        users = said.get("user_ids")
        people = tuple(one for one in users if isinstance(one, str)) if isinstance(users, list) else ()
        return people[:100], user_id in people
    html = _text(content.get("formatted_body"))[:_HTML_BYTES]
    pills = tuple(
        dict.fromkeys("@" + found[3].replace("%3A", ":").replace("%3a", ":") for found in _PILL.finditer(html))
    )
    body = fallback_removed(_text(content.get("body")))
    return pills[:100], user_id in pills or mention_in(body, (user_id, *names))


def attachments(event: Raw, content: Raw) -> tuple[Attachment, ...]:
    """The file of a message.  Its token holds the address and, from an encrypted room, the key."""
    msgtype = "m.sticker" if event.get("type") == "m.sticker" else _text(content.get("msgtype"))
    kind = _MEDIA.get(msgtype)
    file = _table(content.get("file"))
    url = _text(file.get("url")) or _text(content.get("url"))
    if kind is None or not url.startswith("mxc://"):
        return ()
    if kind is AttachmentKind.AUDIO and any(name in content for name in _VOICE):
        kind = AttachmentKind.VOICE
    info = _table(content.get("info"))
    size, mime = info.get("size"), _text(info.get("mimetype"))
    token: dict[str, Any] = {"url": url}
    if file:
        key, hashes = _table(file.get("key")), _table(file.get("hashes"))
        token |= {"key": _text(key.get("k")), "hash": _text(hashes.get("sha256")), "iv": _text(file.get("iv"))}
    name = _text(content.get("filename")) or _text(content.get("body")) or "file"
    return (
        Attachment(
            id=url,
            name=name,
            kind=kind,
            mime=mime or None,
            size=size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None,
            caption=text_of(content) or None,
            token=json.dumps(token),
        ),
    )
