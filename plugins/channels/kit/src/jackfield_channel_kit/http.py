"""Requests to a platform, with what went wrong as the core's `ChannelError`s (architecture 5, rule 5).

- Sends are never repeated here: the core decides by the error.  A request that may have arrived is `Ambiguous`.
- GET and HEAD are tried again a few times.
- Nothing that is in `redact` gets into an error, a log line or a repr (C133).
- Proxies of the environment (`HTTPS_PROXY`, `NO_PROXY`) are used, or the one that is given (C238).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from functools import cache
from json import dumps
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urljoin, urlsplit

from jackfield.clock import Clock, SystemClock
from jackfield.errors import Ambiguous, ChannelError, ConfigError, RateLimited, SendNotAllowed, Transient

from jackfield_channel_kit.guard import Guard, Pin, origin
from jackfield_channel_kit.limits import Buckets, Rate
from jackfield_channel_kit.responses import Response, by_status, retry_after
from jackfield_channel_kit.unpack import ACCEPTED, pieces

if TYPE_CHECKING:
    import ssl

    import httpx2

__all__ = ["Buckets", "Classify", "Http", "Rate", "Response", "by_status", "retry_after"]

Classify = Callable[[Response], ChannelError | None]
"""Looks at every answer, also at a 200; None leaves it to `by_status`.  Its messages are redacted like all others."""

CONNECT_SECONDS = 10.0
STALL_SECONDS = 60.0
"""How long the other side may stand still between two steps of an exchange."""
UPLOAD_SECONDS = 300.0
"""What a request with files may take at least."""
TRIES = 3
TRY_SECONDS = 20.0
"""How often, and for how long at most, a read is tried again."""
REDIRECTS = 5
ADDRESSES = 3
"""How many addresses of a guarded name are tried."""


class Http:
    """A client of one platform; `async with` or `close()` ends its connections.

    Args:
        base_url: what paths are appended to; it may hold a token, which then belongs in `redact`.
        headers: sent to the host of `base_url` only, never to another that an absolute URL names.
        classify: the platform's own way to say no.
        limits: how fast to send; requests with a `key` are counted.
        redact: secrets.  The token of an `Authorization` header is one without being named.
        timeout: seconds for one exchange from connecting to the last byte; with files at least `UPLOAD_SECONDS`.
        transport: an httpx2 transport instead of the network.
        proxy: the URL of a proxy, instead of the environment's.
        guard: lets requests reach only what it allows; for a base URL that somebody else than the operator may choose.
        max_bytes: the longest answer that is read.

    Raises:
        ConfigError: `base_url` is no http(s) URL, or carries a user or password.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        classify: Classify | None = None,
        limits: Buckets | None = None,
        redact: Sequence[str] = (),
        timeout: float = 30.0,
        clock: Clock | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
        proxy: str | None = None,
        guard: Guard | None = None,
        max_bytes: int = 16 * 1024 * 1024,
        random: Callable[[], float] = random.random,
    ) -> None:
        try:
            origin(base_url)
        except SendNotAllowed as problem:
            raise ConfigError(f"the address of a platform can't be used: {problem.message}") from None
        self._base = base_url.rstrip("/")
        self._headers = dict(headers or {})
        self._classify = classify
        self._limits = limits
        self._timeout = timeout
        self._clock = clock or SystemClock()
        self._transport = transport
        self._proxy = proxy
        self._guard = guard
        self._max_bytes = max_bytes
        self._random = random
        tokens = [v.split(None, 1)[-1] for k, v in self._headers.items() if k.lower() == "authorization" and v.strip()]
        secrets = {form for secret in (*redact, *tokens) if secret for form in _forms(secret)}
        self._secrets = sorted(secrets, key=len, reverse=True)
        self._clients: dict[bool, httpx2.AsyncClient] = {}

    def __repr__(self) -> str:
        return f"<Http {self.redacted(self._base)}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all connections; it can be used again afterwards."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    def redacted(self, text: str) -> str:
        """The text without the secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "[redacted]")
        return text

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        data: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        files: Any = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
        idempotent: bool = False,
        timeout: float | None = None,
    ) -> Response:
        """One request; the answer when it means success.

        `path` is below `base_url` (quote what comes from others), or an absolute http(s) URL, which gets none of the
        client's own headers when it is of another host.  `json`, `data` (a form), `content` (raw) and `files`
        (multipart, as httpx2 takes them) are the body.  `key` is the chat that the request counts for in `limits`;
        without it, it is not counted. `idempotent` says that doing it twice does no harm: then a lost answer is
        `Transient`.  GET and HEAD are always so.

        Raises:
            RateLimited, AuthFailed, SendNotAllowed, ChatNotFound, TooLarge, BadContent, Transient: see `by_status`.
            Transient: it never left: no connection, no name, no time.
            Ambiguous: it left, and no whole answer came.
        """
        method = method.upper()
        reads = method in ("GET", "HEAD")
        bodies = {"json": json, "data": data, "content": content, "files": files, "params": params, "headers": headers}
        seconds = timeout if timeout is not None else max(self._timeout, UPLOAD_SECONDS if files else 0.0)
        until = self._clock.monotonic() + TRY_SECONDS
        tried = 0
        while True:
            if key is not None and self._limits is not None:
                await self._limits.take(key, self._clock)
            try:
                return await self._exchange(method, path, bodies, idempotent or reads, seconds)
            except (Transient, RateLimited) as problem:
                if isinstance(problem, RateLimited) and key is not None and self._limits is not None:
                    self._limits.block(None if problem.scope == "account" else key, problem.retry_after, self._clock)
                tried += 1
                wait = 0.5 * 2**tried * (0.5 + self._random() / 2)
                if isinstance(problem, RateLimited):
                    wait = problem.retry_after
                if not reads or tried >= TRIES or self._clock.monotonic() + wait > until:
                    raise
            await self._clock.sleep(wait)

    async def _exchange(
        self, method: str, path: str, bodies: dict[str, Any], idempotent: bool, seconds: float
    ) -> Response:
        url = self._url(path)
        await self.prepare()
        for _ in range(REDIRECTS + 1):
            trace = Trace(left=self._transport is not None)
            with self.told(f"{method} {self._shown(url)}", trace, idempotent):
                async with (
                    asyncio.timeout(seconds),
                    self.opened(method, url, bodies, trace, self._guard, seconds=seconds) as answer,
                ):
                    response = await self._read(answer)
                if self._classify is not None and (said := self._classify(response)) is not None:
                    raise said
                if (target := redirect(url, response.status, response.headers)) is None:
                    if (said := by_status(response, now=self._clock.now() / 1000, idempotent=idempotent)) is not None:
                        raise said
                    return response
                if method not in ("GET", "HEAD") or origin(target) != origin(url):
                    raise SendNotAllowed(
                        f"it redirects to {origin(target)[1]}, where it is not followed",
                        fix="set the URL to that",
                    )
            url = target
            bodies = {**bodies, "params": None}
        raise SendNotAllowed(f"{method} {self._shown(url)}: more than {REDIRECTS} redirects")

    async def _read(self, answer: httpx2.Response) -> Response:
        body = bytearray()
        async with contextlib.aclosing(pieces(answer)) as parts:
            async for piece in parts:
                body += piece
                if len(body) > self._max_bytes:
                    raise _Unfinished(f"the answer has more than {self._max_bytes} bytes")
        return Response(answer.status_code, answered(answer), bytes(body))

    @contextlib.asynccontextmanager
    async def opened(
        self,
        method: str,
        url: str,
        bodies: Mapping[str, Any],
        trace: Trace,
        guard: Guard | None,
        *,
        seconds: float = STALL_SECONDS,
        own: bool = True,
    ) -> AsyncGenerator[httpx2.Response, None]:
        """One exchange up to the answer's headers, its body still to be read; no redirect is followed.

        For this package: what goes wrong comes as httpx2 raises it; put `told` around it.
        """
        import httpx2

        mine = self._headers if own and origin(url) == origin(self._base) else {}
        headers = {"user-agent": "jackfield", "accept-encoding": ACCEPTED}
        for given in (mine, bodies.get("headers") or {}):
            headers.update({name.lower(): value for name, value in given.items()})
        pins: Sequence[Pin] = (Pin(url),)
        if guard is not None:
            pins = (await guard.pins(url, proxied=self._proxy is not None or _proxied(url)))[:ADDRESSES]
        client = self._client(kept=guard is None)
        step = min(STALL_SECONDS, 0.9 * seconds)  # httpx2 notices first, for it cleans up better than a cancelled one
        timeout = httpx2.Timeout(step, connect=min(CONNECT_SECONDS, step))
        for number, pin in enumerate(pins, 1):
            extensions: dict[str, Any] = {"trace": trace.note}
            if pin.host is not None:
                headers = {**headers, "host": pin.host}
                extensions["sni_hostname"] = pin.tls_name
            request = client.build_request(
                method, pin.url, extensions=extensions, timeout=timeout, **{**bodies, "headers": headers}
            )
            try:
                answer = await client.send(request, stream=True, follow_redirects=False)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if number == len(pins):
                    raise
                continue
            try:
                yield answer
            finally:
                await answer.aclose()
            return

    @contextlib.contextmanager
    def told(self, what: str, trace: Trace, idempotent: bool) -> Generator[None, None, None]:
        """Turn what httpx2 raises inside into a `ChannelError`, and take the secrets out of every such error."""
        import httpx2

        try:
            yield
        except ChannelError as problem:
            problem.message = self.redacted(f"{what}: {problem.message}")
            problem.args = (problem.message,)
            raise
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, _Unfinished) as problem:
            raise _failure(problem, self.redacted(what), self.redacted(str(problem)), trace, idempotent) from None

    async def prepare(self) -> None:
        """Load what requests need, off the event loop; the first request does it otherwise."""
        await asyncio.to_thread(_tls)

    def _client(self, *, kept: bool) -> httpx2.AsyncClient:
        """The client whose connections are kept, or the one for checked addresses: a connection to an address must not
        serve another name that lives there too."""
        from http.cookiejar import CookieJar, DefaultCookiePolicy

        import httpx2

        if kept not in self._clients:
            self._clients[kept] = httpx2.AsyncClient(
                limits=httpx2.Limits(max_keepalive_connections=20 if kept else 0, keepalive_expiry=15.0),
                transport=self._transport,
                proxy=self._proxy,
                verify=_tls(),
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),  # none: one address may serve many names
            )
        return self._clients[kept]

    def _url(self, path: str) -> str:
        if path.startswith(("http://", "https://")):
            return path
        return f"{self._base}/{path.lstrip('/')}" if path else self._base

    def _shown(self, url: str) -> str:
        """A URL for people: without its query, and without the path when it is not ours, for it may be a credential."""
        scheme, host, _ = origin(url)
        ours = url == self._base or url.startswith((self._base + "/", self._base + "?"))
        return f"{scheme}://{host}{urlsplit(url).path if ours else '/…'}"


class Trace:
    """Whether a request may have left this machine.  `left` is what to assume when the transport doesn't tell."""

    def __init__(self, *, left: bool = False) -> None:
        self.left = left

    async def note(self, event: str, info: Mapping[str, Any]) -> None:
        """What httpcore2 calls at each step."""
        if event.endswith("send_request_headers.started") and info["request"].method != b"CONNECT":
            self.left = True


