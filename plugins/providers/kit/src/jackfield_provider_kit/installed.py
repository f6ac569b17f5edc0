"""What concerns packages of others: their versions, without importing them, and their talk."""

from __future__ import annotations

__all__ = ["quiet_http", "version_of"]


def version_of(distribution: str) -> str | None:
    """Its version, or None when it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def quiet_http() -> None:
    """HTTP clients write a line into the log for each request; only what goes wrong is of interest."""
    import logging

    for name in ("httpx", "httpx2", "httpcore", "httpcore2"):
        logging.getLogger(name).setLevel(logging.WARNING)
