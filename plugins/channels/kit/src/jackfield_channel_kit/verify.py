"""Who sent this webhook: signatures of platforms over the raw body, before anything is parsed (spec/channels.md 4.3).

Every check is a function `(headers, body, secrets, now) -> None` that raises `Refused`:

- `headers` is a mapping or pairs (`RawRequest.headers` fits); names are compared without case.  A header that a check
  reads must be there once.
- `body` is what came over the wire, byte for byte.
- `secrets` are all that are valid at the moment: while one is replaced by the next, both.  Any of them may match.
- `now` is seconds since 1970, UTC (`clock.now() / 1000`); it is used by schemes that sign a time.

Comparisons take the same time wherever the difference lies.  Schemes without a time (github, line, webex, telegram)
and late repeats inside a window are the core's to drop: it knows every `dedupe_key` of the last seven days (C220).

The schemes that sign a time take `window=` for other bounds; bind it with `functools.partial`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from jackfield.errors import VerificationFailed

__all__ = [
    "Algorithm",
    "Encoding",
    "Headers",
    "Refused",
    "ReplayWindow",
    "Verifier",
    "bearer",
    "dingtalk",
    "discord",
    "feishu",
    "github",
    "hmac_hex",
    "hmac_signature",
    "hmac_timed",
    "line",
    "linear",
    "meta",
    "sign_standard",
    "slack",
    "standard_webhooks",
    "telegram_token",
    "webex",
]

Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]
Secrets: TypeAlias = Sequence[str | bytes]
Verifier: TypeAlias = Callable[[Headers, bytes, Secrets, float], None]
Algorithm = Literal["sha1", "sha256", "sha512"]
Encoding = Literal["hex", "base64"]


class Refused(VerificationFailed):
    """The request is not from whom it claims; answer 401 and forget it.  `reason` holds no secret and no signature."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"webhook refused: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ReplayWindow:
    """How far a signed time may lie from now: `seconds` in the past, `ahead` (by default as much) in the future.

    A platform that repeats a failed delivery with its first time needs a window as long as its retries (C222); what was
    handled once is then dropped by its `dedupe_key`.
    """

    seconds: float
    ahead: float | None = None

    def check(self, signed_at: float, now: float) -> None:
        """Both in seconds since 1970.

        Raises:
            Refused: too old, or from the future.
        """
        if not now - self.seconds <= signed_at <= now + (self.seconds if self.ahead is None else self.ahead):
            raise Refused(f"its time lies {abs(now - signed_at):.0f} s {'before' if signed_at < now else 'after'} now")


FIVE_MINUTES = ReplayWindow(300)
LINEAR_RETRIES = ReplayWindow(7 * 3600, ahead=60)
"""Linear tries again after 1 min, 1 h and 6 h, with the time of the first try."""
DINGTALK_HOUR = ReplayWindow(3600)


def hmac_hex(header: str, prefix: str = "", algorithm: Algorithm = "sha256") -> Verifier:
    """A check of `header: <prefix><hex of HMAC(secret, body)>`."""
    return hmac_signature(header, prefix=prefix, algorithm=algorithm)


def hmac_signature(
    header: str,
    *,
    prefix: str = "",
    algorithm: Algorithm = "sha256",
    encoding: Encoding = "hex",
    template: str = "{body}",
    timestamp_header: str | None = None,
    window: ReplayWindow = FIVE_MINUTES,
) -> Verifier:
    """A check of an HMAC that a webhook's owner describes in settings (C224).

    `template` is what was signed: text in which `{timestamp}` and `{body}` stand for that header's value and the raw
    body, like ``v0:{timestamp}:{body}``.

    Raises:
        ValueError: the template lacks `{body}`, or `{timestamp}` and `timestamp_header` don't go together.
    """
    if template.count("{body}") != 1 or ("{timestamp}" in template) != (timestamp_header is not None):
        raise ValueError(
            f"the template {template!r} needs {{body}} once, and {{timestamp}} with a timestamp header only"
        )

    def check(headers: Headers, body: bytes, secrets: Secrets, now: float) -> None:
        stamp = "" if timestamp_header is None else _header(headers, timestamp_header)
        before, after = (part.replace("{timestamp}", stamp).encode() for part in template.split("{body}"))
        given = _unprefixed(_header(headers, header), prefix)
        _match((given,), (_mac(key, before + body + after, algorithm, encoding) for key in _keys(secrets)))
        if timestamp_header is not None:
            window.check(_seconds(stamp), now)

    return check


