"""Which version of a package is installed, without importing it."""

from __future__ import annotations

__all__ = ["version_of"]


def version_of(distribution: str) -> str | None:
    """Its version, or None when it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
