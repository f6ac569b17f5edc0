"""What a message is made of, in and out.  Text crosses every border as CommonMark with tables and strikethrough."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from jackfield.clock import UnixMs
from jackfield.models.addresses import MessageRef, Person

__all__ = [
    "Attachment",
    "AttachmentKind",
    "Card",
    "CardField",
    "CardLink",
    "Choice",
    "OutFile",
    "OutMessage",
    "Prompt",
    "Quote",
    "StoredFile",
]


class AttachmentKind(StrEnum):
    IMAGE = "image"
    AUDIO = "audio"
    VOICE = "voice"
    VIDEO = "video"
    FILE = "file"
    STICKER = "sticker"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that somebody sent, not fetched yet.  `token` is the adapter's own handle to open it; never a URL with
    credentials.  `size` is in bytes when the platform told it."""

    id: str
    name: str
    kind: AttachmentKind = AttachmentKind.FILE
    mime: str | None = None
    size: int | None = None
    caption: str | None = None
    expires_at: UnixMs | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in the session's `inbox/`.  `path` is relative to the session folder; None when fetching failed, and
    then `problem` tells why."""

    name: str
    kind: AttachmentKind = AttachmentKind.FILE
    path: str | None = None
    mime: str | None = None
    size: int | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """The message that somebody replied to, as far as the platform tells."""

    platform_id: str | None = None
    sender: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class OutFile:
    """A file to send.  `path` is absolute on the host, checked to lie in the session's outbox; never a link."""

    name: str
    path: str
    size: int
    mime: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer of a prompt.  `selected_label` is shown once it was chosen."""

    value: str
    label: str
    selected_label: str = ""
    style: str = "default"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A question with choices.  `allowed_users` are handles; empty means anyone in the chat."""

    id: str
    title: str
    question: str
    choices: tuple[Choice, ...]
    allow_text: bool = False
    allowed_users: tuple[str, ...] = ()
    expires_at: UnixMs | None = None


@dataclass(frozen=True, slots=True)
class CardField:
    name: str
    value: str
    inline: bool = False


@dataclass(frozen=True, slots=True)
class CardLink:
    label: str
    url: str


@dataclass(frozen=True, slots=True)
class Card:
    """A small neutral tree that every rich platform can draw.  At least one part must be there."""

    title: str = ""
    text: str = ""
    fields: tuple[CardField, ...] = ()
    image_url: str | None = None
    links: tuple[CardLink, ...] = ()
    fallback_text: str = ""


@dataclass(frozen=True, slots=True)
class OutMessage:
    """One logical message to one chat."""

    text: str = ""
    files: tuple[OutFile, ...] = ()
    prompt: Prompt | None = None
    card: Card | None = None
    reply_to: MessageRef | None = None
    ephemeral_for: Person | None = None
    silent: bool = False
    plain: bool = False
    """Send the text without markup; set on the one resend after `BadContent`."""
    maybe_duplicate: bool = False
    """Whether an earlier send of this part may have arrived (architecture 5, rule 5)."""
