"""What `jackfield channel setup` asks for: the plugin's own settings and secrets as questions.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jackfield.api import ChannelType
    from jackfield.plugins.manifest import Manifest

__all__ = ["Question", "questions", "secret_keys", "secret_name"]


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


def secret_keys(kind: ChannelType, manifest: Manifest | None) -> list[str]:
    """The settings whose values are names of secrets, by the plugin's code and by its manifest."""
    told = [one.name for one in manifest.settings if one.type == "secret"] if manifest is not None else []
    return list(dict.fromkeys((*kind.secrets, *told)))


def questions(kind: ChannelType, manifest: Manifest | None, present: Mapping[str, Any]) -> list[Question]:
    """All settings in the plugin's order, secrets first: `present` is what the channel's table says already."""
    helps = {one.name: one.help for one in manifest.settings} if manifest is not None else {}
    needed = {one.name for one in manifest.settings if one.required} if manifest is not None else set()
    secrets = secret_keys(kind, manifest)
    fields = kind.settings.model_fields if kind.settings is not None else {}
    found = []
    for key in dict.fromkeys((*secrets, *fields, *helps)):
        field = fields.get(key)
        default = None if field is None or field.is_required() else field.get_default(call_default_factory=True)
        default = present.get(key, default)
        found.append(
            Question(
                key=key,
                help=" ".join((helps.get(key) or (field.description if field is not None else None) or "").split()),
                required=key in needed or (field is not None and field.is_required()),
                secret=key in secrets and not isinstance(default, Mapping),
                default=default,
            )
        )
    return found


def secret_name(question: Question, instance: str, channel_type: str, present: Mapping[str, Any]) -> str:
    """The name to store a secret under: the one that the setting says, else one of this instance's own."""
    said = present.get(question.key)
    if said is None and instance == channel_type:
        said = question.default
    if isinstance(said, list | tuple):
        said = said[0] if said else None
    return said if isinstance(said, str) and said else f"{instance}-{question.key}".replace("_", "-")
