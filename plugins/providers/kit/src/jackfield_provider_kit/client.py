"""The client of a model's own package: imported and made in a thread, when it is first wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from jackfield.errors import ProviderError

from jackfield_provider_kit.installed import quiet_http

__all__ = ["LazyClient"]


class _Closable(Protocol):
    def close(self) -> Awaitable[None]: ...


T = TypeVar("T", bound=_Closable)


class LazyClient(Generic[T]):
    """One client for the life of a session.  `make` imports its package, which takes a second or more."""

    def __init__(self, package: str, install: str, make: Callable[[], T]) -> None:
        self._package = package
        self._install = install
        self._make = make
        self._made: T | None = None
        self._loading = asyncio.Lock()

    async def get(self) -> T:
        """The client; made by whoever comes first, the others wait for it.

        Raises:
            ProviderError: the package can't be imported.
        """
        async with self._loading:
            if self._made is None:
                self._made = await asyncio.to_thread(self._load)
            return self._made

    async def close(self) -> None:
        """Close it, if it was ever made."""
        if self._made is not None:
            await self._made.close()

    def _load(self) -> T:
        try:
            made = self._make()
        except ImportError as problem:
            raise ProviderError(
                f"the {self._package} package can't be imported: {problem}",
                kind="engine_missing",
                scope="provider",
                fix=self._install,
            ) from problem
        quiet_http()
        return made
