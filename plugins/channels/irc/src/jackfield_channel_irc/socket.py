"""The connection itself: TLS, lines in, bytes out."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

from jackfield.errors import AuthFailed, ConfigError, Transient

from jackfield_channel_irc.lines import Line, parse
from jackfield_channel_irc.settings import IrcSettings

__all__ = ["Socket"]

CONNECT_SECONDS = 20.0
LONGEST = 16_384
"""Bytes of a line with tags (8,191 and 512), and then some; of a longer one nothing is kept."""


class Socket:
    """An open connection; `close` it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, settings: IrcSettings) -> Socket:
        """Connect.

        Raises:
            AuthFailed: the server's certificate can't be trusted.
            ConfigError: a certificate file can't be read.
            Transient: nobody answers.
        """
        context = await asyncio.to_thread(_tls, settings) if settings.tls else None
        where = f"{settings.host}:{settings.port}"
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return cls(*await asyncio.open_connection(settings.host, settings.port, ssl=context))
        except ssl.SSLCertVerificationError as problem:
            raise AuthFailed(
                f"the certificate of {where} can't be trusted: {problem.verify_message}",
                fix="check `host`, or set `ca_file` to the authority that signed it",
            ) from None
        except ssl.SSLError as problem:
            raise Transient(f"no TLS with {where}: {problem.reason or problem}", fix="check `port` and `tls`") from None
        except TimeoutError:
            hint = ", or speaks no TLS there" if settings.tls else ""
            raise Transient(f"{where} does not answer{hint}", fix="check `host`, `port` and `tls`") from None
        except OSError as problem:
            raise Transient(f"can't connect to {where}: {problem.strerror or problem}") from None

    async def lines(self) -> AsyncIterator[Line]:
        """Each line until the server closes.

        Raises:
            Transient: the connection broke.
        """
        buffer = b""
        skipping = False
        while True:
            try:
                data = await self._reader.read(65_536)
            except (OSError, ssl.SSLError) as problem:
                raise Transient(f"the connection broke: {problem}") from None
            if not data:
                return
            *whole, buffer = (buffer + data).split(b"\n")
            for raw in whole:
                line = parse(raw) if not skipping and len(raw) <= LONGEST else None
                skipping = False
                if line is not None:
                    yield line
            if len(buffer) > LONGEST:
                buffer, skipping = b"", True

    def write(self, data: bytes) -> None:
        """Hand bytes to the system; whether they arrive, only an answer tells."""
        self._writer.write(data)

    async def drain(self) -> None:
        with contextlib.suppress(OSError):
            await self._writer.drain()

    async def close(self) -> None:
        """Close, within a second."""
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError, ssl.SSLError):
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()
        self._writer.transport.abort()


def _tls(settings: IrcSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if not settings.tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if settings.cert_file is not None:
            context.load_cert_chain(settings.cert_file)
    except (OSError, ssl.SSLError) as problem:
        which = " or ".join(repr(name) for name in (settings.ca_file, settings.cert_file) if name is not None)
        raise ConfigError(f"the certificates in {which} can't be used: {problem}") from None
    return context
