"""What a Telegram message holds, as text and attachments.  Pure; everything in it is the work of strangers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jackfield.models import Attachment, AttachmentKind, Person, Quote
from jackfield_channel_kit.text.parse import from_telegram

__all__ = ["Message", "attachment_of", "author", "command_of", "quote_of", "text_of"]

Message = Mapping[str, Any]

_KINDS: tuple[tuple[str, AttachmentKind, str], ...] = (
    ("animation", AttachmentKind.VIDEO, "mp4"),
    ("audio", AttachmentKind.AUDIO, "mp3"),
    ("document", AttachmentKind.FILE, "bin"),
    ("sticker", AttachmentKind.STICKER, "webp"),
    ("video", AttachmentKind.VIDEO, "mp4"),
    ("video_note", AttachmentKind.VIDEO, "mp4"),
    ("voice", AttachmentKind.VOICE, "ogg"),
)
"""In this order: an animation comes as a document, too."""


def person(user: Mapping[str, Any], us: int) -> Person:
    """A user.  The number is the stable id; the @name may change and is an alias only."""
    name = " ".join(str(user[part]) for part in ("first_name", "last_name") if user.get(part))
    username = user.get("username")
    return Person(
        handle=str(user["id"]),
        display_name=name or (str(username) if username else None),
        aliases=(f"@{username}",) if username else (),
        is_bot=bool(user.get("is_bot")),
        is_self=user["id"] == us,
    )


def author(message: Message, us: int) -> Person | None:
    """Who wrote it.  Who writes in the name of a chat (an anonymous admin, a channel) is that chat: Telegram hides the
    person behind it."""
    chat = message.get("sender_chat")
    if isinstance(chat, Mapping):
        name = chat.get("title") or chat.get("username") or chat.get("first_name")
        signature = message.get("author_signature")
        shown = f"{name} ({signature})" if name and signature else name
        username = chat.get("username")
        return Person(
            handle=str(chat["id"]),
            display_name=str(shown) if shown else None,
            aliases=(f"@{username}",) if username else (),
        )
    sender = message.get("from")
    return person(sender, us) if isinstance(sender, Mapping) else None


def entities_of(message: Message) -> Sequence[Mapping[str, Any]]:
    """The entities of its text or caption."""
    return message.get("entities") or message.get("caption_entities") or ()


def command_of(message: Message) -> tuple[str, str] | None:
    """The command that it begins with and whom it is for: `/clear@jack` gives `/clear` and `jack` (C044)."""
    text = str(message.get("text") or message.get("caption") or "")
    for entity in entities_of(message):
        if entity.get("type") == "bot_command" and entity.get("offset") == 0:
            token, _, to = text[: int(entity["length"])].partition("@")  # a command is ASCII
            return token, to
    return None


def text_of(message: Message, username: str) -> str:
    """Its text as CommonMark.  A command for us loses our name, and stays an exact token."""
    text = str(message.get("text") or message.get("caption") or "")
    entities = entities_of(message)
    command = command_of(message)
    if command is not None:
        token, to = command
        length = len(token) + (len(to) + 1 if to else 0)
        shown = token if to.lower() == username.lower() else text[:length]
        rest = [
            {**one, "offset": one["offset"] - length}
            for one in entities
            if isinstance(one.get("offset"), int) and one["offset"] >= length
        ]
        return shown + _spaced(text[length:], rest)
    return from_telegram(text, entities) if text else _told(message)


def _spaced(text: str, entities: Sequence[Mapping[str, Any]]) -> str:
    """The rest of a command's text, with the space that it begins with."""
    bare = text.lstrip(" ")
    gap = len(text) - len(bare)
    moved = [{**one, "offset": one["offset"] - gap} for one in entities if one["offset"] >= gap]
    return text[:gap] + (from_telegram(bare, moved) if bare else "")


def _told(message: Message) -> str:
    """What has no text of its own, in words; empty for what says nothing to an agent."""
    if isinstance(venue := message.get("venue"), Mapping):
        place = venue.get("location") or {}
        return f"[venue: {venue.get('title')}, {venue.get('address')} ({_position(place)})]"
    if isinstance(place := message.get("location"), Mapping):
        return f"[location: {_position(place)}]"
    if isinstance(contact := message.get("contact"), Mapping):
        name = " ".join(str(contact[part]) for part in ("first_name", "last_name") if contact.get(part))
        return f"[contact: {name}, {contact.get('phone_number')}]"
    if isinstance(poll := message.get("poll"), Mapping):
        options = "; ".join(str(one.get("text")) for one in poll.get("options") or ())
        return f"[poll: {poll.get('question')} - {options}]"
    if isinstance(dice := message.get("dice"), Mapping):
        return f"[dice {dice.get('emoji')}: {dice.get('value')}]"
    return ""


def _position(place: Mapping[str, Any]) -> str:
    return f"{place.get('latitude')}, {place.get('longitude')}"


def attachment_of(message: Message) -> Attachment | None:
    """The file that it carries; a message carries one at most."""
    number = message.get("message_id")
    photos = message.get("photo")
    if isinstance(photos, Sequence) and photos:
        best = max(photos, key=lambda size: size.get("width", 0) * size.get("height", 0))
        return _attachment(best, AttachmentKind.IMAGE, f"photo-{number}.jpg", "image/jpeg")
    for field, kind, ending in _KINDS:
        found = message.get(field)
        if isinstance(found, Mapping):
            if field == "sticker" and (found.get("is_animated") or found.get("is_video")):
                ending = "tgs" if found.get("is_animated") else "webm"
            if field == "document" and str(found.get("mime_type", "")).startswith("image/"):
                kind = AttachmentKind.IMAGE
            return _attachment(found, kind, f"{field.replace('_', '-')}-{number}.{ending}", None)
    return None


def _attachment(found: Mapping[str, Any], kind: AttachmentKind, name: str, mime: str | None) -> Attachment | None:
    file_id, size = found.get("file_id"), found.get("file_size")
    if not isinstance(file_id, str):
        return None
    return Attachment(
        id=str(found.get("file_unique_id") or file_id),
        name=str(found.get("file_name") or name),
        kind=kind,
        mime=found.get("mime_type") or mime,
        size=size if isinstance(size, int) else None,
        token=file_id,
    )


def quote_of(message: Message, us: int) -> Quote | None:
    """What it replies to.  The first message of a topic is not meant: Telegram names it in every message there."""
    replied = message.get("reply_to_message")
    if not isinstance(replied, Mapping) or "forum_topic_created" in replied:
        return None
    part = message.get("quote")
    text = part.get("text") if isinstance(part, Mapping) else replied.get("text") or replied.get("caption")
    sender = author(replied, us)
    return Quote(
        platform_id=str(replied["message_id"]),
        sender=(sender.display_name or sender.handle) if sender is not None else None,
        text=str(text) if text else None,
    )
