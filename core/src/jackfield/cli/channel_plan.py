"""What a run of `jackfield channel setup` is about to write, and what the command line says of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jackfield.cli.channel_form import Question, questions, secret_name
from jackfield.errors import UsageError

if TYPE_CHECKING:
    from jackfield.api import ChannelType
    from jackfield.config import Home
    from jackfield.plugins.manifest import Manifest

__all__ = ["Plan", "name_secret", "take_options"]


@dataclass
class Plan:
    """What one run of the command is about to write."""

    home: Home
    instance: str
    type: str
    kind: ChannelType
    manifest: Manifest | None
    present: dict[str, Any]
    """What the channel's table says already."""
    values: dict[str, Any] = field(default_factory=dict)
    """Settings to write."""
    secrets: dict[str, str] = field(default_factory=dict)
    """Secrets to store, by name."""
    made: dict[str, str] = field(default_factory=dict)
    """Those of them that were made here."""

    @property
    def merged(self) -> dict[str, Any]:
        return {**self.present, **self.values}


def take_options(plan: Plan, texts: Sequence[str], given: Sequence[str], taken: Sequence[str]) -> None:
    """Fill the plan from `--set`, `--secret` and `--secret-env`.

    Raises:
        UsageError: one of them can't be meant.
    """
    from jackfield.config.edit import value_from_text
    from jackfield.config.lines import split_key

    said = dict(_pair(word, "--set", "KEY=VALUE") for word in texts)
    for key in ("type", "enabled"):
        if key in said:
            raise UsageError(f"{key} is not a setting of the channel", fix=f"leave {key} out")
    for key, text in said.items():
        path = split_key(key) or (key,)
        value = value_from_text(plan.kind.settings, path, text)
        for part in reversed(path[1:]):
            value = {part: value}
        plan.values[path[0]] = _over(plan.merged.get(path[0]), value) if len(path) > 1 else value
    piped = [_pair(word, "--secret", "KEY=-") for word in given]
    for key, value in piped:
        if value != "-":
            raise UsageError(
                "a secret on a command line can be seen by others",
                fix=f"pipe it: --secret {key}=-, or name a variable: --secret-env {key}=VARIABLE",
            )
    for (key, _), line in zip(piped, _lines(len(piped)), strict=False):
        _take_secret(plan, key, line)
    for word in taken:
        key, variable = _pair(word, "--secret-env", "KEY=VARIABLE")
        if variable not in os.environ:
            raise UsageError(f"there is no environment variable {variable!r}", fix=f"set it, or use --secret {key}=-")
        _take_secret(plan, key, os.environ[variable])


def _over(known: Any, said: Any) -> Any:
    """What is said of a table, over what it holds already."""
    if isinstance(known, dict) and isinstance(said, dict):
        return {**known, **{key: _over(known.get(key), value) for key, value in said.items()}}
    return said


def _pair(word: str, option: str, form: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals or not key:
        raise UsageError(f"{option} {word!r} is not {form}", fix=f"write it like {option} {form}")
    return key, value


def _lines(count: int) -> list[str]:
    """So many secrets from standard input; a single one may have several lines, like a key in PEM form."""
    if count == 0:
        return []
    text = sys.stdin.read()
    lines = [text.rstrip("\r\n")] if count == 1 else text.splitlines()
    if len(lines) < count or not all(lines[:count]):
        came = len([one for one in lines if one])
        raise UsageError(f"of {count} secrets {came} came from standard input", fix="pipe all in, a line for each")
    return lines


def _take_secret(plan: Plan, key: str, value: str) -> None:
    """Store it later, and let the setting name it; `key` may also be a name that a setting has already."""
    from jackfield.host.diagnosis.credentials import secret_names

    known = {one.key: one for one in questions(plan.kind, plan.manifest, plan.merged) if one.secret}
    if key in known:
        name_secret(plan, known[key], value)
    elif key in secret_names(plan.kind, plan.merged):
        plan.secrets[key] = value
    else:
        raise UsageError(
            f"{key!r} is no setting of {plan.type} that names a secret",
            fix=f"there {'is' if len(known) == 1 else 'are'}: {', '.join(known) or 'none'}",
        )


def name_secret(plan: Plan, question: Question, value: str) -> None:
    """Store a secret later, under the name that its setting has or gets."""
    from jackfield.config.edit import values_from_texts
    from jackfield.host.secrets.held import check_name
    from jackfield.store.secrets import SecretKind

    name = check_name(secret_name(question, plan.instance, plan.type, plan.merged), SecretKind.CHANNEL_TOKEN)
    plan.secrets[name] = value
    if question.key not in plan.merged:
        plan.values.update(values_from_texts(plan.kind.settings, {question.key: name}))
