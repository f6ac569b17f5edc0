"""Signatures of webhooks: what the platforms' own libraries make is accepted, and whatever differs is refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from jackfield_channel_kit import verify
from jackfield_channel_kit.verify import Refused, ReplayWindow, Verifier

NOW = 1_800_000_000.0
SECRET = "a-secret-of-the-platform"
DISCORD = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
DISCORD_PUBLIC = DISCORD.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def mac(signed: bytes, algorithm: str = "sha256", key: str = SECRET) -> bytes:
    return hmac.new(key.encode(), signed, algorithm).digest()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@dataclass(frozen=True)
class Scheme:
    """How a platform signs at a moment, how to check it, and how old a signed time may be (None: it signs none)."""

    check: Verifier
    sign: Callable[[bytes, float], dict[str, str]]
    window: ReplayWindow | None = None
    secret: str = SECRET
    covers_body: bool = True


def sign_slack(body: bytes, at: float) -> dict[str, str]:
    stamp = str(int(at))
    return {
        "X-Slack-Request-Timestamp": stamp,
        "X-Slack-Signature": "v0=" + mac(b"v0:" + stamp.encode() + b":" + body).hex(),
    }


def sign_discord(body: bytes, at: float) -> dict[str, str]:
    stamp = str(int(at))
    return {"X-Signature-Timestamp": stamp, "X-Signature-Ed25519": DISCORD.sign(stamp.encode() + body).hex()}


def sign_feishu(body: bytes, at: float) -> dict[str, str]:
    stamp, nonce = str(int(at)), "n0nce"
    digest = hashlib.sha256((stamp + nonce + SECRET).encode() + body).hexdigest()
    return {"X-Lark-Request-Timestamp": stamp, "X-Lark-Request-Nonce": nonce, "X-Lark-Signature": digest}


def sign_dingtalk(body: bytes, at: float) -> dict[str, str]:
    stamp = str(int(at * 1000))
    return {"timestamp": stamp, "sign": b64(mac(f"{stamp}\n{SECRET}".encode()))}


def sign_timed(body: bytes, at: float) -> dict[str, str]:
    stamp = str(int(at))
    return {"X-Timed": f"t={stamp},v1={'0' * 64},v1={mac(stamp.encode() + b'.' + body).hex()}"}


def sign_described(body: bytes, at: float) -> dict[str, str]:
    stamp = str(int(at))
    return {"X-At": stamp, "X-Sig": "sig " + b64(mac(b"at " + stamp.encode() + b": " + body + b";", "sha512"))}


SCHEMES: dict[str, Scheme] = {
    "github": Scheme(verify.github, lambda body, at: {"X-Hub-Signature-256": "sha256=" + mac(body).hex()}),
    "meta": Scheme(verify.meta, lambda body, at: {"X-Hub-Signature-256": "sha256=" + mac(body).hex()}),
    "webex": Scheme(verify.webex, lambda body, at: {"X-Spark-Signature": mac(body, "sha1").hex()}),
    "line": Scheme(verify.line, lambda body, at: {"X-Line-Signature": b64(mac(body))}),
    "telegram": Scheme(
        verify.telegram_token, lambda body, at: {"X-Telegram-Bot-Api-Secret-Token": SECRET}, covers_body=False
    ),
    "bearer": Scheme(verify.bearer, lambda body, at: {"Authorization": f"Bearer {SECRET}"}, covers_body=False),
    "slack": Scheme(verify.slack, sign_slack, ReplayWindow(300)),
    "discord": Scheme(verify.discord, sign_discord, ReplayWindow(300), secret=DISCORD_PUBLIC),
    "feishu": Scheme(verify.feishu, sign_feishu, ReplayWindow(300)),
    "dingtalk": Scheme(verify.dingtalk, sign_dingtalk, ReplayWindow(3600), covers_body=False),
    "standard": Scheme(
        verify.standard_webhooks,
        lambda body, at: verify.sign_standard("msg_1", body, [SECRET], at),
        ReplayWindow(300),
    ),
    "timed": Scheme(verify.hmac_timed("X-Timed"), sign_timed, ReplayWindow(300)),
    "described": Scheme(
        verify.hmac_signature(
            "X-Sig",
            prefix="sig ",
            algorithm="sha512",
            encoding="base64",
            template="at {timestamp}: {body};",
            timestamp_header="X-At",
        ),
        sign_described,
        ReplayWindow(300),
    ),
}
NAMES = sorted(SCHEMES)
TIMED = [name for name in NAMES if SCHEMES[name].window is not None]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_platform_signed_is_accepted_in_the_form_of_its_documentation(name: str) -> None:
    """C224."""
    scheme = SCHEMES[name]
    headers = scheme.sign(b'{"a": "\xc3\xa9"}', NOW)
    scheme.check(headers, b'{"a": "\xc3\xa9"}', [scheme.secret], NOW)
    scheme.check([(key.lower(), value) for key, value in headers.items()], b'{"a": "\xc3\xa9"}', [scheme.secret], NOW)


@given(name=st.sampled_from(NAMES), body=st.binary(max_size=200), data=st.data())
@settings(max_examples=250, deadline=None)
def test_a_request_that_differs_anywhere_is_refused(name: str, body: bytes, data: st.DataObject) -> None:
    """C220, C224: any flipped byte of body or header, another secret, a missing or doubled header, a stale time."""
    scheme = SCHEMES[name]
    headers = scheme.sign(body, NOW)
    scheme.check(headers, body, [scheme.secret], NOW)
    secrets, now = [scheme.secret], NOW
    kinds = ["flip header", "drop header", "double header", "other secret", "empty secret", "no secret"]
    kinds += ["flip body", "longer body"] if scheme.covers_body else []
    kinds += ["stale", "future"] if scheme.window is not None else []
    match data.draw(st.sampled_from(kinds)):
        case "flip header":
            header = data.draw(st.sampled_from(sorted(headers)))
            at = data.draw(st.integers(0, len(headers[header]) - 1))
            old = headers[header][at]
            new = chr(ord(old) ^ data.draw(st.sampled_from([1, 2, 4, 8, 16])))
            changed = headers[header][:at] + new + headers[header][at + 1 :]
            if _same_meaning(name, headers[header], changed):
                return
            headers = {**headers, header: changed}
        case "drop header":
            dropped = data.draw(st.sampled_from(sorted(headers)))
            headers = {key: value for key, value in headers.items() if key != dropped}
        case "double header":
            doubled = [*headers.items(), data.draw(st.sampled_from(sorted(headers.items())))]
            with pytest.raises(Refused):
                scheme.check(doubled, body, secrets, now)
            return
        case "other secret":
            secrets = ["another secret", "00" * 32]
        case "empty secret":
            secrets = [""]
        case "no secret":
            secrets = []
        case "flip body":
            if not body:
                return
            at = data.draw(st.integers(0, len(body) - 1))
            body = body[:at] + bytes([body[at] ^ data.draw(st.integers(1, 255))]) + body[at + 1 :]
        case "longer body":
            body += data.draw(st.binary(min_size=1, max_size=5))
        case "stale":
            assert scheme.window is not None
            now += scheme.window.seconds + data.draw(st.floats(1, 1e6))
        case "future":
            assert scheme.window is not None
            now -= scheme.window.seconds + data.draw(st.floats(1, 1e6))
    with pytest.raises(Refused):
        scheme.check(headers, body, secrets, now)


def _same_meaning(name: str, old: str, new: str) -> bool:
    """One signature, two spellings: Ed25519's hex and the word Bearer have no case; `sign_timed`'s decoy may change."""
    if name == "timed":
        return old[:13] == new[:13] and old[-68:] == new[-68:]
    return name in ("discord", "bearer") and old.lower() == new.lower()


@pytest.mark.parametrize("name", NAMES)
def test_while_a_secret_is_replaced_the_old_and_the_new_one_are_accepted(name: str) -> None:
    scheme = SCHEMES[name]
    headers = scheme.sign(b"{}", NOW)
    other = "ff" * 32
    scheme.check(headers, b"{}", [scheme.secret, other], NOW)
    scheme.check(headers, b"{}", [other, scheme.secret], NOW)
    scheme.check(headers, b"{}", [other.encode(), scheme.secret.encode()], NOW)


@pytest.mark.parametrize("name", TIMED)
def test_a_captured_request_is_refused_once_its_time_is_over(name: str) -> None:
    """C220: replayed after 10 s, 4 min, 6 min and 2 days; from the future; without a time; with one that is none."""
    scheme = SCHEMES[name]
    assert scheme.window is not None
    headers = scheme.sign(b"{}", NOW)
    for age in (0.0, 10.0, 240.0, scheme.window.seconds):
        scheme.check(headers, b"{}", [scheme.secret], NOW + age)
    for age in (scheme.window.seconds + 60, 2 * 86_400.0, -scheme.window.seconds - 300):
        with pytest.raises(Refused, match="its time lies"):
            scheme.check(headers, b"{}", [scheme.secret], NOW + age)


def linear(body: bytes) -> dict[str, str]:
    return {"Linear-Signature": mac(body).hex()}


def test_linears_retries_are_accepted_hours_later_and_nothing_older_or_newer() -> None:
    """C222: it sends the same body and time again after 1 min, 1 h and 6 h."""
    body = json.dumps({"webhookTimestamp": int(NOW * 1000)}).encode()
    for age in (0, 60, 3600, 6 * 3600):
        verify.linear(linear(body), body, [SECRET], NOW + age)
    for age in (86_400, -120):
        with pytest.raises(Refused, match="its time lies"):
            verify.linear(linear(body), body, [SECRET], NOW + age)
    with pytest.raises(Refused, match="its time lies"):
        verify.linear(linear(body), body, [SECRET], NOW + 61, window=ReplayWindow(60))


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"webhookTimestamp": null}', b'{"webhookTimestamp": "NaN"}', b"[" * 9999]
)
def test_a_signed_body_of_linear_without_a_time_is_refused(body: bytes) -> None:
    """C220."""
    with pytest.raises(Refused, match=r"[tT]ime"):
        verify.linear(linear(body), body, [SECRET], NOW)


def test_an_unsigned_body_of_linear_is_not_parsed() -> None:
    with pytest.raises(Refused, match="signature is wrong"):
        verify.linear({"Linear-Signature": "00"}, b"not json", [SECRET], NOW)


def test_slacks_own_library_signs_what_is_accepted_here() -> None:
    """C224: for JSON and for forms, which are signed raw."""
    signature = pytest.importorskip("slack_sdk.signature")
    for body in (b'{"type": "event_callback"}', b"payload=%7B%22type%22%3A%22block_actions%22%7D"):
        made = signature.SignatureVerifier(SECRET).generate_signature(timestamp=str(int(NOW)), body=body)
        headers = {"X-Slack-Request-Timestamp": str(int(NOW)), "X-Slack-Signature": made}
        verify.slack(headers, body, [SECRET], NOW)
        with pytest.raises(Refused):
            verify.slack(headers, body + b" ", [SECRET], NOW)


def test_the_standards_own_library_agrees_in_both_directions() -> None:
    """C224: with padded and unpadded secrets, and when two secrets are valid."""
    library = pytest.importorskip("standardwebhooks")
    for secret in (
        "whsec_" + b64(b"0123456789abcdef012345678"),
        "whsec_" + b64(b"0123456789abcdef012345678").rstrip("="),
    ):
        stamp = datetime.now(UTC)
        body = '{"text": "hé"}'
        theirs = {
            "webhook-id": "msg_2",
            "webhook-timestamp": str(int(stamp.timestamp())),
            "webhook-signature": library.Webhook(secret).sign("msg_2", stamp, body),
        }
        verify.standard_webhooks(theirs, body.encode(), [secret], stamp.timestamp())
        ours = verify.sign_standard("msg_3", body.encode(), [b"another key", secret], stamp.timestamp())
        assert library.Webhook(secret).verify(body, ours) == {"text": "hé"}


def test_githubs_documented_example_is_accepted() -> None:
    """C224."""
    headers = {"X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}
    verify.github(headers, b"Hello, World!", ["It's a Secret to Everybody"], NOW)


@pytest.mark.parametrize("secret", ["whsec_", "whsec_%%%", "whsec_a"])
def test_a_secret_of_the_standard_that_is_no_base64_accepts_nothing(secret: str) -> None:
    headers = verify.sign_standard("msg_1", b"{}", [b""[:0] or b"x"], NOW)
    with pytest.raises(Refused, match="base64"):
        verify.standard_webhooks(headers, b"{}", [secret], NOW)


@pytest.mark.parametrize("message_id", ["", "a.b", "a b", "a\r\nx: y", "é"])
def test_an_id_that_would_blur_what_is_signed_is_not_signed(message_id: str) -> None:
    with pytest.raises(ValueError, match="no id"):
        verify.sign_standard(message_id, b"{}", [SECRET], NOW)


@pytest.mark.parametrize(
    ("template", "header"),
    [("{timestamp}", "X-At"), ("{body}{body}", None), ("{timestamp}{body}", None), ("{body}", "X-At")],
)
def test_a_description_that_signs_no_body_or_half_a_time_is_refused_at_once(template: str, header: str | None) -> None:
    with pytest.raises(ValueError, match="template"):
        verify.hmac_signature("X-Sig", template=template, timestamp_header=header)


@given(value=st.text(max_size=80), name=st.sampled_from(NAMES), data=st.data())
@settings(max_examples=200, deadline=None)
def test_no_header_that_anybody_invents_raises_anything_but_refused(value: str, name: str, data: st.DataObject) -> None:
    scheme = SCHEMES[name]
    headers = scheme.sign(b"{}", NOW)
    changed = data.draw(st.sampled_from(sorted(headers)))
    if value.strip() == headers[changed]:
        return
    with pytest.raises(Refused) as refusal:
        scheme.check({**headers, changed: value}, b"{}", [scheme.secret], NOW)
    assert SECRET not in str(refusal.value)
