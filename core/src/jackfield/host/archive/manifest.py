"""What an archive says about itself, and which names may be in one.  Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from jackfield.errors import StoreNewer, VerificationFailed

__all__ = [
    "FORMAT", "HOME_PARTS", "MANIFEST", "PRIVATE_FILES", "Entry", "Kind", "LeftOut", "Manifest", "check_name",
    "compare", "dumps", "loads",
]  # fmt: skip

FORMAT = 1
"""The newest format of archives that this version reads, and the one that it writes."""
MANIFEST = "MANIFEST.json"
"""The last member of an archive."""
PRIVATE_FILES = ("master.key", "secrets.toml")
"""For their owner only.  The second is of archives that earlier versions made."""
HOME_PARTS = frozenset(
    {
        "jackfield.toml",
        "state.db",
        "groups",
        "sessions",
        "plugins",
        "channels",
        "outgoing",
        "spool",
        "approvals",
        *PRIVATE_FILES,
    }
)
"""What may lie at the top of a home's archive: nothing that belongs to one life of a host (socket, lock, heartbeat)."""
GROUP_PARTS = frozenset(
    {"agent.toml", "AGENTS.md", "CLAUDE.md", "memory", "skills", "packages", "workspace", "wirings.json"}
)

Kind = Literal["home", "group"]
_LONGEST_PATH = 4096
_LONGEST_PART = 255
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the archive.  `mode`: its permission bits."""

    path: str
    size: int
    sha256: str
    mode: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that lay in the folder and is not in the archive."""

    path: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    kind: Kind
    app: str
    """The version that made it."""
    schema: int
    """Of `state.db`; 0 where there is none."""
    install: str
    made_at: str
    """ISO 8601, UTC."""
    home: str
    """Where the home lay."""
    name: str = ""
    """The group's folder, for a group."""
    secrets: bool = False
    """Whether `master.key` is in it."""
    sessions: bool = True
    files: tuple[Entry, ...] = ()
    folders: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    fresh_outboxes: tuple[str, ...] = ()
    """Session folders whose `outbound.db` could not be copied; a restored session begins a new one."""
    details: dict[str, Any] = field(default_factory=dict)
    """What is good to know: how much was open when it was made."""

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.files)


def dumps(manifest: Manifest) -> bytes:
    """The manifest as it is stored."""
    body = {"jackfield": "archive", "format": FORMAT, **asdict(manifest)}
    return json.dumps(body, ensure_ascii=True, indent=1).encode("ascii") + b"\n"


