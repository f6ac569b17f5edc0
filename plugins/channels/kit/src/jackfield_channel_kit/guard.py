"""Which addresses a request that others named may reach: public ones, by the address that was checked.

A name is resolved once, every address that it has is looked at, and the connection is made to one of those: a name that
answers differently the second time (DNS rebinding) gains nothing.  Each redirect goes through it anew.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from jackfield.errors import SendNotAllowed, Transient

__all__ = ["Guard", "Pin", "Resolve", "is_public", "origin"]

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""`resolve(host, port)`: its addresses as text, best first; OSError when it has none."""

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Pin:
    """One checked way to a URL: `url` names the address, `host` and `tls_name` whom it is for (None: as in the URL)."""

    url: str
    host: str | None = None
    tls_name: str | None = None


class Guard:
    """Resolves and checks; with `allow_private` it only resolves.  `resolve` replaces the machine's own resolver."""

    def __init__(self, *, allow_private: bool = False, resolve: Resolve | None = None) -> None:
        self._allow_private = allow_private
        self._resolve = resolve or _resolve

    async def pins(self, url: str, *, proxied: bool = False) -> Sequence[Pin]:
        """The ways to a URL, best first, never none.

        Behind a proxy (`proxied`) it is the proxy that resolves: the URL stays as it is, and is refused when this
        machine knows that it leads to a private address.

        Raises:
            SendNotAllowed: not http(s), with a user or password in it, or at an address that is not public.
            Transient: the name has no address at the moment.
        """
        parts, host, port = _place(url)
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError):
            addresses = ()
        if not self._allow_private and not all(is_public(address) for address in addresses):
            raise SendNotAllowed(f"{host} is not at a public address", fix="allow private addresses in the settings")
        if proxied:
            return (Pin(url),)
        if not addresses:
            raise Transient(f"the name {host} has no address")
        shown = f"[{host}]" if ":" in host else host
        netloc = shown if parts.port is None else f"{shown}:{parts.port}"
        return [Pin(_at(parts, address), netloc, host) for address in addresses]


def is_public(address: str) -> bool:
    """Whether an IP address is one that anybody on the Internet can reach.

    Not: loopback, private, shared, link-local, multicast, reserved, unspecified; nor an IPv6 form around such an IPv4
    address (mapped, NAT64, 6to4, Teredo).
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo and found.teredo[1])
        if inner is None and found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return found.is_global and not found.is_multicast


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port: what credentials belong to.

    Raises:
        SendNotAllowed: no URL that may be asked for.
    """
    parts, host, port = _place(url)
    return parts.scheme, host, port


def _place(url: str) -> tuple[SplitResult, str, int]:
    try:
        parts = urlsplit(url)
        port = parts.port
        name = parts.hostname or ""
        host = name if name.isascii() else name.encode("idna").decode()
    except ValueError:
        raise SendNotAllowed("what should be a URL is none") from None
    if parts.scheme not in ("http", "https") or not host:
        raise SendNotAllowed(f"only http and https URLs are fetched, not {parts.scheme or 'one without a scheme'!r}")
    if "@" in parts.netloc:
        raise SendNotAllowed(f"a URL of {host} carries a user or password")
    return parts, host, port or (443 if parts.scheme == "https" else 80)


def _at(parts: SplitResult, address: str) -> str:
    shown = f"[{address.partition('%')[0]}]" if ":" in address else address
    return parts._replace(netloc=shown if parts.port is None else f"{shown}:{parts.port}").geturl()


async def _resolve(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))
