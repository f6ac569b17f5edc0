"""Making a message out of what a channel can't show (channels.md R6).  Pure; what was lost is listed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from jackfield.models import Capabilities, Card, OutFile, OutMessage, Prompt, Support, Threads
from jackfield.models.splitting import measure

__all__ = ["Degraded", "card_text", "degrade", "prompt_text", "too_long"]

_DELIMITER = re.compile(r"^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")


@dataclass(frozen=True, slots=True)
class Degraded:
    """The message as the channel can take it, and what it no longer has: `buttons`, `card`, `files`, `labels`,
    `table`, `private`."""

    message: OutMessage
    lost: tuple[str, ...] = ()


def degrade(message: OutMessage, can: Capabilities) -> Degraded:
    """Rewrite what `can` says the channel does not do.  Text is not cut here."""
    if message == OutMessage(text=message.text) and can.tables is not Support.NONE:
        return Degraded(message)  # most messages are plain text, which every channel takes
    lost: list[str] = []
    text = message.text
    card, prompt, files = message.card, message.prompt, message.files
    if card is not None and can.cards is Support.NONE:
        text = _joined(text, card_text(card))
        card = None
        lost.append("card")
    if prompt is not None:
        fitting = _fitting(prompt, can)
        if fitting is None:
            text = _joined(text, prompt_text(prompt))
            lost.append("buttons")
        elif fitting is not prompt:
            lost.append("labels")
        prompt = fitting
    refused = [file for file in files if not _takes(file, can)]
    if refused:
        text = _joined(text, _not_sent(refused, can))
        files = tuple(file for file in files if file not in refused)
        lost.append("files")
    if can.tables is Support.NONE:
        fenced = _fence_tables(text)
        if fenced != text:
            text = fenced
            lost.append("table")
    reply_to = message.reply_to
    if can.quote is Support.NONE and can.threads is not Threads.REPLY_CHAIN:
        reply_to = None
    ephemeral_for = message.ephemeral_for
    if ephemeral_for is not None and can.ephemeral is Support.NONE:
        ephemeral_for = None
        lost.append("private")
    degraded = replace(
        message, text=text, card=card, prompt=prompt, files=files, reply_to=reply_to, ephemeral_for=ephemeral_for
    )
    return Degraded(degraded, tuple(lost))


def _joined(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text.strip())


# ---- cards and prompts


def card_text(card: Card) -> str:
    """A card as text: what its author gave for that, or its parts one below the other."""
    if card.fallback_text.strip():
        return card.fallback_text
    lines = [f"**{field.name}**: {field.value}" for field in card.fields]
    links = [f"[{link.label}]({link.url})" for link in card.links]
    image = f"![]({card.image_url})" if card.image_url else ""
    title = f"**{card.title}**" if card.title else ""
    return _joined(title, card.text, "\n".join(lines), image, "\n".join(links))


def prompt_text(prompt: Prompt) -> str:
    """A question as text: its choices in a numbered list, and how to answer."""
    title = f"**{prompt.title}**" if prompt.title and prompt.title != prompt.question else ""
    choices = "\n".join(f"{number}. {choice.label}" for number, choice in enumerate(prompt.choices, 1))
    if not prompt.choices:
        how = "Answer in your own words."
    elif prompt.allow_text:
        how = "Answer with a number, or in your own words."
    else:
        how = "Answer with a number."
    return _joined(title, prompt.question, choices, f"*{how}*")


def _fitting(prompt: Prompt, can: Capabilities) -> Prompt | None:
    """The prompt with labels as the platform takes them; None when it can't show it at all (C159)."""
    if can.prompt is Support.NONE or not prompt.choices:
        return None
    if can.prompt_max_choices and len(prompt.choices) > can.prompt_max_choices:
        return None
    limit = can.prompt_label_limit
    labels = _distinct([choice.label for choice in prompt.choices])
    if limit is not None and any(len(label) > limit for label in labels):
        # The whole labels stand in the question, the buttons bear their numbers.
        labels = [str(number) for number in range(1, len(prompt.choices) + 1)]
        listed = "\n".join(f"{number}. {choice.label}" for number, choice in enumerate(prompt.choices, 1))
        prompt = replace(prompt, question=_joined(prompt.question, listed))
    choices = tuple(
        choice if choice.label == label else replace(choice, label=label)
        for choice, label in zip(prompt.choices, labels, strict=True)
    )
    return prompt if choices == prompt.choices else replace(prompt, choices=choices)


def _distinct(labels: list[str]) -> list[str]:
    """The labels, with `(2)`, `(3)` after one that stands there already."""
    seen: set[str] = set()
    out = []
    for label in labels:
        shown, number = label, 1
        while shown in seen:
            number += 1
            shown = f"{label} ({number})"
        seen.add(shown)
        out.append(shown)
    return out


# ---- files


def _takes(file: OutFile, can: Capabilities) -> bool:
    return can.files is not Support.NONE and (can.file_max_bytes is None or file.size <= can.file_max_bytes)


def _not_sent(files: list[OutFile], can: Capabilities) -> str:
    names = ", ".join(f"`{file.name.replace('`', '')}`" for file in files)
    if can.files is Support.NONE:
        return f"*(This chat takes no files; not sent: {names})*"
    return f"*(Larger than the {can.file_max_bytes or 0:,} bytes that this chat takes; not sent: {names})*"


# ---- tables


def _fence_tables(text: str) -> str:
    """Each table as a fenced block, so that its columns stay where they are."""
    if "|" not in text or "-" not in text:
        return text
    lines = text.split("\n")
    out: list[str] = []
    fence = ""
    at = 0
    while at < len(lines):
        line = lines[at]
        found = _FENCE.match(line)
        if found is not None and (not fence or (found[1][0] == fence[0] and len(found[1]) >= len(fence))):
            fence = "" if fence else found[1]
        is_table = (
            not fence
            and "|" in line
            and at + 1 < len(lines)
            and "-" in lines[at + 1]
            and "|" in lines[at + 1]
            and _DELIMITER.match(lines[at + 1]) is not None
        )
        if not is_table:
            out.append(line)
            at += 1
            continue
        end = at + 2
        while end < len(lines) and "|" in lines[end] and lines[end].strip() and not _FENCE.match(lines[end]):
            end += 1
        out += ["```", *lines[at:end], "```"]
        at = end
    return "\n".join(out)


def too_long(text: str, can: Capabilities) -> bool:
    """Whether it does not go into one message there."""
    return can.text_limit is not None and measure(text, can.text_unit) > can.text_limit
