"""`jackfield-plugin.toml`: what a plugin says about itself, read without importing it (architecture, section 4).

It is package data of a wheel, or lies at the root of a directory plugin::

    title = "Telegram"
    description = "A bot in Telegram chats."
    kinds = ["channel"]
    api = ">=1.0,<2"
    permissions = ["net:api.telegram.org", "secret:TELEGRAM_TOKEN"]
    docs = "https://example.org/telegram"
    setup_url = "https://t.me/BotFather"
    setup_steps = ["Write /newbot to @BotFather.", "Copy the token that it answers with."]

    [[settings]]
    name = "token"
    type = "secret"
    help = "The name of the secret with the bot's token."
    required = true

    [[secrets]]
    name = "TELEGRAM_TOKEN"
    help = "From @BotFather."

    [[commands]]
    name = "telegram"
    help = "Look after the bot."
    target = "jackfield_channel_telegram.commands:group"

A directory plugin with code names it as a wheel's metadata would: `[entry_points.tools]` with `name = "module:object"`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jackfield.errors import MalformedData
from jackfield.plugins.discovery import MANIFEST_FILE
from jackfield.plugins.kinds import Kind

__all__ = [
    "FILE_NAME",
    "MAX_BYTES",
    "Manifest",
    "ManifestCommand",
    "ManifestSecret",
    "ManifestSetting",
    "find_in_package",
    "parse",
    "read",
]

FILE_NAME = MANIFEST_FILE
MAX_BYTES = 65_536
COMMAND_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSetting:
    """A key of the plugin's section in the configuration."""

    name: str
    help: str = ""
    type: str = "string"
    required: bool = False
    generate: str | None = None
    """Of a secret that both sides may choose: how one begins that `channel setup` makes when none is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSecret:
    """A secret that the plugin needs, by its usual name."""

    name: str
    help: str = ""
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestCommand:
    """A command of the `jackfield` program; `target` is imported when it runs, not before."""

    name: str
    help: str
    target: str
    """`module:object`, a click command."""
    distribution: str = ""
    """Who offers it; filled in by discovery."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The whole file.  `api` is a range over `jackfield.API_VERSION`, in the notation of PEP 440."""

    title: str
    kinds: tuple[Kind, ...]
    api: str
    description: str = ""
    docs: str = ""
    setup_url: str = ""
    """The platform's page where its side of the set-up is done."""
    setup_steps: tuple[str, ...] = ()
    """What a person does there, a line for each step; shown by `jackfield channel setup`."""
    setup_file: str = ""
    """A text file beside the manifest to hand to the platform, such as its own manifest of an app."""
    permissions: tuple[str, ...] = ()
    settings: tuple[ManifestSetting, ...] = ()
    secrets: tuple[ManifestSecret, ...] = ()
    commands: tuple[ManifestCommand, ...] = ()
    entry_points: dict[str, dict[str, str]] = field(default_factory=dict)
    """Directory plugins only: kind to name to `module:object`."""


def parse(text: str) -> Manifest:
    """A manifest from TOML text.

    Raises:
        MalformedData: no TOML, a key is missing or has another type; the message names the key.
    """
    import tomllib

    from jackfield.models import codec

    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise MalformedData(f"{FILE_NAME} is no TOML: {problem}") from None
    try:
        manifest = codec.decode(Manifest, found)
    except MalformedData as problem:
        raise MalformedData(f"{FILE_NAME}: {problem.message.removeprefix('$').removeprefix('.')}") from None
    _check(manifest)
    return manifest


