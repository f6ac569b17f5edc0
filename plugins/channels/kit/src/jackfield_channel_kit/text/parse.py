"""What platforms deliver as CommonMark, so that an agent reads one language.

All of it is the work of strangers: nothing raises, every scan is linear, and a text that only looks like markup is kept
literally (escaped where CommonMark would read it as its own).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jackfield_channel_kit.text.dialects.commonmark import CommonMark, code_span, fenced
from jackfield_channel_kit.text.markdown import clean, safe_target

__all__ = ["from_html", "from_irc", "from_slack", "from_telegram"]


def literal(text: str) -> str:
    """The text so that CommonMark shows it as it stands; lines keep their ends."""
    writer = CommonMark()
    return "\n".join(writer.paragraph(writer.escaped(line), False) for line in text.split("\n"))


def link(label: str, target: str) -> str:
    """A link to a safe target, else its label."""
    writer = CommonMark()
    target = target.strip()
    if not safe_target(target) or any(char.isspace() for char in target):
        return literal(label)
    if not label.strip() or label == target:
        return target
    return f"[{writer.escaped(' '.join(label.split()))}]({writer.destination(target)})"


# ---- Slack

_SLACK_CODE = re.compile(r"```(.*?)```|`([^`\n]+)`", re.S)
_SLACK_TOKEN = re.compile(r"<([^<>\n]*)>")
_SLACK_MARK = re.compile(r"(?<![^\W_])([*_~])(?=\S)([^*_~\n]*[^\s*_~])\1(?![^\W_])")
_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))


def from_slack(text: str, *, users: Mapping[str, str], channels: Mapping[str, str]) -> str:
    """Slack's mrkdwn.  `users` and `channels` give names by id; an unknown one keeps the id as its name."""
    out: list[str] = []
    at = 0
    text = clean(text)
    last = text.rfind("```")
    for found in _slack_code(text, last):
        out.append(_slack_prose(text[at : found.start()], users, channels))
        block = found[1]
        if block is not None:
            before = "" if not text[: found.start()].strip() or text[found.start() - 1] == "\n" else "\n"
            after = "" if text.startswith("\n", found.end()) or found.end() == len(text) else "\n"
            out.append(before + fenced(_slack_plain(block).strip("\n"), "") + after)
        else:
            out.append(code_span(_slack_plain(found[2])))
        at = found.end()
    out.append(_slack_prose(text[at:], users, channels))
    return "".join(out)


def _slack_code(text: str, last_fence: int) -> list[re.Match[str]]:
    found: list[re.Match[str]] = []
    at = 0
    while (start := text.find("`", at)) >= 0:
        fence = text.startswith("```", start)
        match = _SLACK_CODE.match(text, start) if not fence or start < last_fence else None
        if match is not None:
            found.append(match)
        at = match.end() if match is not None else start + (3 if fence else 1)
    return found


def _slack_plain(text: str) -> str:
    """Code without Slack's entities, and without the links that Slack makes in it."""
    text = _SLACK_TOKEN.sub(lambda found: found[1].rpartition("|")[2], text)
    for entity, char in _ENTITIES:
        text = text.replace(entity, char)
    return text


def _slack_prose(text: str, users: Mapping[str, str], channels: Mapping[str, str]) -> str:
    out: list[str] = []
    at = 0
    for found in _SLACK_TOKEN.finditer(text):
        out.append(_slack_marks(text[at : found.start()]))
        out.append(_slack_token(found[1], users, channels))
        at = found.end()
    out.append(_slack_marks(text[at:]))
    return "".join(out)


