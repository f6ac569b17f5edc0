"""One hook: deliveries come in at its route, answers go out to its URL."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from jackfield.api import Accepted, ChannelContext, Health, HttpRoute, RawRequest, RawResponse, SendResult
from jackfield.errors import AuthFailed, ConfigError, SendNotAllowed
from jackfield.models import (
    Address,
    Addressed,
    Capabilities,
    ChannelState,
    ChannelStatus,
    ConversationKind,
    MessageReceived,
    MessageRef,
    OutMessage,
    Person,
    Support,
    Threads,
    Trust,
)
from jackfield_channel_kit.guard import Guard
from jackfield_channel_kit.http import Http
from jackfield_channel_kit.selfguard import SelfGuard
from jackfield_channel_kit.verify import sign_standard

from jackfield_channel_webhook.posting import FILE_LIMIT, answer_of, encoded, payload, webhook_id
from jackfield_channel_webhook.proof import Refused, check_local, delivery_id, verifier
from jackfield_channel_webhook.reading import Reading, read
from jackfield_channel_webhook.rules import BadBody
from jackfield_channel_webhook.settings import WebhookSettings
from jackfield_channel_webhook.waiting import Waiting

__all__ = ["WebhookChannel"]

log = logging.getLogger(__name__)

TOLD_EVERY = 10.0
"""Seconds between two lines in the log about refused deliveries; strangers can't fill the disk."""


