"""Inbound rows to the text that the model reads, and back.  Pure.

The grammar is XML-like (messaging.md 6.3).  Everything that came from outside is escaped by class of character, never
by a list of tags (C161, C165): `& < > " '` become entities, control characters and lone surrogates become visible
numeric references.  So a tag in a prompt is always ours, and `parse_prompt` gives the data back byte for byte.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

from jackfield.clock import local_text, zone_or_utc
from jackfield.errors import MalformedData
from jackfield.ids import AgentGroupId
from jackfield.models import (
    AGENT_CHANNEL,
    Address,
    ChatContent,
    Destination,
    EventContent,
    InboundRow,
    NoticeContent,
    StoredFile,
    TaskContent,
    WebhookContent,
)

__all__ = [
    "RECAP_LIMIT",
    "Element",
    "element",
    "escape",
    "escape_name",
    "format_prompt",
    "format_recap",
    "name_of",
    "notice",
    "parse_prompt",
]

QUOTE_LIMIT = 1_000
NAME_LIMIT = 200
RECAP_LIMIT = 1_000

# Control characters but tab and newline, C1, and surrogates: U+0085 and friends would start a line in some readers.
_INVISIBLE = r"\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"
_IN_TEXT = re.compile(f"[&<>\"'{_INVISIBLE}]")
# In names also line ends and tabs, and what turns the direction of the line around (C215).
_IN_NAME = re.compile(f"[&<>\"'{_INVISIBLE}\\t\\n\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
_REFERENCE = re.compile(r"&(?:(amp|lt|gt|quot)|#(?:x([0-9a-f]{1,6})|([0-9]{1,7})));")
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"'}


def _entity(found: re.Match[str]) -> str:
    character = found[0]
    return _ENTITIES.get(character) or f"&#x{ord(character):x};"


def escape(text: str) -> str:
    """A text as it may stand between tags."""
    return _IN_TEXT.sub(_entity, text)


def escape_name(text: str) -> str:
    """A name as it may stand in an attribute: on one line, direction controls made visible (C215)."""
    return _IN_NAME.sub(_entity, text)


def unescape(text: str) -> str:
    """The inverse of `escape` and `escape_name`."""

    def character(found: re.Match[str]) -> str:
        if found[1]:
            return _NAMED[found[1]]
        code = int(found[2], 16) if found[2] else int(found[3])
        return chr(code) if code < 0x110000 else found[0]

    return _REFERENCE.sub(character, text)


def element(tag: str, text: str | None, /, **attributes: str | None) -> str:
    """One element with escaped text; without text it closes itself.  Attributes that are None are left out."""
    opening = tag + "".join(
        f' {name.rstrip("_")}="{escape_name(value)}"' for name, value in attributes.items() if value is not None
    )
    return f"<{opening} />" if text is None else f"<{opening}>{escape(text)}</{tag}>"


def notice(text: str, subject: str) -> str:
    """Something that the runner itself tells the agent."""
    return element("notice", text, subject=subject)


def name_of(address: Address | None, destinations: Sequence[Destination]) -> str | None:
    """By which name the agent knows this chat or agent; `unknown:<channel>:<chat>` when it has none, None without an
    address."""
    if address is None:
        return None
    if address.is_agent:
        agents = {place.agent_group_id: place.name for place in reversed(destinations)}
        return agents.get(AgentGroupId(address.platform_id)) or f"unknown:{AGENT_CHANNEL}:{address.platform_id}"
    named = {place.address: place.name for place in reversed(destinations) if place.address is not None}
    return named.get(address) or named.get(address.chat) or f"unknown:{address.channel_type}:{address.platform_id}"


def format_prompt(
    rows: Sequence[InboundRow],
    *,
    timezone: str,
    destinations: Sequence[Destination] = (),
    session: str = "",
    notices: Sequence[str] = (),
    script_output: Mapping[str, str] | None = None,
) -> str:
    """The prompt of a batch: the context line, the runner's own notices (already elements), then the rows by `seq`.

    Neighbouring chat messages are wrapped in `<messages>` when they are more than one.  `session` is the session folder
    as the agent sees it, `script_output` what a task's pre-check printed, by row id.
    """
    zone = zone_or_utc(timezone)
    pieces = [element("context", None, timezone=zone.key), *notices]
    run: list[str] = []

    def end_run() -> None:
        if len(run) > 1:
            pieces.append("<messages>\n" + "\n".join(run) + "\n</messages>")
        else:
            pieces.extend(run)
        run.clear()

    for row in sorted(rows, key=lambda row: row.seq):
        if isinstance(row.content, ChatContent):
            run.append(_message(row, row.content, destinations, zone, session))
        else:
            end_run()
            pieces.append(_other(row, destinations, zone, (script_output or {}).get(row.id)))
    end_run()
    return "\n".join(pieces)


def format_recap(entries: Sequence[tuple[str, str, str]]) -> str:
    """What was said before, for a conversation that had to begin anew (C124): (message number, who, text) in order."""
    lines = [element("earlier", _cut(text, RECAP_LIMIT), id=number, sender=who) for number, who, text in entries]
    return "<recap>\n" + "\n".join(lines) + "\n</recap>"


def _message(
    row: InboundRow, content: ChatContent, destinations: Sequence[Destination], zone: ZoneInfo, session: str
) -> str:
    quote = content.quote
    quoted = ""
    if quote is not None and quote.sender and quote.text:
        inner = element("quoted_message", _cut(quote.text, QUOTE_LIMIT), from_=_cut(quote.sender, NAME_LIMIT))
        quoted = f"\n  {inner}\n"
    files = "".join("\n" + _attachment(file, session) for file in content.files)
    opening = element(
        "message",
        "",
        id=str(row.seq),
        from_=name_of(_place_of(row, content), destinations),
        sender=_cut(content.sender, NAME_LIMIT),
        time=local_text(row.at, zone),
        reply_to=quote.platform_id if quote is not None else None,
    ).removesuffix("</message>")
    return f"{opening}{quoted}{escape(content.text)}{files}</message>"


def _place_of(row: InboundRow, content: ChatContent) -> Address | None:
    """Where the message came from.  What an agent answers comes from that agent, wherever the answer is wanted."""
    channel, _, agent = content.sender_id.partition(":")
    return Address(AGENT_CHANNEL, AGENT_CHANNEL, agent) if channel == AGENT_CHANNEL and agent else row.origin


def _attachment(file: StoredFile, session: str) -> str:
    return element(
        "attachment",
        None,
        type=file.kind.value,
        name=file.name,
        path=f"{session.rstrip('/')}/{file.path}" if file.path else None,
        mime=file.mime,
        size=None if file.size is None else str(file.size),
        problem=file.problem,
    )


def _other(row: InboundRow, destinations: Sequence[Destination], zone: ZoneInfo, printed: str | None) -> str:
    number, source, time = str(row.seq), name_of(row.origin, destinations), local_text(row.at, zone)
    match row.content:
        case TaskContent() as task:
            missed = None if task.missed_from is None else local_text(task.missed_from, zone)
            text = element(
                "task", task.prompt, id=number, task=task.series_id, from_=source, time=time, missed_since=missed
            )
            if printed is not None:
                text = text.removesuffix("</task>") + "\n" + element("script_output", printed) + "</task>"
            return text
        case WebhookContent() as hook:
            return element(
                "webhook", hook.payload, id=number, from_=source, source=hook.source, event=hook.event, time=time
            )
        case NoticeContent() as told:
            return element("notice", told.text, id=number, subject=told.subject or None, time=time)
        case EventContent() as event:
            return element("event", event.text, id=number, level=event.level, source=event.source, time=time)
        case ChatContent():
            raise MalformedData(f"row {row.id} is a chat message")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + "…"


@dataclass(slots=True)
class Element:
    """One element of a prompt.  `text` is what stood in it besides its children, unescaped."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    text: str = ""
    children: list[Element] = field(default_factory=list)