def _slack_marks(text: str) -> str:
    """Prose between tokens: bold and struck text as CommonMark writes it, bullets and quotes at the start of a line."""
    for entity, char in _ENTITIES[:2]:
        text = text.replace(entity, char)
    text = text.replace("&amp;", "&")
    marks = {"*": "**", "_": "_", "~": "~~"}
    writer = CommonMark()
    lines = []
    for line in text.split("\n"):
        quote = ""
        if line.startswith(">"):
            quote, line = "> ", line[1:].lstrip(" ")
        elif line.startswith("• "):
            quote, line = "- ", line[2:]
        out: list[str] = []
        at = 0
        for found in _SLACK_MARK.finditer(line):
            mark = marks[found[1]]
            out += (writer.escaped(line[at : found.start()]), mark, writer.escaped(found[2]), mark)
            at = found.end()
        out.append(writer.escaped(line[at:]))
        lines.append(quote + "".join(out))
    return "\n".join(lines)


def _slack_token(token: str, users: Mapping[str, str], channels: Mapping[str, str]) -> str:
    target, _, label = token.partition("|")
    label = _slack_plain(label)
    if target.startswith("@"):
        return literal("@" + users.get(target[1:], label or target[1:]))
    if target.startswith("#"):
        return literal("#" + (label or channels.get(target[1:], target[1:]))).removeprefix("\\")
    if target.startswith("!"):
        return literal(label or "@" + target[1:].partition("^")[0])
    target = _slack_plain(target)
    if not safe_target(target):
        return literal(f"<{_slack_plain(token)}>")
    return link(label.removeprefix("mailto:"), target)


# ---- Telegram

_TELEGRAM_MARKS = {"bold": "**", "italic": "*", "strikethrough": "~~"}


def from_telegram(text: str, entities: Sequence[Mapping[str, Any]]) -> str:
    """Telegram's text with its entities (Bot API), whose offsets and lengths count UTF-16 units.

    What can't be told in CommonMark (underline, spoiler, custom emoji) is its text; malformed entities are left out.
    """
    offsets = _utf16_offsets(text)
    spans: list[tuple[int, int, Mapping[str, Any]]] = []
    for entity in entities:
        start, length = entity.get("offset"), entity.get("length")
        if isinstance(start, int) and isinstance(length, int) and start >= 0 and length > 0:
            begin, end = offsets(start), offsets(start + length)
            if begin < end:
                spans.append((begin, end, entity))
    spans.sort(key=lambda span: (span[0], -span[1]))
    return _telegram(text, spans)


def _utf16_offsets(text: str) -> Any:
    """From a UTF-16 offset to an index of the text, both clamped to it."""
    if all(ord(char) <= 0xFFFF for char in text):
        return lambda offset: min(offset, len(text))
    places: list[int] = []
    for index, char in enumerate(text):
        places += [index, index] if ord(char) > 0xFFFF else [index]
    return lambda offset: places[offset] if offset < len(places) else len(text)


def _telegram(text: str, spans: list[tuple[int, int, Mapping[str, Any]]]) -> str:
    """Spans in order of their starts, the longer first; one that overlaps the end of another is cut there."""
    out: list[str] = []
    open_marks: list[tuple[int, str]] = []
    at = 0

    def close(until: int) -> None:
        nonlocal at
        while open_marks and open_marks[-1][0] <= until:
            end, mark = open_marks.pop()
            out.append(_kept(text[at:end]))
            out.append(mark)
            at = end

    for start, stop, entity in spans:
        close(start)
        end = min(stop, open_marks[-1][0]) if open_marks else stop
        if start < at or end <= start:
            continue
        kind = entity.get("type")
        if kind not in (*_TELEGRAM_MARKS, "code", "pre", "text_link", "blockquote", "expandable_blockquote"):
            continue
        out.append(_kept(text[at:start]))
        at = start
        covered = text[start:end]
        if kind in _TELEGRAM_MARKS:
            inner = covered.strip()
            if (
                not inner
                or "\n\n" in inner
                or (open_marks and any(_TELEGRAM_MARKS[kind] == one for _, one in open_marks))
            ):
                continue
            lead = len(covered) - len(covered.lstrip())
            out.append(text[start : start + lead] + _TELEGRAM_MARKS[kind])
            at = start + lead
            open_marks.append((start + lead + len(inner), _TELEGRAM_MARKS[kind]))
        elif kind == "code":
            out.append(code_span(covered.replace("\n", " ")))
            at = end
        elif kind == "pre":
            language = re.sub(r"[^\w+#.-]", "", str(entity.get("language") or ""))
            before = "" if start == 0 or text[start - 1] == "\n" else "\n"
            after = "" if end >= len(text) or text[end] == "\n" else "\n"
            out.append(before + fenced(covered, language) + after)
            at = end
        elif kind == "text_link":
            out.append(link(covered, str(entity.get("url") or "")))
            at = end
        else:
            after = "\n" if end < len(text) and not text.startswith("\n\n", end) else ""
            out.append("> " + literal(covered).replace("\n", "\n> ") + after)
            at = end
    close(len(text))
    out.append(_kept(text[at:]))
    return clean("".join(out))


