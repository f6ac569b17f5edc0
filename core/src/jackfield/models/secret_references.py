"""``secret:NAME`` in a setting: the name of a secret in place of the secret.  Pure.

The whole value is the reference, or one word goes before it, as in ``Bearer secret:NAME``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

__all__ = ["NoSecret", "resolved", "secrets_named"]

_REFERENCE = re.compile(r"((?:[A-Za-z]+ )?)secret:([A-Za-z_][A-Za-z0-9_]{0,127})")


class NoSecret(ValueError):
    """A secret that is referred to is not known."""


def secrets_named(values: Iterable[str]) -> tuple[str, ...]:
    """The names that these values refer to, each once."""
    return tuple(dict.fromkeys(found[2] for value in values if (found := _REFERENCE.fullmatch(value)) is not None))


def resolved(value: str, secrets: Mapping[str, str]) -> str:
    """The value, with the secret in place of a reference to it.

    Raises:
        NoSecret: it is not among the secrets.
    """
    found = _REFERENCE.fullmatch(value)
    if found is None:
        return value
    if found[2] not in secrets:
        raise NoSecret(f"it needs the secret {found[2]!r}, which this agent was not given")
    return found[1] + secrets[found[2]]
