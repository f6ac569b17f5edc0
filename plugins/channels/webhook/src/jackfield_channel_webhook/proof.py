"""Who sent this delivery, and which one is it: decided over the raw request, before anything is parsed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from ipaddress import ip_address
from urllib.parse import urlsplit

from jackfield.api import RawRequest
from jackfield.ids import new_id
from jackfield_channel_kit import verify
from jackfield_channel_kit.verify import Refused, ReplayWindow, Verifier

from jackfield_channel_webhook.settings import WebhookSettings

__all__ = ["Refused", "check_local", "delivery_id", "verifier"]

AHEAD = 300.0
"""Seconds that a signed time may lie in the future, however old it may be."""

_FORWARDED = ("forwarded", "via", "x-real-ip", "cf-connecting-ip")


def verifier(settings: WebhookSettings) -> Verifier | None:
    """The check that the settings ask for; None for `none`."""
    window = ReplayWindow(settings.tolerance, ahead=min(AHEAD, settings.tolerance))
    how = settings.hmac
    match settings.verify:
        case "standard":
            return partial(verify.standard_webhooks, window=window)
        case "github":
            return verify.github
        case "bearer":
            return verify.bearer
        case "hmac":
            return verify.hmac_signature(
                how.header,
                prefix=how.prefix,
                algorithm=how.algorithm,
                encoding=how.encoding,
                template=how.template,
                timestamp_header=how.timestamp_header,
                window=window,
            )
        case "timed":
            return verify.hmac_timed(how.header, scheme=how.scheme, window=window)
        case "none":
            return None


def check_local(request: RawRequest) -> None:
    """Let only a program on this machine through: no other host, nothing that a proxy forwards, no page in a browser.

    Raises:
        Refused: it may be something else.
    """
    headers = [(name.lower(), value) for name, value in request.headers]
    if not _is_loopback(request.peer):
        raise Refused("it does not come from this machine")
    if any(name.startswith("x-forwarded-") or name in _FORWARDED for name, _ in headers):
        raise Refused("a proxy forwards it")
    if any(name in ("origin", "referer") or name.startswith("sec-") for name, _ in headers):
        raise Refused("a page in a browser sends it")
    hosts = [value for name, value in headers if name == "host"]
    if len(hosts) != 1 or not _names_this_machine(hosts[0]):
        raise Refused("it calls this machine by another name")


def delivery_id(settings: WebhookSettings, request: RawRequest, mapped: str) -> str:
    """What makes the delivery this one, however often it comes (C220, C222).

    Where something is signed, only what is signed tells: a copy under another unsigned id is still a copy.
    """
    headers = {name.lower(): value.strip() for name, value in request.headers}
    if settings.verify == "standard":
        return mapped or headers["webhook-id"]
    if mapped:
        return mapped
    if settings.verify in ("bearer", "none"):
        # Who knows the token can say anything; two equal bodies are two messages unless the sender says otherwise.
        return headers.get("webhook-id") or headers.get("idempotency-key") or new_id("wh")
    signed: Sequence[str] = ()
    if settings.verify == "timed":
        signed = [part.strip() for part in headers[settings.hmac.header.lower()].split(",") if part.strip()[:2] == "t="]
    elif settings.hmac.timestamp_header is not None and settings.verify == "hmac":
        signed = (headers[settings.hmac.timestamp_header.lower()],)
    return "sha256-" + hashlib.sha256("\0".join(signed).encode() + b"\0" + request.body).hexdigest()[:40]


def _is_loopback(peer: str) -> bool:
    try:
        return ip_address(peer.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _names_this_machine(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return name == "localhost" or _is_loopback(name)