def _check(manifest: Manifest) -> None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if not manifest.title.strip():
        raise MalformedData(f"{FILE_NAME}: title is empty")
    if not manifest.kinds:
        raise MalformedData(f"{FILE_NAME}: kinds is empty; allowed are {', '.join(Kind)}")
    try:
        SpecifierSet(manifest.api)
    except InvalidSpecifier:
        raise MalformedData(f'{FILE_NAME}: api = {manifest.api!r} is no version range such as ">=1.0,<2"') from None
    if manifest.setup_file and not _inside(manifest.setup_file):
        raise MalformedData(
            f"{FILE_NAME}: setup_file = {manifest.setup_file!r} must lie beside the manifest or below it"
        )
    for command in manifest.commands:
        if not COMMAND_NAME.fullmatch(command.name):
            raise MalformedData(
                f"{FILE_NAME}: command {command.name!r} must consist of small letters, digits and single hyphens"
            )
        if not _TARGET.fullmatch(command.target):
            raise MalformedData(
                f"{FILE_NAME}: command {command.name} has target {command.target!r}; write it as module:object"
            )
    for kind in manifest.entry_points:
        if kind not in set(Kind):
            raise MalformedData(f"{FILE_NAME}: entry_points.{kind} is no kind; allowed are {', '.join(Kind)}")


def _inside(name: str) -> bool:
    return not name.startswith("/") and "\\" not in name and not {"", ".", ".."}.intersection(name.split("/"))


def read(path: Path) -> Manifest:
    """The manifest in a file.

    Raises:
        MalformedData: as `parse`; also when it can't be read, is no UTF-8, or is longer than `MAX_BYTES`.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise MalformedData(f"{FILE_NAME} is longer than {MAX_BYTES} bytes")
        text = data.decode()
    except OSError as problem:
        raise MalformedData(f"{FILE_NAME} can't be read: {problem.strerror or problem}") from None
    except UnicodeDecodeError:
        raise MalformedData(f"{FILE_NAME} is not UTF-8") from None
    return parse(text)


def allows(manifest: Manifest, version: tuple[int, int]) -> bool:
    """Whether the manifest's range holds this API version."""
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(manifest.api).contains(f"{version[0]}.{version[1]}", prereleases=True)


def find_in_package(module: str, folders: list[Path]) -> Path | None:
    """The manifest of the package that `module` is part of, looked up in folders as Python would, without importing.

    The innermost package that has one wins: `a/b/` before `a/` for the module `a.b.plugin`.  The import system's own
    `find_spec` is of no use here: it imports the parents of a dotted name.
    """
    parts = module.split(".")
    for folder in folders:
        for depth in range(len(parts), 0, -1):
            candidate = folder.joinpath(*parts[:depth], FILE_NAME)
            if candidate.is_file():
                return candidate
    return None


def to_plain(manifest: Manifest) -> dict[str, Any]:
    """The manifest as JSON values, for the cache and `--json`."""
    return {
        "title": manifest.title,
        "description": manifest.description,
        "kinds": [str(kind) for kind in manifest.kinds],
        "api": manifest.api,
        "docs": manifest.docs,
        "setup_url": manifest.setup_url,
        "setup_steps": list(manifest.setup_steps),
        "setup_file": manifest.setup_file,
        "permissions": list(manifest.permissions),
        "settings": [
            {"name": one.name, "help": one.help, "type": one.type, "required": one.required, "generate": one.generate}
            for one in manifest.settings
        ],
        "secrets": [{"name": one.name, "help": one.help, "required": one.required} for one in manifest.secrets],
        "commands": [{"name": one.name, "help": one.help, "target": one.target} for one in manifest.commands],
        "entry_points": manifest.entry_points,
    }


def from_plain(value: dict[str, Any], distribution: str) -> Manifest:
    """The inverse of `to_plain`, for what we wrote ourselves."""
    return Manifest(
        title=value["title"],
        description=value["description"],
        kinds=tuple(Kind(kind) for kind in value["kinds"]),
        api=value["api"],
        docs=value["docs"],
        setup_url=value.get("setup_url", ""),
        setup_steps=tuple(value.get("setup_steps", ())),
        setup_file=value.get("setup_file", ""),
        permissions=tuple(value["permissions"]),
        settings=tuple(ManifestSetting(**one) for one in value["settings"]),
        secrets=tuple(ManifestSecret(**one) for one in value["secrets"]),
        commands=tuple(ManifestCommand(**one, distribution=distribution) for one in value["commands"]),
        entry_points=value["entry_points"],
    )