class _Unfinished(Exception):
    """The answer was not read to its end."""


def answered(answer: httpx2.Response) -> dict[str, str]:
    """The headers of an answer, names in lower case; values of one name are joined."""
    return {name.lower(): answer.headers[name] for name in answer.headers}


def redirect(url: str, status: int, headers: Mapping[str, str]) -> str | None:
    """Where an answer sends us, if it does.

    Raises:
        SendNotAllowed: to something that is no http(s) URL.
    """
    location = headers.get("location")
    if status not in (301, 302, 303, 307, 308) or not location:
        return None
    try:
        target = urljoin(url, location)
    except ValueError:
        raise SendNotAllowed("it redirects to something that is no URL") from None
    origin(target)
    return target


def _failure(problem: Exception, what: str, said: str, trace: Trace, idempotent: bool) -> ChannelError:
    import httpx2

    reason = f"{what}: {said or type(problem).__name__}"
    if isinstance(problem, (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.LocalProtocolError)):
        return SendNotAllowed(reason)
    never_left = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
    if idempotent or not trace.left or isinstance(problem, never_left):
        return Transient(reason)
    return Ambiguous(reason)


@cache
def _tls() -> ssl.SSLContext:
    """Import httpx2 and read the certificate authorities: too slow for the event loop, and once is enough."""
    import httpx2

    for name in ("httpx2", "httpcore2"):  # they log URLs and headers
        logging.getLogger(name).setLevel(logging.WARNING)
    return httpx2.create_ssl_context()


def _forms(secret: str) -> tuple[str, ...]:
    """How a secret may look where it is quoted: as it is, in a URL, in JSON, in base64."""
    return secret, quote(secret), quote(secret, ""), dumps(secret)[1:-1], b64encode(secret.encode()).decode()


def _proxied(url: str) -> bool:
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxies = getproxies()
    return (parts.scheme in proxies or "all" in proxies) and not proxy_bypass(parts.hostname or "")
