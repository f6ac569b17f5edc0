"""What concerns packages of others: their versions, without importing them, and their talk."""

from __future__ import annotations

from jackfield.api import Probe

__all__ = ["probe_of", "quiet_http", "version_of"]


def version_of(distribution: str) -> str | None:
    """Its version, or None when it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def probe_of(package: str, install: str, detail: str) -> Probe:
    """Whether a provider's package is installed; it is not imported for that."""
    version = version_of(package)
    if version is None:
        return Probe(ok=False, engine=package, detail=f"the {package} package is not installed", fix=install)
    return Probe(ok=True, engine=package, version=version, detail=detail)


def quiet_http() -> None:
    """HTTP clients write a line into the log for each request; only what goes wrong is of interest."""
    import logging

    for name in ("httpx", "httpx2", "httpcore", "httpcore2"):
        logging.getLogger(name).setLevel(logging.WARNING)
