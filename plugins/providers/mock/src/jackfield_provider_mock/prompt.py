"""Find the messages in a prompt.

The runner hands over XML-like text (messaging.md 6.3): `<message id= from= sender= time=>text</message>` and its
siblings, in which everything that a person wrote is escaped.  So a tag in the prompt is always the runner's own, and a
scan from tag to tag is enough; its time grows linearly with the prompt (C217).
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Heard", "read_prompt", "unescape"]

_OPEN = re.compile(r'<(message|task|webhook|notice|event|system_response)((?:\s+[\w-]+="[^"<>]*")*)\s*>')
_ATTRIBUTE = re.compile(r'([\w-]+)="([^"<>]*)"')
_ATTACHMENT = re.compile(r"\s*<attachment(?:\s[^<>]*)?/>")
_ENTITY = re.compile(r"&(lt|gt|quot|apos|#39|#x27|amp);")
_CHARACTERS = {"lt": "<", "gt": ">", "quot": '"', "apos": "'", "#39": "'", "#x27": "'", "amp": "&"}


class Heard(NamedTuple):
    """One element of a prompt, unescaped.  A plain prompt is one `message` without attributes."""

    text: str
    kind: str = "message"
    id: str = ""
    sender: str = ""
    source: str = ""
    """The destination's name that the message came from (`from=`)."""
    files: tuple[str, ...] = ()
    """Names of the files that came with it.  A message without words is its files' names in brackets."""


def unescape(text: str) -> str:
    """The characters for the entities that the runner writes; each entity is read once."""
    return _ENTITY.sub(lambda found: _CHARACTERS[found[1]], text)


def read_prompt(prompt: str) -> tuple[Heard, ...]:
    """The messages in order.  A text without any known element is one message as a whole."""
    found: list[Heard] = []
    position = 0
    while (opening := _OPEN.search(prompt, position)) is not None:
        closing = f"</{opening[1]}>"
        end = prompt.find(closing, opening.end())
        if end < 0:
            break
        attributes = {name: unescape(value) for name, value in _ATTRIBUTE.findall(opening[2])}
        body, files = _without_files(_without_quote(prompt[opening.end() : end]))
        found.append(
            Heard(
                text=unescape(body).strip() or " ".join(f"[{name}]" for name in files),
                kind=opening[1],
                id=attributes.get("id", ""),
                sender=attributes.get("sender", ""),
                source=attributes.get("from", ""),
                files=files,
            )
        )
        position = end + len(closing)
    return tuple(found) if found else (Heard(text=prompt.strip()),)


def _without_quote(body: str) -> str:
    """The body without the message that it answers."""
    start = body.find("<quoted_message")
    end = body.find("</quoted_message>", start)
    return body if start < 0 or end < 0 else body[:start] + body[end + len("</quoted_message>") :]


def _without_files(body: str) -> tuple[str, tuple[str, ...]]:
    """The body without its attachments, and their names."""
    names = [dict(_ATTRIBUTE.findall(found)).get("name", "") for found in _ATTACHMENT.findall(body)]
    return _ATTACHMENT.sub("", body) if names else body, tuple(unescape(name) for name in names)
