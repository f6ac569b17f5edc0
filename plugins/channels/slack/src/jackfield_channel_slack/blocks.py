"""Questions and cards as Block Kit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jackfield.models import Card, Choice, OutMessage, Prompt, TextUnit
from jackfield_channel_kit.prompt import encode
from jackfield_channel_kit.text.render import plain
from jackfield_channel_kit.text.split import rendered_parts

__all__ = ["BUTTONS", "LABEL", "blocks", "escaped", "sections", "summary"]

SECTION = 3000
"""Characters of a section's text."""
FIELDS = 10
FIELD = 2000
HEADER = 150
BLOCKS = 50
BUTTONS = 25
"""Elements of one row of buttons."""
LABEL = 75
"""Characters on a button."""
_STYLES = {"primary": "primary", "success": "primary", "danger": "danger"}


def escaped(text: str) -> str:
    """Plain text where Slack reads mrkdwn."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def sections(text: str) -> list[dict[str, Any]]:
    """CommonMark as sections, each as long as Slack takes."""
    if not text.strip():
        return []
    parts = rendered_parts(text, SECTION, TextUnit.UTF16, "slack-mrkdwn")
    return [{"type": "section", "text": {"type": "mrkdwn", "text": part}} for _, part in parts]


def blocks(message: OutMessage) -> list[dict[str, Any]]:
    """A message with a card or a question.  What is over Slack's number of blocks is left out."""
    made = sections(message.text)
    if message.card is not None:
        made += _card(message.card)
    if message.prompt is not None:
        prompt = message.prompt
        if prompt.title and prompt.title != prompt.question:
            made += sections(f"**{plain(prompt.title)}**")
        made += sections(prompt.question)
        made = made[: BLOCKS - 1]
        made.append({"type": "actions", "elements": [_button(prompt, at) for at in range(len(prompt.choices))]})
    return made[:BLOCKS]


def summary(message: OutMessage) -> str:
    """What notifications and screen readers say of it, as mrkdwn."""
    said = [message.text]
    if message.card is not None:
        said.append(message.card.fallback_text or f"{message.card.title}\n{message.card.text}")
    if message.prompt is not None:
        said += [message.prompt.title, message.prompt.question]
    text = "\n".join(dict.fromkeys(piece.strip() for piece in said if piece.strip()))
    return rendered_parts(text or "…", SECTION, TextUnit.UTF16, "slack-mrkdwn")[0][1]


def _button(prompt: Prompt, at: int) -> dict[str, Any]:
    choice: Choice = prompt.choices[at]
    payload = encode(prompt.id, at)
    button: dict[str, Any] = {
        "type": "button",
        "action_id": payload,
        "value": payload,
        "text": {"type": "plain_text", "text": choice.label[:LABEL], "emoji": True},
    }
    if choice.style in _STYLES:
        button["style"] = _STYLES[choice.style]
    return button


def _card(card: Card) -> Iterator[dict[str, Any]]:
    title = plain(card.title)
    if title and len(title) <= HEADER:
        yield {"type": "header", "text": {"type": "plain_text", "text": title, "emoji": True}}
    elif title:
        yield from sections(f"**{title}**")
    yield from sections(card.text)
    for at in range(0, len(card.fields), FIELDS):
        texts = [f"**{field.name}**\n{field.value}" for field in card.fields[at : at + FIELDS]]
        fields = [rendered_parts(text, FIELD, TextUnit.UTF16, "slack-mrkdwn")[0][1] for text in texts]
        yield {"type": "section", "fields": [{"type": "mrkdwn", "text": text} for text in fields]}
    if card.image_url and _is_web(card.image_url):
        yield {"type": "image", "image_url": card.image_url, "alt_text": title or "image"}
    links = [link for link in card.links if _is_web(link.url)][:BUTTONS]
    if links:
        elements = [
            {
                "type": "button",
                "action_id": f"link:{at}",
                "url": link.url,
                "text": {"type": "plain_text", "text": (link.label or link.url)[:LABEL], "emoji": True},
            }
            for at, link in enumerate(links)
        ]
        yield {"type": "actions", "elements": elements}


def _is_web(url: str) -> bool:
    return url.startswith(("https://", "http://")) and len(url) <= 3000
