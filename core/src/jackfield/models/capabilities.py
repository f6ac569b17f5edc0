"""What a channel can do, as data, per address, and graded (channels.md R6)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

__all__ = ["Capabilities", "OpenDm", "StreamKind", "Support", "TextUnit", "Threads"]


class Support(IntEnum):
    """How well a channel does a thing."""

    NONE = 0
    EMULATED = 1
    LIMITED = 2
    NATIVE = 3


class TextUnit(StrEnum):
    """In which unit a platform counts the length of a text."""

    CODEPOINTS = "codepoints"
    UTF16 = "utf16"
    UTF8 = "utf8"


class Threads(StrEnum):
    NONE = "none"
    REPLY_CHAIN = "reply_chain"
    TOPICS = "topics"
    NATIVE = "native"


class StreamKind(StrEnum):
    NONE = "none"
    EDIT = "edit"
    NATIVE = "native"


class OpenDm(StrEnum):
    NO = "no"
    YES = "yes"
    PRIOR_CONTACT = "prior_contact"
    TEMPLATE = "template"
    REPLY_WINDOW = "reply_window"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """All default to "can't".  Sizes are bytes, lengths are in `text_unit`, times are seconds; None means no limit.

    The core never calls what is NONE here; it degrades the message instead.
    """

    text_limit: int | None = None
    text_unit: TextUnit = TextUnit.CODEPOINTS
    dialect: str = "commonmark"
    tables: Support = Support.NONE
    edit: Support = Support.NONE
    edit_max_age: float | None = None
    delete: Support = Support.NONE
    react: Support = Support.NONE
    emoji: tuple[str, ...] = ()
    """The reactions that exist; empty means any."""
    threads: Threads = Threads.NONE
    quote: Support = Support.NONE
    typing: Support = Support.NONE
    typing_ttl: float = 5.0
    stream: StreamKind = StreamKind.NONE
    stream_interval: float = 1.0
    files: Support = Support.NONE
    file_max_bytes: int | None = None
    file_max_count: int = 1
    caption_limit: int | None = None
    prompt: Support = Support.NONE
    prompt_max_choices: int = 0
    prompt_label_limit: int | None = None
    cards: Support = Support.NONE
    ephemeral: Support = Support.NONE
    open_dm: OpenDm = OpenDm.NO
    history: Support = Support.NONE
    idempotent_send: bool = False
    """The platform itself refuses a second send under the same idempotency key."""
    rate_per_chat: float | None = None
    """Messages a second to one chat."""
    rate_global: float | None = None
    """Messages a second for the whole account."""
    needs_public_url: bool = False
    e2ee: bool = False