_TAG = re.compile(r'<(/?)([a-z_]+)((?: [a-z_]+="[^"<>]*")*)( ?/)?>')
_ATTRIBUTE = re.compile(r' ([a-z_]+)="([^"<>]*)"')
_LEADING = ("quoted_message",)


def parse_prompt(prompt: str) -> list[Element]:
    """The elements of a prompt, as `format_prompt` wrote them.

    Raises:
        MalformedData: something that we never write: a stray `<`, or tags that don't match.
    """
    root = Element("")
    stack = [root]
    at = 0
    for found in _TAG.finditer(prompt):
        _take_text(stack[-1], prompt[at : found.start()])
        at = found.end()
        if found[1]:
            if stack[-1].tag != found[2]:
                raise MalformedData(f"</{found[2]}> closes <{stack[-1].tag}>")
            _tidy(stack.pop())
            continue
        made = Element(found[2], {name: unescape(value) for name, value in _ATTRIBUTE.findall(found[3])})
        stack[-1].children.append(made)
        if not found[4]:
            stack.append(made)
    _take_text(stack[-1], prompt[at:])
    if len(stack) > 1:
        raise MalformedData(f"<{stack[-1].tag}> is not closed")
    return root.children


def _take_text(holder: Element, raw: str) -> None:
    if "<" in raw or ">" in raw:
        raise MalformedData(f"a stray angle bracket in {html.escape(raw[:60])!r}")
    if holder.tag in ("", "messages", "recap"):
        return
    holder.text += _spacing(holder, raw)


def _spacing(holder: Element, raw: str) -> str:
    """Leave out the line ends that the format puts around children, and nothing else."""
    if holder.children and holder.children[-1].tag in _LEADING:
        raw = raw.removeprefix("\n")
    elif holder.children and raw == "\n":
        raw = ""
    return unescape(raw)


def _tidy(done: Element) -> None:
    if done.children and done.children[0].tag in _LEADING:
        done.text = done.text.removeprefix("\n  ")
    if done.children and done.children[-1].tag not in _LEADING:
        done.text = done.text.removesuffix("\n")
