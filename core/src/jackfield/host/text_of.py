"""A delivery as one line of text, for listings."""

from __future__ import annotations

from jackfield.errors import MalformedData
from jackfield.models import Delivery, EditContent, OutMessage, ReactionContent, loads

__all__ = ["text_of"]


def text_of(delivery: Delivery) -> str:
    """What the part says, in words: its text, or what it does."""
    try:
        content = loads(OutMessage | EditContent | ReactionContent, delivery.content)
    except MalformedData:
        return ""
    match content:
        case EditContent():
            return f"[edit of #{content.target_seq}] {content.text}"
        case ReactionContent():
            return f"[{content.emoji} on #{content.target_seq}]"
        case OutMessage():
            pieces = [content.text] if content.text else []
            if content.card is not None:
                pieces.append(f"[card] {content.card.title or content.card.fallback_text}")
            if content.prompt is not None:
                pieces.append(f"[question] {content.prompt.question}")
            pieces.extend(f"[file {file.name}]" for file in content.files)
            return " ".join(pieces)
    raise AssertionError("unreachable")