def loads(data: bytes, *, newest_schema: int) -> Manifest:
    """The manifest, every field checked.

    Raises:
        StoreNewer: a newer version made the archive, or its `state.db`.
        VerificationFailed: it is none.
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise _bad("is not JSON") from None
    if not isinstance(body, dict) or body.get("jackfield") != "archive":
        raise _bad("is none of Jackfield's")
    found = body.get("format")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise _bad("names no format")
    app = body.get("app") if isinstance(body.get("app"), str) else "?"
    if found > FORMAT:
        raise StoreNewer(
            f"Jackfield {app} wrote this archive in format {found}, this one reads up to {FORMAT}; nothing was touched",
            fix="install that version, or a newer one, and restore with it",
        )
    try:
        manifest = _manifest(body)
    except (KeyError, TypeError, ValueError) as problem:
        raise _bad(f"has another shape than agreed ({problem})") from None
    if manifest.schema > newest_schema:
        raise StoreNewer(
            f"the archive's state.db was written by a newer Jackfield ({manifest.app}, schema {manifest.schema}; "
            f"this one knows {newest_schema}); nothing was touched",
            fix="install that version, or a newer one, and restore with it",
        )
    return manifest


def _bad(why: str) -> VerificationFailed:
    return VerificationFailed(f"the archive's {MANIFEST} {why}", fix="use another backup")


def _manifest(body: Mapping[str, Any]) -> Manifest:
    kind = body["kind"]
    if kind not in ("home", "group"):
        raise ValueError(f"kind {kind!r}")
    return Manifest(
        kind=kind,
        app=_text(body["app"]),
        schema=_number(body["schema"]),
        install=_text(body["install"]),
        made_at=_text(body["made_at"]),
        home=_text(body["home"]),
        name=_text(body.get("name", "")),
        secrets=body["secrets"] is True,
        sessions=body["sessions"] is True,
        files=tuple(
            Entry(_text(one["path"]), _number(one["size"]), _digest(one["sha256"]), _number(one["mode"]) & 0o777)
            for one in body["files"]
        ),
        folders=tuple(_text(one) for one in body["folders"]),
        left_out=tuple(LeftOut(_text(one["path"]), _text(one["why"])) for one in body["left_out"]),
        fresh_outboxes=tuple(_text(one) for one in body["fresh_outboxes"]),
        details=dict(body["details"]),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise TypeError(f"{value!r} is no size")
    return value


def _digest(value: object) -> str:
    text = _text(value)
    if len(text) != 64 or text.strip("0123456789abcdef"):
        raise ValueError(f"{text!r} is no SHA-256")
    return text


def check_name(name: str, kind: Kind | None = None) -> str:
    """The name, when it is a plain relative path that may be in an archive of that kind.

    Raises:
        VerificationFailed: it is not.
    """
    parts = name.split("/")
    wrong = None
    if not name or name.startswith("/") or len(name) > _LONGEST_PATH or len(parts) > _DEEPEST:
        wrong = "is no relative path of a fair length"
    elif any(part in ("", ".", "..") for part in parts):
        wrong = "leaves its folder"
    elif any(len(part.encode("utf-8", "surrogateescape")) > _LONGEST_PART for part in parts):
        wrong = "is too long"
    elif any(ord(character) < 32 or character == "\x7f" for character in name):
        wrong = "holds control characters"
    elif kind is not None and parts[0] not in (HOME_PARTS if kind == "home" else GROUP_PARTS):
        wrong = f"belongs into no {'backup' if kind == 'home' else 'export of a group'}"
    if wrong:
        raise VerificationFailed(f"the archive holds {name!r}, which {wrong}", fix="use another one")
    return name


def compare(manifest: Manifest, seen: Mapping[str, tuple[int, str]], folders: Iterable[str]) -> None:
    """Whether the archive holds exactly what it says.  `seen`: size and SHA-256 of each file by its name.

    Raises:
        VerificationFailed: something is missing, too much, or differs.
    """
    listed = {entry.path: (entry.size, entry.sha256) for entry in manifest.files}
    if len(listed) != len(manifest.files):
        raise _bad("lists a file twice")
    for name in (*listed, *manifest.folders):
        check_name(name, manifest.kind)
    if wrong := sorted({name for name in manifest.fresh_outboxes if not _is_session(name, manifest)}):
        raise _bad(f"names {wrong[0]!r}, which is no conversation in it")
    for name in (*listed, *manifest.folders):
        if parent := next((above for above in _above(name) if above in listed), None):
            raise _bad(f"lists {parent!r} as a file and as a folder")
    for what, names in (
        ("lacks", listed.keys() - seen.keys()),
        ("holds something that it does not list:", seen.keys() - listed.keys()),
        ("lacks the folder", set(manifest.folders) - set(folders)),
        ("holds a folder that it does not list:", set(folders) - set(manifest.folders)),
    ):
        if names:
            raise VerificationFailed(f"the archive {what} {min(names)!r}", fix="use another backup")
    for name, found in seen.items():
        if found != listed[name]:
            raise VerificationFailed(f"{name!r} in the archive is damaged: it differs from what the manifest says",
                                     fix="use another backup")  # fmt: skip


def _is_session(name: str, manifest: Manifest) -> bool:
    return name in manifest.folders and name.startswith("sessions/") and name.count("/") == 2


def _above(name: str) -> Iterable[str]:
    """The folders that it lies in."""
    parts = name.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))
