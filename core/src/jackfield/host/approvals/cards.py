"""What a card looks like: every field, foreign text made harmless, long values as files.  Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from jackfield.api import ApprovalState
from jackfield.clock import zoned_text
from jackfield.models import Capabilities, Choice, OutMessage, Prompt, Support
from jackfield.store.approvals import Approval, DeedOutcome, Via

__all__ = [
    "Drawn",
    "agent",
    "draw",
    "final_text",
    "label",
    "literal",
    "message",
    "quoted",
    "reminder_text",
    "state_key",
    "takes_all",
    "verdict",
]

LONG = 600
"""Characters of a value above which its opening is shown, and the whole is a file."""
OPENING = 300
INLINE = 20_000
"""Characters that a card may have in a chat that takes no files."""
WIDTH = 80
"""Characters of a line of foreign text."""
_TICKS = re.compile(r"`+")
_WORD = re.compile(r"\w+")
_ALIKE = frozenset({"LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU"})
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\U0001d159")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A card's text, and the long values that go with it as files, by name."""

    text: str
    files: tuple[tuple[str, str], ...]


def literal(value: str) -> str:
    """A foreign text that shows as what it is: no markup, nothing invisible, nothing that turns the writing around.

    Each line of a longer one has a bar before it, since where a chat has no markup, and where it cuts long lines, one
    could look like the card's own words.
    """
    if not value:
        return "*(empty)*"
    shown = "".join(_visible(char) for char in value)
    longest = max((len(run) for run in _TICKS.findall(shown)), default=0)
    if "\n" in shown or len(shown) > WIDTH:
        fence = "`" * max(3, longest + 1)
        quoted = f"\n{fence}\n{_barred(shown)}\n{fence}"
    elif "`" not in shown:
        quoted = f"`{shown}`"
    else:
        fence = "`" * (longest + 1)
        quoted = f"{fence} {shown} {fence}"
    alike = list(dict.fromkeys(_lookalikes(value)))[:5]
    if not alike:
        return quoted
    spelt = ", ".join(f"`{''.join(_ascii(char) for char in token[:60])}`" for token in alike)
    return f"{quoted}\n\n⚠️ Letters of several alphabets, which may look alike: {spelt}"


def quoted(value: str) -> str:
    """The same for a place without any markup, such as a terminal: always with bars."""
    alike = list(dict.fromkeys(_lookalikes(value)))[:5]
    spelt = ", ".join("".join(_ascii(char) for char in token[:60]) for token in alike)
    warning = f"\n⚠️ Letters of several alphabets, which may look alike: {spelt}" if alike else ""
    return _barred("".join(_visible(char) for char in value)) + warning


def _barred(text: str) -> str:
    """With a bar before each line; one that is cut goes on behind a broken bar."""
    rows: list[str] = []
    for line in text.split("\n"):
        rows.append(f"│ {line[:WIDTH]}")
        rows += [f"┊ {line[start : start + WIDTH]}" for start in range(WIDTH, len(line), WIDTH)]
    return "\n".join(rows)


def _visible(char: str) -> str:
    if char == "\n" or ((char == " " or unicodedata.category(char)[0] not in "CZ") and not _blank(char)):
        return char
    if char == "\t":
        return "    "
    number = ord(char)
    return f"\\x{number:02x}" if number < 256 else f"\\u{{{number:x}}}"


def _blank(char: str) -> bool:
    """Whether it shows nothing although it counts as a letter, a mark or a sign."""
    return char in _BLANK or 0xFE00 <= ord(char) <= 0xFE0E or 0xE0100 <= ord(char) <= 0xE01EF


def _ascii(char: str) -> str:
    return char if char.isascii() and char.isprintable() and char != "`" else f"\\u{{{ord(char):x}}}"


def _lookalikes(text: str) -> Iterator[str]:
    """Words, addresses and paths whose letters come from several of the alphabets that look alike."""
    if text.isascii():
        return
    for token in text.split():
        pieces = [token] if any(char in ".:/@=" for char in token.strip(".:")) else _WORD.findall(token)
        for piece in pieces:
            alphabets = {unicodedata.name(char, "").partition(" ")[0] for char in piece if char.isalpha()}
            if len(alphabets & _ALIKE) > 1:
                yield piece


