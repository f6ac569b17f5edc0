"""What the documentation says of the channels that this repository ships, from their own words."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jackfield.api import ChannelType
from jackfield.models import Capabilities, Support

ROOT = Path(__file__).resolve().parent.parent


def shipped() -> list[tuple[dict[str, Any], ChannelType]]:
    """Every channel of `marketplace.json`: its entry there, and what it registers."""
    index = json.loads((ROOT / "marketplace.json").read_text(encoding="utf-8"))
    found = []
    for entry in index["plugins"]:
        for point in entry["releases"][-1]["provides"]:
            if point["group"] == "jackfield.channels":
                module = importlib.import_module(point["value"])
                found += [(entry, kind) for kind in module.register_channels() if kind.info.type == point["name"]]
    return found


def capabilities_of(kind: ChannelType) -> Capabilities:
    """What an instance with the least settings says of itself; nothing is started, so nothing must be right in them."""
    settings: Any = {}
    if kind.settings is not None:
        needed = {name: "sample" for name, info in kind.settings.model_fields.items() if info.is_required()}
        settings = kind.settings.model_construct(None, **needed)
    return kind.create("sample", settings).capabilities()


_UNITS = {"codepoints": "characters", "utf16": "UTF-16 units", "utf8": "bytes"}
_SUPPORT = {Support.NONE: "no", Support.EMULATED: "emulated", Support.LIMITED: "partly", Support.NATIVE: "yes"}


def _graded(name: str, more: Callable[[Capabilities], str] = lambda can: "") -> Callable[[Capabilities], str]:
    """How well it goes, and the details where it goes."""

    def say(can: Capabilities) -> str:
        grade: Support = getattr(can, name)
        detail = more(can) if grade is not Support.NONE else ""
        return f"{_SUPPORT[grade]}, {detail}" if detail else _SUPPORT[grade]

    return say


def _files(can: Capabilities) -> str:
    size = f", {can.file_max_bytes / 1_048_576:,.0f} MiB each" if can.file_max_bytes else ""
    caption = f", captions up to {can.caption_limit:,}" if can.caption_limit is not None else ""
    return f"{can.file_max_count} at once{size}{caption}"


def _buttons(can: Capabilities) -> str:
    labels = f", {can.prompt_label_limit} letters each" if can.prompt_label_limit else ""
    return (f"up to {can.prompt_max_choices}" if can.prompt_max_choices else "any number") + labels


def _stream(can: Capabilities) -> str:
    if can.stream == "none":
        return "no"
    return f"{'by edits' if can.stream == 'edit' else 'yes'}, every {can.stream_interval:g} s"


def _rates(can: Capabilities) -> str:
    rates = {"each chat": can.rate_per_chat, "in all": can.rate_global}
    return ", ".join(f"{rate * 60:,.0f} a minute {where}" for where, rate in rates.items() if rate) or "no limit known"


ABILITIES: list[tuple[str, tuple[str, ...], Callable[[Capabilities], str]]] = [
    (
        "longest message",
        ("text_limit", "text_unit"),
        lambda can: f"{can.text_limit:,} {_UNITS[can.text_unit]}" if can.text_limit else "no limit",
    ),
    ("markup", ("dialect",), lambda can: f"`{can.dialect}`"),
    ("tables", ("tables",), _graded("tables")),
    (
        "edits its messages",
        ("edit", "edit_max_age"),
        _graded("edit", lambda can: f"for {can.edit_max_age / 3600:g} h" if can.edit_max_age else ""),
    ),
    ("deletes them", ("delete",), _graded("delete")),
    (
        "reacts",
        ("react", "emoji"),
        _graded("react", lambda can: f"{len(can.emoji)} emoji" if can.emoji else "any emoji"),
    ),
    ("threads", ("threads",), lambda can: str(can.threads).replace("_", " ").replace("none", "no")),
    ("quotes what it answers", ("quote",), _graded("quote")),
    (
        "shows that it works",
        ("typing", "typing_ttl"),
        _graded("typing", lambda can: f"for {can.typing_ttl:g} s at a time"),
    ),
    ("answers grow while written", ("stream", "stream_interval"), _stream),
    ("files", ("files", "file_max_bytes", "file_max_count", "caption_limit"), _graded("files", _files)),
    ("questions as buttons", ("prompt", "prompt_max_choices", "prompt_label_limit"), _graded("prompt", _buttons)),
    ("cards", ("cards",), _graded("cards")),
    ("messages for one person's eyes", ("ephemeral",), _graded("ephemeral")),
    ("begins direct chats", ("open_dm",), lambda can: str(can.open_dm).replace("_", " ")),
    ("looks up whether a send arrived", ("history",), _graded("history")),
    ("a send repeated is one message", ("idempotent_send",), lambda can: "yes" if can.idempotent_send else "no"),
    ("sends at most", ("rate_per_chat", "rate_global"), _rates),
    ("needs a public URL", ("needs_public_url",), lambda can: "yes" if can.needs_public_url else "no"),
    ("end-to-end encryption", ("e2ee",), lambda can: "yes" if can.e2ee else "no"),
]
"""What operators are told, the fields of `Capabilities` behind it, and how it is said."""
