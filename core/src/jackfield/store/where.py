"""The condition of a list that may be narrowed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

__all__ = ["where"]


def where(wanted: Mapping[str, object]) -> tuple[str, list[Any]]:
    """`WHERE ...` and its values from conditions like ``{"state = ?": state}``; one whose value is None is left out.

    A tuple is for as many marks as it has members, and left out when it has none; an enum stands for its value.
    Without any condition the text is empty.
    """
    terms, values = [], []
    for term, value in wanted.items():
        many = value if isinstance(value, tuple) else () if value is None else (value,)
        if many:
            terms.append(term)
            values += [one.value if isinstance(one, Enum) else one for one in many]
    return (f"WHERE {' AND '.join(terms)}" if terms else ""), values
