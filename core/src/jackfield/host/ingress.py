"""The host's one HTTP server: what channels serve, mounted at `/channels/<instance>/<path>`.

Channels bind no port (channels.md R11); they give routes, and the first one that does has the server started.  This is
the part that knows which routes there are; `jackfield.host.ingress_server` is the one that speaks HTTP, and the only
module that imports a web server.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jackfield.api import HttpRoute
from jackfield.config import IngressSettings
from jackfield.errors import ConfigError, NotFound
from jackfield.host.hub import Hub

if TYPE_CHECKING:
    from jackfield.host.ingress_server import IngressServer

__all__ = ["Ingress", "mount_points"]

log = logging.getLogger(__name__)

_SERVER = "jackfield.host.ingress_server"


def mount_points(instance: str, routes: Iterable[HttpRoute]) -> dict[str, HttpRoute]:
    """Each route by its path as it stands in a request, quoted; `/` and an empty path are the instance's own.

    Raises:
        ConfigError: a path is given twice, or has a part that a proxy or browser would resolve (`.`, `..`, empty).
    """
    found: dict[str, HttpRoute] = {}
    for route in routes:
        path = _path_of(instance, route.path)
        if path in found:
            raise ConfigError(f"channel {instance}: the path {route.path!r} has two routes")
        found[path] = route
    return found


def _path_of(instance: str, path: str) -> str:
    """The whole path of a route, below the server's prefix.

    Raises:
        ConfigError: a part of it is empty or a dot name.
    """
    parts = path.strip("/").split("/") if path.strip("/") else []
    if any(part in ("", ".", "..") for part in parts):
        raise ConfigError(f"channel {instance}: {path!r} is no path for a route")
    return "/".join(("/channels", instance, *(quote(part, safe="") for part in parts)))


class Ingress:
    """The server, while there is one, and the table of routes that it serves."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._mounted: dict[str, dict[str, HttpRoute]] = {}
        self._table: dict[str, HttpRoute] = {}
        self._server: IngressServer | None = None
        self._settings: IngressSettings | None = None
        self._changing = asyncio.Lock()

    @property
    def routes(self) -> Mapping[str, HttpRoute]:
        """What is served now, by path below the prefix; always the same object, which changes."""
        return self._table

    @property
    def url(self) -> str | None:
        """What the outside calls, without a slash at the end; None while nothing is served."""
        if self._server is None or self._settings is None:
            return None
        return (self._settings.public_url or self._server.address + self._settings.path_prefix).rstrip("/")

    def route_url(self, instance: str, path: str) -> str | None:
        """What the outside calls to reach a route."""
        return None if self.url is None else self.url + _path_of(instance, path)

    @property
    def outdated(self) -> bool:
        """Whether the server runs, or could not, with other settings than the configuration has by now."""
        return self._settings is not None and self._settings != self._hub.configuration.ingress

    async def open(self) -> None:
        """Start the server, unless it runs.

        Raises:
            NotFound: the extra `ingress` isn't installed.
            Conflict: it can't listen there.
        """
        async with self._changing:
            if self._server is not None:
                return
            settings = self._settings = self._hub.configuration.ingress
            try:
                module = await asyncio.to_thread(importlib.import_module, _SERVER)
            except ImportError as problem:
                raise NotFound(
                    f"the packages of the HTTP server are not installed ({problem.name or problem} is missing)",
                    fix="pip install 'jackfield[ingress]'",
                ) from problem
            server: IngressServer = module.IngressServer(settings, self.routes, self._hub.trouble)
            await server.open()
            self._server = server
            log.info("the ingress listens on %s", server.address)

    def mount(self, instance: str, points: Mapping[str, HttpRoute]) -> None:
        """Serve these routes from now on, in place of the instance's earlier ones."""
        self.unmount(instance)
        self._mounted[instance] = dict(points)
        self._table.update(points)

    def unmount(self, instance: str) -> bool:
        """Serve the instance's routes no more; whether it had any."""
        points = self._mounted.pop(instance, {})
        for path in points:
            self._table.pop(path, None)
        return bool(points)

    async def close(self) -> None:
        """Stop the server: no new connections, requests under way get a moment to end."""
        async with self._changing:
            server, self._server, self._settings = self._server, None, None
            if server is not None:
                await server.close()

    async def close_if_unused(self) -> None:
        if not self._table:
            await self.close()

    def report(self) -> dict[str, Any] | None:
        """For `jackfield status`; None while nothing is served."""
        if self._server is None:
            return None
        return {"address": self._server.address, "url": self.url, "routes": sorted(self._table)}