def hmac_timed(header: str, *, scheme: str = "v1", window: ReplayWindow = FIVE_MINUTES) -> Verifier:
    """A check of `header: t=<seconds>,v1=<hex>,v1=<hex>` over ``<t>.<body>`` with SHA-256; any of the signatures may
    match."""

    def check(headers: Headers, body: bytes, secrets: Secrets, now: float) -> None:
        pairs = [part.strip().partition("=") for part in _header(headers, header).split(",")]
        stamps = [value for name, _, value in pairs if name == "t"]
        if len(stamps) != 1:
            raise Refused(f"{header} holds {len(stamps)} times")
        signed = stamps[0].encode() + b"." + body
        given = [value for name, _, value in pairs if name == scheme]
        _match(given, (_mac(key, signed, "sha256", "hex") for key in _keys(secrets)))
        window.check(_seconds(stamps[0]), now)

    return check


github = hmac_hex("X-Hub-Signature-256", "sha256=")
"""GitHub.  Secrets: the webhook's.  Tell repeats by `X-GitHub-Delivery`."""
meta = hmac_hex("X-Hub-Signature-256", "sha256=")
"""WhatsApp Cloud and other Meta products.  Secrets: the app secret."""
webex = hmac_hex("X-Spark-Signature", algorithm="sha1")
"""Webex.  Secrets: the webhook's own."""
line = hmac_signature("X-Line-Signature", encoding="base64")
"""LINE.  Secrets: the channel secret.  Tell repeats by `webhookEventId`."""


def slack(headers: Headers, body: bytes, secrets: Secrets, now: float, *, window: ReplayWindow = FIVE_MINUTES) -> None:
    """Slack, for JSON and for forms.  Secrets: the signing secret.

    Raises:
        Refused: wrong, stale, from the future, or incomplete.
    """
    stamp = _header(headers, "X-Slack-Request-Timestamp")
    signed = b"v0:" + stamp.encode() + b":" + body
    given = _unprefixed(_header(headers, "X-Slack-Signature"), "v0=")
    _match((given,), (_mac(key, signed, "sha256", "hex") for key in _keys(secrets)))
    window.check(_seconds(stamp), now)