def draw(item: Approval, whose: str, *, files: bool) -> Drawn:
    """The card's text.  `whose` is the agent as `agent` names it; with `files` long values become some."""
    lines: list[str] = []
    if whose:
        asks = "asks for this" if item.session_id is not None else "is what this is about"
        lines.append(f"The agent {whose} {asks}.")
    attached: list[tuple[str, str]] = []
    for number, field in enumerate(item.fields, 1):
        value = field.value
        if files and len(value) > LONG:
            name = f"{number}-{re.sub('[^a-z0-9]+', '-', field.label.lower()).strip('-')[:40] or 'value'}.txt"
            attached.append((name, value))
            opening = literal(value[:OPENING])
            lines.append(
                f"**{label(field.label)}** (the beginning; all {len(value):,} characters are in {name}): {opening}"
            )
        else:
            lines.append(f"**{label(field.label)}:** {literal(value)}")
    lines += [f"**File:** {literal(one.name)}, {one.size:,} bytes" for one in item.files]
    if item.reason:
        lines.append(f"The agent's reason, in its own words: {literal(item.reason)}")
    return Drawn("\n\n".join(lines), tuple(attached))


def agent(name: str, folder: str) -> str:
    """An agent for a person: by its name, and by its folder, since agents may have the same name."""
    return f"{literal(name)} (`{folder}`)"


def said(text: str) -> str:
    """Words of the host with foreign ones in them: no markup in either."""
    return "\n".join(label(line) for line in text.split("\n"))


def label(text: str) -> str:
    """A foreign word or two within a text."""
    return re.sub(r"([\\`*_\[\]<>#|~])", r"\\\1", "".join(_visible(char) for char in text.replace("\n", " ")))


def prompt(item: Approval, text: str, zone: ZoneInfo) -> Prompt:
    """The question with its buttons; `zone` is of whoever reads it."""
    until = zoned_text(item.expires_at, zone)
    styles = {True: "primary", False: "danger"}
    return Prompt(
        id=item.id,
        title=item.title,
        question=f"{text}\n\n*Until {until}; then it is neither yes nor no.*",
        choices=tuple(
            Choice(one.value, one.label, one.selected_label or "", styles[one.approves]) for one in item.choices
        ),
        expires_at=item.expires_at,
    )


def message(item: Approval, drawn: Drawn, zone: ZoneInfo) -> OutMessage:
    return OutMessage(prompt=prompt(item, drawn.text, zone))


def takes_all(can: Capabilities, sizes: Sequence[int]) -> bool:
    """Whether that chat takes files of these sizes."""
    return can.files is not Support.NONE and all(
        can.file_max_bytes is None or size <= can.file_max_bytes for size in sizes
    )


# ---- afterwards


def verdict(item: Approval, name: str) -> str:
    """What became of it, in one line for people; `name` is whoever decided."""
    by = f" by {label(name)}" if name else ""
    note = f": {said(item.note)}" if item.note else ""
    match item.state:
        case ApprovalState.EXPIRED:
            return "⌛ Expired: nobody decided it in time. Nothing was done."
        case ApprovalState.CANCELLED:
            return f"🚫 Cancelled{by}{note}. Nothing was done."
        case ApprovalState.PENDING:
            return "It waits for a decision."
    chosen = item.chosen
    made = label(chosen.selected_label or chosen.label) if chosen is not None else item.state.value.capitalize()
    text = said(item.outcome_text or "")
    match item.outcome:
        case DeedOutcome.FAILED:
            result = f"\n\n⚠️ It was not done: {text}"
        case DeedOutcome.INTERRUPTED:
            result = f"\n\n⚠️ {text[:1].upper()}{text[1:]}."
        case _:
            result = f"\n\n{text}" if text else ""
    return f"{made}{by if item.via is not Via.POLICY else ''}{note}{result}"


def final_text(item: Approval, drawn: Drawn | None, name: str) -> str:
    """The whole card once it was decided; without `drawn`, in short."""
    parts = (f"**{item.title}**", drawn.text if drawn is not None else "", verdict(item, name))
    return "\n\n".join(part for part in parts if part)


def state_key(item: Approval) -> str:
    """What a card says, as a word: two approvals with the same one look the same."""
    told = item.outcome is not None and (
        item.outcome_text or item.outcome not in (DeedOutcome.DONE, DeedOutcome.RUNNING)
    )
    return f"{item.state} {item.outcome}" if told else str(item.state)


def reminder_text(item: Approval, zone: ZoneInfo) -> str:
    return f"“{item.title}” still waits for your decision, until {zoned_text(item.expires_at, zone)}."
