"""What may be named to a package manager, and the lists that an agent group's packages are recorded in.  Pure.

A name reaches a package manager as one argument of its own, so the patterns keep out what it would read as an option,
a path, an address or a file (C176).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from jackfield.errors import MalformedData

__all__ = ["MANAGERS", "MOST_AT_ONCE", "Manager", "Packages", "checked_name", "name_of", "requested"]

Manager = Literal["apt", "npm", "pip"]
MANAGERS: tuple[Manager, ...] = ("apt", "npm", "pip")
MOST_AT_ONCE = 20
"""Packages in one request."""
_LONGEST = 100
_VERSION = r"[0-9][A-Za-z0-9.+!_-]{0,39}"
_PATTERNS: dict[Manager, re.Pattern[str]] = {
    "apt": re.compile(r"[a-z0-9][a-z0-9.+-]+"),
    "npm": re.compile(r"(?:@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*"),
    "pip": re.compile(rf"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:=={_VERSION})?"),
}
_LIKE: dict[Manager, str] = {
    "apt": "the name alone, lower case, like jq",
    "npm": "the name alone, lower case, like left-pad or @scope/name",
    "pip": "a name, or a name and the exact version, like requests or requests==2.32.3",
}


def checked_name(manager: Manager, text: object) -> str:
    """The text, if it can only be a package's name.

    Raises:
        MalformedData: it could be anything else.
    """
    if not isinstance(text, str) or len(text) > _LONGEST or _PATTERNS[manager].fullmatch(text) is None:
        raise MalformedData(f"{str(text)[:60]!r} is no name of a package of {manager}; allowed: {_LIKE[manager]}")
    return text


def name_of(manager: Manager, package: str) -> str:
    """By what two entries are the same package: without a version, and for pip however it is spelt."""
    if manager != "pip":
        return package
    return re.sub(r"[-_.]+", "-", package.partition("==")[0]).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages:
    """Lists of names, one for each package manager; at most one entry a package."""

    apt: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()

    def of(self, manager: Manager) -> tuple[str, ...]:
        found: tuple[str, ...] = getattr(self, manager)
        return found

    @property
    def count(self) -> int:
        return sum(len(self.of(manager)) for manager in MANAGERS)

    def with_more(self, more: Packages) -> Packages:
        """With those of `more`; of a package that is in both, its entry holds."""
        return Packages(**{manager: _merged(manager, self.of(manager), more.of(manager)) for manager in MANAGERS})

    def without(self, names: Packages) -> Packages:
        """Without the packages that `names` name, in whatever version."""
        kept = {}
        for manager in MANAGERS:
            gone = {name_of(manager, one) for one in names.of(manager)}
            kept[manager] = tuple(one for one in self.of(manager) if name_of(manager, one) not in gone)
        return Packages(**kept)

    def __str__(self) -> str:
        said = [f"{manager}: {', '.join(self.of(manager))}" for manager in MANAGERS if self.of(manager)]
        return "; ".join(said) or "nothing"


def _merged(manager: Manager, old: Sequence[str], new: Iterable[str]) -> tuple[str, ...]:
    by_name = {name_of(manager, one): one for one in old}
    for one in new:
        by_name[name_of(manager, one)] = one
    return tuple(by_name.values())


def requested(apt: object = (), npm: object = (), pip: object = ()) -> Packages:
    """What a request asks for, from JSON values.

    Raises:
        MalformedData: a list is none, a name is none, nothing is asked for, or too much at once.
    """
    lists = {}
    for manager, value in zip(MANAGERS, (apt, npm, pip), strict=True):
        if value is None:
            value = ()
        if not isinstance(value, list | tuple):
            raise MalformedData(f"{manager} must be a list of names, got {str(value)[:60]!r}")
        if len(value) > MOST_AT_ONCE:
            raise MalformedData(f"at most {MOST_AT_ONCE} packages in one request, got {len(value)}")
        lists[manager] = _merged(manager, (), [checked_name(manager, one) for one in value])
    found = Packages(**lists)
    if not found.count:
        raise MalformedData("name at least one package")
    if found.count > MOST_AT_ONCE:
        raise MalformedData(f"at most {MOST_AT_ONCE} packages in one request, got {found.count}")
    return found
