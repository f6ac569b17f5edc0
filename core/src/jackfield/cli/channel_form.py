"""What `jackfield channel setup` asks for: the plugin's own settings and secrets as questions.  Pure."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jackfield.api import ChannelType
    from jackfield.plugins.manifest import Manifest

__all__ = ["Question", "made_secret", "needs", "questions", "secret_keys", "secret_name"]


@dataclass(frozen=True, slots=True)
class Question:
    """One setting.  `secret` means that its value is the name of a secret, and that the secret itself is asked for; of
    a whole table of names nothing is asked."""

    key: str
    help: str
    required: bool
    secret: bool
    default: Any = None
    """What it is now, or what holds without it; None for nothing."""
    generate: str | None = None
    """How a secret begins that is made when none is given; None for one that only the platform can give."""


def secret_keys(kind: ChannelType, manifest: Manifest | None) -> list[str]:
    """The settings whose values are names of secrets, by the plugin's code and by its manifest."""
    told = [one.name for one in manifest.settings if one.type == "secret"] if manifest is not None else []
    return list(dict.fromkeys((*kind.secrets, *told)))


def questions(kind: ChannelType, manifest: Manifest | None, present: Mapping[str, Any]) -> list[Question]:
    """All settings in the plugin's order, secrets last, since which are needed depends on the others: `present` is what
    the channel's table says already."""
    helps = {one.name: one.help for one in manifest.settings} if manifest is not None else {}
    needed = {one.name for one in manifest.settings if one.required} if manifest is not None else set()
    made = {one.name: one.generate for one in manifest.settings} if manifest is not None else {}
    names = secret_keys(kind, manifest)
    fields = kind.settings.model_fields if kind.settings is not None else {}
    found = []
    for key in (*(key for key in dict.fromkeys((*fields, *helps)) if key not in names), *names):
        field = fields.get(key)
        default = None if field is None or field.is_required() else field.get_default(call_default_factory=True)
        default = present.get(key, default)
        found.append(
            Question(
                key=key,
                help=" ".join((helps.get(key) or (field.description if field is not None else None) or "").split()),
                required=key in needed or (field is not None and field.is_required()),
                secret=key in names and not isinstance(default, Mapping),
                default=default,
                generate=made.get(key),
            )
        )
    return found


def needs(kind: ChannelType, values: Mapping[str, Any], key: str) -> bool:
    """Whether the settings can't be used because of what `key` does not say."""
    from pydantic import ValidationError

    if kind.settings is None or key in values:
        return False
    try:
        kind.settings.model_validate(dict(values))
    except ValidationError as problem:
        return any(one["loc"][:1] == (key,) for one in problem.errors())
    return False


def made_secret(beginning: str) -> str:
    """192 bits that nobody can guess, behind `beginning`."""
    return beginning + base64.b64encode(secrets.token_bytes(24)).decode("ascii")


def secret_name(question: Question, instance: str, channel_type: str, present: Mapping[str, Any]) -> str:
    """The name to store a secret under: the one that the setting says, else one of this instance's own."""
    said = present.get(question.key)
    if said is None and instance == channel_type:
        said = question.default
    if isinstance(said, list | tuple):
        said = said[0] if said else None
    return said if isinstance(said, str) and said else f"{instance}-{question.key}".replace("_", "-")
