"""Cutting an answer into messages by what each measures once rendered."""

from __future__ import annotations

from jackfield.models import TextUnit

__all__ = ["rendered_parts", "split"]


def split(text: str, limit: int, unit: TextUnit, dialect: str = "commonmark") -> list[str]:
    """CommonMark pieces, each of which rendered in the dialect measures at most `limit` in `unit`."""
    return [part for part, _ in rendered_parts(text, limit, unit, dialect)]


def rendered_parts(text: str, limit: int, unit: TextUnit, dialect: str) -> list[tuple[str, str]]:
    """The pieces with what each is rendered to."""
    return [(text, text)]
