"""Contents of events: what a text, an edit, a reaction and a file are on Matrix.  Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jackfield.models import TextUnit
from jackfield.models.mentions import without_code_and_links
from jackfield_channel_kit.text.dialects.dialect import defused
from jackfield_channel_kit.text.markdown import clean
from jackfield_channel_kit.text.render import render
from jackfield_channel_kit.text.split import split

__all__ = ["TEXT_LIMIT", "attachment_content", "edited", "pieces", "reaction", "related", "text_content"]

Content = dict[str, Any]

TEXT_LIMIT = 12_000
"""Bytes of rendered HTML in one message.  An event holds the text twice and, as an edit, its beginning once more; JSON
escapes and encryption add two thirds: that is what goes into 65,536 bytes."""
_SHOWN = 3000
"""Characters of an edit that clients see which know no edits."""

_USER_ID = re.compile(r"(?<![\w@/])@[A-Za-z0-9._=/+-]+:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,5})?")


def pieces(text: str) -> list[str]:
    """A text as CommonMark pieces, each of which goes into a message."""
    return split(text, TEXT_LIMIT, TextUnit.UTF8, "matrix-html") if text.strip() else []


def text_content(text: str, *, plain: bool = False) -> Content:
    """One piece as `m.text`: its Markdown as the body, and HTML where that shows more.

    Whole user ids in it become pills, and those people are notified; nobody else is (`m.mentions`).
    """
    text = clean(text)
    content: Content = {"msgtype": "m.text", "body": defused(text)}
    marked, mentioned = (text, []) if plain else _with_pills(text)
    content["m.mentions"] = {"user_ids": mentioned} if mentioned else {}
    if not plain:
        html = render(marked, "matrix-html")
        if html != f"<p>{text}</p>":
            content |= {"format": "org.matrix.custom.html", "formatted_body": html}
    return content


def _with_pills(text: str) -> tuple[str, list[str]]:
    if "@" not in text or ":" not in text:
        return text, []
    out: list[str] = []
    found: list[str] = []
    at = 0
    for one in _USER_ID.finditer(without_code_and_links(text)):
        out += (text[at : one.start()], f"[{one[0]}](https://matrix.to/#/{one[0]})")
        at = one.end()
        if one[0] not in found:
            found.append(one[0])
    return "".join((*out, text[at:])), found


def related(content: Content, *, thread: str | None, reply_to: str | None, latest: str | None = None) -> Content:
    """The content in a thread, or as a reply, or both.  `latest` is the thread's newest message, for clients that
    know no threads and show a reply to it."""
    if thread is not None:
        relation: Content = {
            "rel_type": "m.thread",
            "event_id": thread,
            "is_falling_back": reply_to is None,
            "m.in_reply_to": {"event_id": reply_to or latest or thread},
        }
    elif reply_to is not None:
        relation = {"m.in_reply_to": {"event_id": reply_to}}
    else:
        return content
    return {**content, "m.relates_to": relation}


def edited(content: Content, event_id: str) -> Content:
    """What replaces the message `event_id`; its own body is for clients that know no edits."""
    return {
        "msgtype": content["msgtype"],
        "body": f"* {content['body'][:_SHOWN]}",
        "m.mentions": {},
        "m.new_content": content,
        "m.relates_to": {"rel_type": "m.replace", "event_id": event_id},
    }


def reaction(event_id: str, emoji: str) -> Content:
    return {"m.relates_to": {"rel_type": "m.annotation", "event_id": event_id, "key": emoji}}


def attachment_content(name: str, mime: str, size: int, where: Mapping[str, Any], caption: str = "") -> Content:
    """A file; `where` is `{"url": ...}`, or `{"file": ...}` when it is encrypted.  A caption is CommonMark."""
    group = mime.partition("/")[0]
    msgtype = f"m.{group}" if group in ("image", "audio", "video") else "m.file"
    content = text_content(caption) if caption.strip() else {"body": name, "m.mentions": {}}
    return {**content, "msgtype": msgtype, "filename": name, "info": {"mimetype": mime, "size": size}, **where}