class WebhookChannel:
    """See `jackfield.api.Channel`."""

    def __init__(self, instance: str, settings: WebhookSettings) -> None:
        self._instance = instance
        self._settings = settings
        self._verify = verifier(settings)
        self._rules = settings.map.rules()
        self._waiting = Waiting()
        self._own = SelfGuard()
        self._context: ChannelContext | None = None
        self._secrets: tuple[str, ...] = ()
        self._signing: tuple[str, ...] = ()
        self._http: Http | None = None
        self._refused = 0
        self._told_at = -math.inf
        self._locked_out = False

    def __repr__(self) -> str:
        return f"<webhook {self._instance}>"

    # ---- life

    async def start(self, context: ChannelContext) -> None:
        """Read the secrets; there is nothing to connect to.

        Raises:
            ConfigError: a secret is not there.
        """
        self._secrets = await self._read(context, self._settings.secrets)
        sign = self._settings.sign
        self._signing = self._secrets if sign is None else await self._read(context, sign)
        url = self._settings.url
        if self._settings.url_secret is not None:
            (url,) = await self._read(context, (self._settings.url_secret,))
        if url is not None:
            self._http = Http(
                url,
                clock=context.clock,
                redact=(*self._signing, *(_secret_parts(url) if self._settings.url_secret else ())),
                guard=Guard(allow_private=self._settings.allow_private),
                max_bytes=1_048_576,
            )
        self._context = context  # from here on deliveries are taken

    async def stop(self) -> None:
        self._context = None
        self._waiting.leave()
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    async def check(self, context: ChannelContext) -> Health:
        """The settings are right, or there would be no channel; whether anybody calls, only time tells."""
        if self._settings.url is None and self._settings.url_secret is None:
            return Health(ok=True, detail="takes deliveries; without a url only ?wait= is answered")
        return Health(ok=True, detail="takes deliveries, and posts answers")

    def capabilities(self, address: Address | None = None) -> Capabilities:
        return Capabilities(
            tables=Support.NATIVE,
            threads=Threads.NATIVE,
            quote=Support.NATIVE,
            files=Support.NATIVE,
            file_max_bytes=FILE_LIMIT,
            file_max_count=10,
            idempotent_send=self._settings.idempotent,
            needs_public_url=True,
        )

    # ---- in

    def http_routes(self) -> Sequence[HttpRoute]:
        return [HttpRoute(path="/", methods=("POST",), handle=self._deliver, max_bytes=self._settings.max_bytes)]

    async def _deliver(self, request: RawRequest) -> RawResponse:
        context = self._context
        if context is None:
            return _answer(503, {"error": "not ready"}, ("retry-after", "5"))
        try:
            if self._verify is None:
                check_local(request)
            else:
                self._verify(request.headers, request.body, self._secrets, context.clock.now() / 1000)
        except Refused as problem:
            self._tell(context, problem.reason)
            return _answer(401, {"error": "refused"})
        wait = self._seconds(request.query)
        if wait is None:
            return _answer(400, {"error": f"wait is a number of seconds, at most {self._settings.wait_limit:g}"})
        try:
            reading = await asyncio.to_thread(read, request, self._rules)
        except BadBody as problem:
            return _answer(400, {"error": f"the body can't be taken: {problem}"})
        except ValueError as problem:
            # The sender can't mend it, but may try again once the operator has.
            log.error("hook %s: a delivery can't be mapped: %s", self._instance, problem)
            return _answer(500, {"error": "the hook's mapping failed"})
        message_id = delivery_id(self._settings, request, reading.id)
        if not reading.text.strip() or self._own.is_own(None, message_id):
            return _answer(202, {"id": message_id, "status": "ignored"})
        event = self._event(context, reading, message_id, own_thread=wait > 0)
        if not wait:
            return _accepted(message_id, await context.accept(event))
        with self._waiting.at(event.address) as coming:
            accepted = await context.accept(event)
            await asyncio.wait({coming}, timeout=wait)
            if coming.done() and not coming.cancelled():
                return _answer(200, {"id": message_id, "status": "answered", **coming.result()})
            return _accepted(message_id, accepted)

    def _event(
        self, context: ChannelContext, reading: Reading, message_id: str, *, own_thread: bool
    ) -> MessageReceived:
        thread = reading.thread or (message_id if own_thread else None)  # so that the answer is this one's
        address = Address("webhook", self._instance, reading.chat or self._instance, thread)
        return MessageReceived(
            address=address,
            dedupe_key=f"message:{message_id}",
            occurred_at=context.clock.now(),
            ref=MessageRef(address, (message_id,)),
            sender=Person(
                # Whoever may sign for one hook must not speak for the people of another (C141).
                handle=f"{reading.user}@{self._instance}" if reading.user else self._instance,
                display_name=reading.user_name or reading.user or self._instance,
                is_bot=reading.bot,
                trust=Trust.UNVERIFIED if self._verify is None else Trust.AUTHENTICATED,
            ),
            text=reading.text,
            kind=ConversationKind.DM,
            addressed=Addressed.DM,
        )

    def _seconds(self, query: str) -> float | None:
        """What `?wait=` asks for; 0 without it, None when that can't be."""
        try:
            asked = parse_qs(query, keep_blank_values=True, max_num_fields=20).get("wait", ["0"])
            seconds = float(asked[0]) if len(asked) == 1 else math.nan
        except ValueError:
            return None
        return seconds if 0 <= seconds <= self._settings.wait_limit else None

    def _tell(self, context: ChannelContext, reason: str) -> None:
        self._refused += 1
        now = context.clock.monotonic()
        if now - self._told_at >= TOLD_EVERY:
            log.warning("hook %s refused %d deliveries; the last: %s", self._instance, self._refused, reason)
            self._told_at, self._refused = now, 0

    # ---- out

    async def send(self, address: Address, message: OutMessage, *, idempotency_key: str) -> SendResult:
        """Give it to who waits on the line, else post it.

        Raises:
            SendNotAllowed: nobody waits, and the hook has no `url`.
            ChannelError: what the receiver's answer means; only 2xx is success.
        """
        message_id = webhook_id(idempotency_key)
        answer = await answer_of(address, message)
        if self._waiting.take(address, answer):
            return SendResult(ids=(message_id,))
        context, http = self._context, self._http
        if context is None or http is None:
            raise SendNotAllowed(
                f"the hook {self._instance} has no url, and nobody waits for an answer", fix="set `url`"
            )
        now = context.clock.now()
        body = encoded(payload(message_id, answer, now, maybe_duplicate=message.maybe_duplicate))
        headers = {"content-type": "application/json", "webhook-id": message_id}
        if self._signing:
            headers |= sign_standard(message_id, body, self._signing, now / 1000)
        self._own.sent(message_id)
        try:
            await http.request("POST", "", content=body, headers=headers, idempotent=self._settings.idempotent)
        except AuthFailed as problem:
            self._locked_out = True
            context.report(ChannelStatus(state=ChannelState.DEGRADED, detail=f"answers are refused: {problem}"))
            raise
        if self._locked_out:
            self._locked_out = False
            context.report(ChannelStatus(state=ChannelState.READY))
            context.wake(address)
        return SendResult(ids=(message_id,))

    # ----

    async def _read(self, context: ChannelContext, names: Sequence[str]) -> tuple[str, ...]:
        found: list[str] = []
        for name in names:
            value = await context.secret(name)
            if not value:
                raise ConfigError(
                    f"the secret {name!r} of hook {self._instance} is not set", fix="set it, then start the host again"
                )
            found.append(value)
        return tuple(found)


def _secret_parts(url: str) -> Sequence[str]:
    """What must not be shown of a URL that is a credential: all behind the host, as a whole and piece by piece."""
    parts = urlsplit(url)
    pieces = [piece for piece in (parts.path.strip("/"), parts.query, *parts.path.split("/")) if len(piece) > 3]
    return [url, *pieces]


def _accepted(message_id: str, accepted: Accepted) -> RawResponse:
    status = "duplicate" if accepted.duplicate else "accepted"
    return _answer(202, {"id": message_id, "event": accepted.event_id, "status": status})


def _answer(status: int, value: dict[str, Any], *headers: tuple[str, str]) -> RawResponse:
    return RawResponse(status=status, headers=(("content-type", "application/json"), *headers), body=encoded(value))