def _kept(text: str) -> str:
    """Plain text as CommonMark shows it; bare URLs are left alone."""
    return CommonMark().escaped(text)


# ---- IRC

_IRC = re.compile(
    "\x03(?:\\d{1,2}(?:,\\d{1,2})?)?|\x04(?:[0-9a-fA-F]{6}(?:,[0-9a-fA-F]{6})?)?|[\x02\x0f\x11\x16\x1d\x1e\x1f]"
)
_IRC_MARKS = {"\x02": "**", "\x1d": "*", "\x1e": "~~"}


def from_irc(text: str) -> str:
    """A line with control codes: bold, italic, struck and monospace; colours are left out."""
    out: list[str] = []
    on: list[str] = []
    at = 0

    def piece(content: str) -> None:
        if not content.strip():
            out.append(content)
            return
        core = content.strip()
        lead, trail = content[: len(content) - len(content.lstrip())], content[len(content.rstrip()) :]
        if "\x11" in on:
            out.append(lead + code_span(clean(core)) + trail)
            return
        marks = [_IRC_MARKS[code] for code in on if code in _IRC_MARKS]
        out.append(lead + "".join(marks) + _kept(clean(core)) + "".join(reversed(marks)) + trail)

    for found in _IRC.finditer(text):
        piece(text[at : found.start()])
        at = found.end()
        code = found[0]
        if code == "\x0f":
            on.clear()
        elif code in on:
            on.remove(code)
        elif code in _IRC_MARKS or code == "\x11":
            on.append(code)
    piece(text[at:])
    return clean("".join(out))


# ---- HTML

_LONGEST_TAG = 4000


def from_html(html: str) -> str:
    """HTML of a mail, a Matrix event or a Teams message.

    Scripts, styles, hidden parts and a Matrix reply's fallback (`mx-reply`) are left out, links lead only to safe
    targets, images are their descriptions.
    """
    from jackfield_channel_kit.text.html_reader import HtmlReader

    reader = HtmlReader()
    # `html.parser` takes the square of the time for what never closes.
    for opened, closed in (("<!--", "-->"), ("<!", ">"), ("<?", ">")):
        html = _without(html, opened, closed)
    reader.feed(_closed_tags(clean(html)))
    reader.close()
    return reader.result()


def _without(text: str, opened: str, closed: str) -> str:
    """The text without what stands between the two; all the rest goes when the last one stays open."""
    out: list[str] = []
    at = 0
    while (start := text.find(opened, at)) >= 0:
        out.append(text[at:start])
        end = text.find(closed, start + len(opened))
        at = end + len(closed) if end >= 0 else len(text)
    out.append(text[at:])
    return "".join(out)


def _closed_tags(html: str) -> str:
    """The HTML with each `<` escaped that no `>` follows within `_LONGEST_TAG` characters."""
    out: list[str] = []
    at = 0
    end = -1
    for found in re.finditer("<", html):
        start = found.start()
        if end < start:
            end = html.find(">", start)
            if end < 0:
                out += (html[at:start], html[start:].replace("<", "&lt;"))
                return "".join(out)
        if end - start > _LONGEST_TAG:
            out += (html[at:start], "&lt;")
            at = start + 1
    out.append(html[at:])
    return "".join(out)