def linear(
    headers: Headers, body: bytes, secrets: Secrets, now: float, *, window: ReplayWindow = LINEAR_RETRIES
) -> None:
    """Linear; its time (`webhookTimestamp`, ms) lies in the body and is read only when the signature is right.

    Raises:
        Refused: wrong, stale, from the future, or without a time.
    """
    given = _header(headers, "Linear-Signature")
    _match((given,), (_mac(key, body, "sha256", "hex") for key in _keys(secrets)))
    try:
        stamp = json.loads(body)["webhookTimestamp"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Refused("the body holds no webhookTimestamp") from None
    window.check(_seconds(str(stamp)) / 1000, now)


def telegram_token(headers: Headers, body: bytes, secrets: Secrets, now: float) -> None:
    """Telegram's webhook: the shared token itself, no signature.  Tell repeats by `update_id`.

    Raises:
        Refused: another token.
    """
    del body, now
    _match((_header(headers, "X-Telegram-Bot-Api-Secret-Token"),), _keys(secrets))


def bearer(headers: Headers, body: bytes, secrets: Secrets, now: float) -> None:
    """`Authorization: Bearer <secret>`.

    Raises:
        Refused: another token.
    """
    del body, now
    kind, _, token = _header(headers, "Authorization").partition(" ")
    if kind.lower() != "bearer":
        raise Refused("Authorization is no bearer token")
    _match((token.strip(),), _keys(secrets))


def standard_webhooks(
    headers: Headers, body: bytes, secrets: Secrets, now: float, *, window: ReplayWindow = FIVE_MINUTES
) -> None:
    """Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature: v1,<base64> v1,<base64>`.

    A secret with `whsec_` is base64 after it, as the standard has it; bytes are the key itself.

    Raises:
        Refused: wrong, stale, from the future, or incomplete.
    """
    message_id, stamp = _header(headers, "webhook-id"), _header(headers, "webhook-timestamp")
    signed = _standard_content(message_id, stamp, body)
    given = [
        value
        for kind, _, value in (one.partition(",") for one in _header(headers, "webhook-signature").split())
        if kind == "v1"
    ]
    _match(given, (_mac(key, signed, "sha256", "base64") for key in _standard_keys(secrets)))
    window.check(_seconds(stamp), now)


def sign_standard(message_id: str, body: bytes, secrets: Secrets, now: float) -> dict[str, str]:
    """The three headers of a Standard Webhooks request of ours; each secret signs, so that receivers can change theirs.

    Raises:
        ValueError: the id holds a dot, a space or nothing, which the standard forbids.
    """
    if not message_id or not message_id.isascii() or any(mark in message_id for mark in ". \t\r\n"):
        raise ValueError(f"no id of a webhook message: {message_id!r}")
    stamp = str(int(now))
    signed = _standard_content(message_id, stamp, body)
    signatures = " ".join("v1," + _mac(key, signed, "sha256", "base64") for key in _standard_keys(secrets))
    return {"webhook-id": message_id, "webhook-timestamp": stamp, "webhook-signature": signatures}


def discord(
    headers: Headers, body: bytes, secrets: Secrets, now: float, *, window: ReplayWindow = FIVE_MINUTES
) -> None:
    """Discord's interactions.  Secrets: the application's public key in hex.

    Raises:
        Refused: wrong, stale, from the future, or incomplete.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    stamp = _header(headers, "X-Signature-Timestamp")
    given = _unhex(_header(headers, "X-Signature-Ed25519"), "X-Signature-Ed25519")
    for key in _keys(secrets):
        try:
            Ed25519PublicKey.from_public_bytes(_unhex(key.decode("latin-1"), "the public key")).verify(
                given, stamp.encode() + body
            )
        except (InvalidSignature, ValueError):
            continue
        window.check(_seconds(stamp), now)
        return
    raise Refused("its signature is wrong")


def feishu(headers: Headers, body: bytes, secrets: Secrets, now: float, *, window: ReplayWindow = FIVE_MINUTES) -> None:
    """Feishu and Lark: SHA-256 over time, nonce, encrypt key and (still encrypted) body.  Secrets: the encrypt key.

    Raises:
        Refused: wrong, stale, from the future, or incomplete.
    """
    stamp, nonce = _header(headers, "X-Lark-Request-Timestamp"), _header(headers, "X-Lark-Request-Nonce")
    start = (stamp + nonce).encode()
    given = _header(headers, "X-Lark-Signature")
    _match((given,), (hashlib.sha256(start + key + body).hexdigest() for key in _keys(secrets)))
    window.check(_seconds(stamp), now)


def dingtalk(
    headers: Headers, body: bytes, secrets: Secrets, now: float, *, window: ReplayWindow = DINGTALK_HOUR
) -> None:
    """DingTalk: the app secret signs the time (ms) only.  The body is not covered: trust it as far as TLS goes.

    Raises:
        Refused: wrong, stale, from the future, or incomplete.
    """
    del body
    stamp = _header(headers, "timestamp")
    given = _header(headers, "sign")
    _match((given,), (_mac(key, stamp.encode() + b"\n" + key, "sha256", "base64") for key in _keys(secrets)))
    window.check(_seconds(stamp) / 1000, now)


def _header(headers: Headers, name: str) -> str:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found = [value for key, value in pairs if key.lower() == name.lower()]
    if len(found) != 1:
        raise Refused(f"the header {name} is {'missing' if not found else 'there more than once'}")
    if not found[0].isascii():
        raise Refused(f"the header {name} holds more than ASCII")
    return found[0].strip()


def _unprefixed(value: str, prefix: str) -> str:
    if not value.startswith(prefix):
        raise Refused(f"its signature does not begin with {prefix!r}")
    return value[len(prefix) :]


def _keys(secrets: Secrets) -> list[bytes]:
    keys = [secret.encode() if isinstance(secret, str) else secret for secret in secrets]
    if not keys or not all(keys):
        raise Refused("no secret is set to check it with")
    return keys


def _standard_keys(secrets: Secrets) -> list[bytes]:
    return [_standard_key(key) for key in _keys(secrets)]


def _standard_key(key: bytes) -> bytes:
    prefix = b"whsec_"
    if not key.startswith(prefix):
        return key
    packed = key[len(prefix) :]
    try:
        if found := base64.b64decode(packed + b"=" * (-len(packed) % 4), validate=True):
            return found
    except binascii.Error:
        pass
    raise Refused("a secret that begins with whsec_ is no base64 after it")


def _standard_content(message_id: str, stamp: str, body: bytes) -> bytes:
    return f"{message_id}.{stamp}.".encode() + body


def _mac(key: bytes, signed: bytes, algorithm: Algorithm, encoding: Encoding) -> str:
    digest = hmac.new(key, signed, algorithm).digest()
    return digest.hex() if encoding == "hex" else base64.b64encode(digest).decode()


def _match(given: Iterable[str], expected: Iterable[str | bytes]) -> None:
    """Compare all with all, so that the time tells nothing about which of them is near."""
    right = False
    presented = [one.encode() for one in given]
    for wanted in expected:
        for one in presented:
            right |= hmac.compare_digest(one, wanted.encode() if isinstance(wanted, str) else wanted)
    if not right:
        raise Refused("its signature is wrong")


def _unhex(value: str, what: str) -> bytes:
    try:
        return bytes.fromhex(value)
    except ValueError:
        raise Refused(f"{what} is no hex") from None


def _seconds(text: str) -> float:
    try:
        value = float(text) if text.isascii() else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Refused("its time is no number")
    return value
