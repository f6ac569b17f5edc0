"""Cutting a message into those that the platform takes."""

from __future__ import annotations

import logging
from dataclasses import replace

from jackfield.api import Channel, Splits
from jackfield.host.degrade import too_long
from jackfield.models import Address, Capabilities, OutMessage
from jackfield.models.splitting import LEAST_LIMIT, split_text

__all__ = ["message_parts"]

log = logging.getLogger(__name__)


def message_parts(
    message: OutMessage, address: Address, channel: Channel | None, can: Capabilities
) -> list[OutMessage]:
    """A degraded message as the messages that the platform takes, in order: text, files, then card or question."""
    if message.prompt is not None and too_long(message.prompt.title + "\n\n" + message.prompt.question, can):
        prompt = message.prompt
        text = "\n\n".join(piece for piece in (message.text, prompt.question) if piece.strip())
        message = replace(message, text=text, prompt=replace(prompt, question="\u2026"))
    if isinstance(channel, Splits):
        try:
            own = list(channel.split(address, message))
        except Exception:
            log.exception("channel %s could not split a message; the core does it", address.instance)
            own = []
        if own:
            return own
    limit = max(can.text_limit, LEAST_LIMIT) if can.text_limit is not None else None
    chunks = split_text(message.text, limit, can.text_unit)
    if chunks == [message.text] and not message.files:
        return [message]
    count = max(1, can.file_max_count)
    batches = [message.files[at : at + count] for at in range(0, len(message.files), count)]
    bare = replace(message, text="", files=(), prompt=None, card=None)
    parts = [replace(bare, text=chunk) for chunk in chunks]
    caption = can.caption_limit
    for index, batch in enumerate(batches):
        if index == 0 and len(parts) == 1 and (caption is None or len(parts[0].text) <= caption):
            parts[0] = replace(parts[0], files=batch)
        else:
            parts.append(replace(bare, files=batch))
    if message.prompt is not None or message.card is not None:
        if len(parts) == 1 and not parts[0].files:
            parts[0] = replace(parts[0], prompt=message.prompt, card=message.card)
        else:
            parts.append(replace(bare, prompt=message.prompt, card=message.card))
    return [part if number == 0 else replace(part, reply_to=None) for number, part in enumerate(parts)]
