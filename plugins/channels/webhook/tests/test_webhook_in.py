"""What a hook takes: proofs, repeats, bodies, mappings (C161, C219, C220, C222, C224)."""

from __future__ import annotations

import base64
import hmac
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from jackfield.api import RawRequest
from jackfield.clock import UnixMs
from jackfield.errors import ConfigError, JackfieldError
from jackfield.host.ingress import Ingress, mount_points
from jackfield.models import Address, MessageReceived, OutMessage, Trust
from jackfield.testing import ChannelMemory, ChannelRecorder
from jackfield_channel_kit.verify import sign_standard
from jackfield_channel_webhook.channel import WebhookChannel
from jackfield_channel_webhook.settings import WebhookSettings
from pydantic import ValidationError
from stand import ask, ingress, request_bytes

OLD, NEW = "whsec_" + base64.b64encode(b"o" * 24).decode(), "whsec_" + base64.b64encode(b"n" * 24).decode()
SECRETS = {"old": OLD, "new": NEW, "plain": "it's a secret", "token": "t0ken"}
NOW = 1_760_000_000
DAY = 86_400.0


class StoppedClock:
    """Stands at NOW until it is moved."""

    def __init__(self) -> None:
        self.seconds = float(NOW)

    def now(self) -> UnixMs:
        return UnixMs(round(self.seconds * 1000))

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("a hook does not wait")


class Hook:
    """A started hook behind a real server."""

    def __init__(self, door: Ingress, channel: WebhookChannel, context: ChannelRecorder, clock: StoppedClock) -> None:
        self.door, self.channel, self.context, self.clock = door, channel, context, clock

    async def call(
        self,
        body: bytes | dict[str, Any],
        headers: dict[str, str] | None = None,
        *,
        query: str = "",
        host: str = "127.0.0.1",
    ) -> tuple[int, dict[str, Any]]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        report = self.door.report()
        assert report is not None
        return await ask(
            report["address"], request_bytes(f"/channels/{self.context.instance}{query}", raw, headers or {}, host)
        )

    async def signed(
        self, body: bytes | dict[str, Any], *, id: str = "msg_1", at: float = NOW, secret: str = OLD, query: str = ""
    ) -> tuple[int, dict[str, Any]]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.call(raw, sign_standard(id, raw, [secret], at), query=query)

    @property
    def events(self) -> list[MessageReceived]:
        return [one for one in self.context.events if isinstance(one, MessageReceived)]

    @property
    def texts(self) -> list[str]:
        return [one.text for one in self.events]


Make = Callable[..., Awaitable[Hook]]


@asynccontextmanager
async def opened(tmp_path: Path, name: str = "hook", **settings: Any) -> AsyncIterator[Hook]:
    settings = {"secrets": ["old"], **settings}
    door = ingress()
    await door.open()
    clock = StoppedClock()
    channel = WebhookChannel(name, WebhookSettings.model_validate(settings))
    context = ChannelRecorder("webhook", name, tmp_path, secrets=SECRETS, memory=ChannelMemory(), clock=clock)
    door.mount(name, mount_points(name, channel.http_routes()))
    try:
        await channel.start(context)
        yield Hook(door, channel, context, clock)
    finally:
        await channel.stop()
        await context.close()
        await door.close()


# ---- proofs


async def test_a_signed_delivery_is_stored_and_answered_with_its_id(tmp_path: Path) -> None:
    async with opened(tmp_path) as hook:
        assert await hook.signed({"text": "disk full"}) == (202, {"id": "msg_1", "event": "ev_1", "status": "accepted"})
        (event,) = hook.events
        assert event.text == "disk full" and event.address == Address("webhook", "hook", "hook")
        assert event.sender.trust is Trust.AUTHENTICATED and event.ref.ids == ("msg_1",)


async def test_the_official_library_s_signature_is_taken(tmp_path: Path) -> None:
    """Golden: what the standard's own library makes."""
    from datetime import UTC, datetime

    standardwebhooks = pytest.importorskip("standardwebhooks")
    body = '{"text":"hi"}'
    signature = standardwebhooks.Webhook(OLD).sign("msg_a", datetime.fromtimestamp(NOW, tz=UTC), body)
    headers = {"webhook-id": "msg_a", "webhook-timestamp": str(NOW), "webhook-signature": signature}
    async with opened(tmp_path) as hook:
        assert (await hook.call(body.encode(), headers))[0] == 202


@pytest.mark.parametrize("seconds", [-360, -2 * DAY, 600])
async def test_a_stale_delivery_or_one_from_the_future_is_refused(tmp_path: Path, seconds: float) -> None:
    """C220: 6 min and 2 days old, 10 min in the future."""
    async with opened(tmp_path) as hook:
        assert await hook.signed({"text": "x"}, at=NOW + seconds) == (401, {"error": "refused"})
        assert not hook.context.offered


async def test_a_request_that_is_replayed_is_acknowledged_and_not_taken_twice(tmp_path: Path) -> None:
    """C220: after 10 s and after 4 min."""
    async with opened(tmp_path) as hook:
        assert (await hook.signed({"text": "x"}))[1]["status"] == "accepted"
        for seconds in (10, 240):
            hook.clock.seconds = NOW + seconds
            assert await hook.signed({"text": "x"}) == (202, {"id": "msg_1", "event": "ev_1", "status": "duplicate"})
        assert hook.texts == ["x"]


async def test_a_sender_that_retries_for_hours_with_its_first_time_gets_a_wide_window(tmp_path: Path) -> None:
    """C222: 500 at first, then again after 1 min, 1 h and 6 h."""
    async with opened(tmp_path, tolerance=7 * 3600) as hook:
        hook.context.fail(JackfieldError("the disk is full"))
        assert (await hook.signed({"text": "x"}))[0] == 503
        hook.context.mend()
        hook.clock.seconds = NOW + 3600
        assert (await hook.signed({"text": "x"}))[1]["status"] == "accepted"
        hook.clock.seconds = NOW + 6 * 3600
        assert (await hook.signed({"text": "x"}))[1]["status"] == "duplicate"
        assert (await hook.signed({"text": "y"}, id="msg_2", at=NOW + 6 * 3600 + 400))[0] == 401, (
            "the future is as near"
        )


@pytest.mark.parametrize("missing", ["webhook-id", "webhook-timestamp", "webhook-signature"])
async def test_a_header_that_is_missing_is_no_accident(tmp_path: Path, missing: str) -> None:
    """C220."""
    async with opened(tmp_path) as hook:
        headers = sign_standard("msg_1", b"{}", [OLD], NOW)
        del headers[missing]
        assert (await hook.call(b"{}", headers))[0] == 401


async def test_a_changed_byte_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    async with opened(tmp_path) as hook:
        headers = sign_standard("msg_1", b'{"text":"pay 1"}', [OLD], NOW)
        assert (await hook.call(b'{"text":"pay 9"}', headers))[0] == 401
        assert (await hook.call(b"\xff" * 100, headers))[0] == 401


async def test_secrets_are_changed_without_a_gap(tmp_path: Path) -> None:
    async with opened(tmp_path, secrets=["old", "new"]) as hook:
        assert (await hook.signed({"text": "a"}, secret=OLD))[0] == 202
        assert (await hook.signed({"text": "b"}, secret=NEW, id="msg_2"))[0] == 202
    async with opened(tmp_path, secrets="new") as hook:
        assert (await hook.signed({"text": "c"}, secret=OLD, id="msg_3"))[0] == 401


def _sign(algorithm: str, signed: bytes) -> bytes:
    return hmac.new(SECRETS["plain"].encode(), signed, algorithm).digest()


BODY = b'{"text":"hi"}'
SENDERS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"verify": "github"}, {"X-Hub-Signature-256": "sha256=" + _sign("sha256", BODY).hex()}),
    ({"verify": "hmac"}, {"X-Signature": _sign("sha256", BODY).hex()}),
    (
        {"verify": "hmac", "hmac": {"header": "X-S", "prefix": "sha256="}},
        {"X-S": "sha256=" + _sign("sha256", BODY).hex()},
    ),
    (
        {"verify": "hmac", "hmac": {"encoding": "base64"}},
        {"X-Signature": base64.b64encode(_sign("sha256", BODY)).decode()},
    ),
    ({"verify": "hmac", "hmac": {"algorithm": "sha1"}}, {"X-Signature": _sign("sha1", BODY).hex()}),
    (
        {"verify": "hmac", "hmac": {"template": "v0:{timestamp}:{body}", "timestamp_header": "X-T"}},
        {"X-Signature": _sign("sha256", f"v0:{NOW}:".encode() + BODY).hex(), "X-T": str(NOW)},
    ),
    (
        {"verify": "timed"},
        {"X-Signature": f"t={NOW},v1={'0' * 64},v1={_sign('sha256', f'{NOW}.'.encode() + BODY).hex()}"},
    ),
    ({"verify": "bearer"}, {"Authorization": f"Bearer {SECRETS['plain']}"}),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "headers"), SENDERS)
async def test_senders_sign_in_many_ways(tmp_path: Path, settings: dict[str, Any], headers: dict[str, str]) -> None:
    """C224: hex, with a prefix, base64, `t=,v1=,v1=`, SHA-1; and each of them tampered with."""
    async with opened(tmp_path, secrets="plain", **settings) as hook:
        assert (await hook.call(BODY, headers))[0] == 202
        if settings["verify"] != "bearer":
            assert (await hook.call(BODY + b" ", headers))[0] == 401
        assert (await hook.call(BODY, {name: value[:-1] + "!" for name, value in headers.items()}))[0] == 401
        assert (await hook.call(BODY))[0] == 401
        assert hook.texts == ["hi"]


@pytest.mark.parametrize(("settings", "headers"), SENDERS[:7])
async def test_a_copy_with_another_unsigned_id_is_still_a_copy(
    tmp_path: Path, settings: dict[str, Any], headers: dict[str, str]
) -> None:
    """C220: nothing but what is signed tells one delivery from another."""
    async with opened(tmp_path, secrets="plain", **settings) as hook:
        for number in ("1", "2"):
            more = {"X-GitHub-Delivery": number, "webhook-id": number, "Idempotency-Key": number}
            assert (await hook.call(BODY, {**headers, **more}))[0] == 202
        assert hook.texts == ["hi"]


async def test_who_has_the_token_may_say_the_same_twice(tmp_path: Path) -> None:
    async with opened(tmp_path, verify="bearer", secrets="token") as hook:
        bearer = {"Authorization": "Bearer t0ken"}
        for _ in range(2):
            await hook.call(BODY, bearer)
            await hook.call(BODY, {**bearer, "Idempotency-Key": "k1"})
        assert hook.texts == ["hi"] * 3


# ---- without proof


LOCAL: dict[str, Any] = {"verify": "none", "insecure": True, "secrets": []}


async def test_a_program_on_this_machine_needs_no_proof_if_the_operator_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path, **LOCAL) as hook:
        assert (await hook.call(BODY, host="localhost:1"))[0] == 202
        assert hook.events[0].sender.trust is Trust.UNVERIFIED


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "203.0.113.1"}, {"Forwarded": "for=203.0.113.1"}, {"Via": "1.1 proxy"},
        {"X-Real-IP": "127.0.0.1"}, {"Origin": "https://evil.example"}, {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)  # fmt: skip
async def test_what_a_proxy_or_a_page_sends_needs_one(tmp_path: Path, headers: dict[str, str]) -> None:
    """The whole world comes from 127.0.0.1 once there is a proxy, and so does every page in a browser here."""
    async with opened(tmp_path, **LOCAL) as hook:
        assert (await hook.call(BODY, headers))[0] == 401
        assert not hook.context.offered


async def test_a_name_that_was_bound_anew_to_this_machine_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, **LOCAL) as hook:
        assert (await hook.call(BODY, host="rebound.example"))[0] == 401
        (route,) = hook.channel.http_routes()
        away = RawRequest(
            method="POST", path="/", query="", headers=(("host", "127.0.0.1"),), body=BODY, peer="10.0.0.2"
        )
        assert (await route.handle(away)).status == 401


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, "secrets"),
        ({"verify": "none"}, "secrets"),
        ({"verify": "standard", "insecure": True, "secrets": "a"}, "insecure"),
        ({"secrets": "a", "hmac": {"template": "{timestamp}"}}, "template"),
        ({"secrets": "a", "hmac": {"timestamp_header": "X-T"}}, "timestamp_header"),
        ({"secrets": "a", "url": "https://x", "url_secret": "b"}, "url_secret"),
        ({"secrets": "a", "url": "file:///etc/passwd"}, "url"),
        ({"secrets": "a", "url": "https://u:p@x/"}, "url"),
        ({"secrets": "a", "map": {"text": "$.a["}}, "text"),
        ({"secrets": "a", "map": {"text": "{{ a"}}, "text"),
        ({"secrets": "a", "map": {"txt": "$.a"}}, "txt"),
    ],
)
def test_settings_that_can_not_be_meant_are_refused(settings: dict[str, Any], names: str) -> None:
    with pytest.raises(ValidationError) as caught:
        WebhookSettings.model_validate(settings)
    assert any(names in error["loc"] for error in caught.value.errors())


async def test_a_secret_that_is_not_set_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'absent'"):
        async with opened(tmp_path, secrets="absent"):
            pass


# ---- bodies


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"\xff\xfe", b"nope", b"NaN", b'{"a":Infinity}', b"9" * 5000,
        b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 70 + b"1" + b"}" * 70,
    ],
)  # fmt: skip
async def test_a_body_that_is_no_json_is_answered_400(tmp_path: Path, body: bytes) -> None:
    """C219: also one that is nested 100,000 deep."""
    async with opened(tmp_path) as hook:
        status, answer = await hook.signed(body)
        assert status == 400 and "body" in answer["error"]
        assert (await hook.signed({"text": "still there"}, id="msg_2"))[0] == 202
        assert hook.texts == ["still there"]


async def test_a_body_over_the_limit_is_answered_413_before_anything_is_checked(tmp_path: Path) -> None:
    """C219."""
    async with opened(tmp_path, max_bytes=1000) as hook:
        assert (await hook.call(b"x" * 1001))[0] == 413


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"text": "plain"}, "plain"),
        ({"a": [1]}, '````json\n{\n  "a": [\n    1\n  ]\n}\n````'),
        (b'"just this"', "just this"),
        (b'{"text":"half \\ud800"}', "half \ufffd"),
    ],
)
async def test_without_a_mapping_the_text_or_all_of_it_is_shown(tmp_path: Path, body: Any, text: str) -> None:
    async with opened(tmp_path) as hook:
        await hook.signed(body)
        assert hook.texts == [text]


async def test_plain_text_is_taken_as_it_is(tmp_path: Path) -> None:
    async with opened(tmp_path, verify="bearer", secrets="token") as hook:
        headers = {"Authorization": "Bearer t0ken", "Content-Type": "text/plain; charset=utf-8"}
        await hook.call("größer".encode(), headers)
        assert (await hook.call(b"\xff", headers))[0] == 400
        assert hook.texts == ["größer"]


# ---- mappings


EVENT: dict[str, Any] = {
    "action": "opened",
    "issue": {"number": 7, "title": "It's <broken>", "labels": [{"name": "bug"}, {"name": "ui"}]},
    "sender": {"login": "ann", "type": "User"},
    "repo": {"full name": "a/b"},
}


async def test_paths_and_templates_say_what_becomes_of_a_body(tmp_path: Path) -> None:
    mapping = {
        "text": (
            "{{ body.sender.login }} {{ body.action }} #{{ body.issue.number }}: {{ body.issue.title }}"
            "{% if body.issue.labels %} ({% for one in body.issue.labels %}{{ one.name | upper }}"
            "{% if not loop.last %}, {% endif %}{% endfor %}){% endif %} {{ headers['x-event'] | default('?') }}"
        ),
        "thread": "$.issue.number",
        "chat": '$.repo["full name"]',
        "user": "$.sender.login",
        "bot": "$.sender.type",
        "id": "issue-{{ body.issue.number }}-{{ body.action }}",
    }
    async with opened(tmp_path, map=mapping) as hook:
        await hook.signed(EVENT)
        (event,) = hook.events
        assert event.text == "ann opened #7: It's <broken> (BUG, UI) ?"
        assert event.address == Address("webhook", "hook", "a/b", "7")
        assert event.sender.handle == "ann@hook" and not event.sender.is_bot
        assert event.dedupe_key == "message:issue-7-opened"
        bot = {**EVENT, "action": "closed", "sender": {"login": "ci", "type": "Bot"}}
        await hook.signed(bot, id="msg_2")
        assert hook.events[-1].sender.is_bot


async def test_what_is_mapped_to_nothing_is_acknowledged_and_left_out(tmp_path: Path) -> None:
    mapping = {"text": "{% if body.action == 'opened' %}{{ body.issue.title }}{% endif %}"}
    async with opened(tmp_path, map=mapping) as hook:
        assert await hook.signed({"action": "labeled"}) == (202, {"id": "msg_1", "status": "ignored"})
        assert not hook.context.offered


async def test_a_mapping_that_fails_is_the_operator_s_to_mend(tmp_path: Path) -> None:
    async with opened(tmp_path, map={"text": "{% if body.a > 3 %}x{% endif %}"}) as hook:
        assert (await hook.signed({"a": "text"}))[0] == 500, "the sender shall come again"
        assert (await hook.signed({"a": 4}))[0] == 202


async def test_keys_without_end_are_cut_and_stay_different(tmp_path: Path) -> None:
    async with opened(tmp_path, map={"thread": "$.t"}) as hook:
        await hook.signed({"text": "a", "t": "x" * 10_000 + "1"})
        await hook.signed({"text": "b", "t": "x" * 10_000 + "2"}, id="msg_2")
        one, two = (event.address.thread_id for event in hook.events)
        assert one is not None and two is not None and one != two and len(one) == 200


async def test_a_template_sees_no_credentials(tmp_path: Path) -> None:
    mapping = {"text": "{{ headers | json }}"}
    async with opened(tmp_path, verify="bearer", secrets="token", map=mapping) as hook:
        await hook.call(
            b"{}", {"Authorization": "Bearer t0ken", "Cookie": "a=b", "X-Hub-Signature": "s", "X-Event": "e"}
        )
        assert "t0ken" not in hook.texts[0] and "a=b" not in hook.texts[0] and '"x-event": "e"' in hook.texts[0]
        assert "signature" not in hook.texts[0]


# ---- its own, and waiting


async def test_an_answer_that_comes_back_is_not_heard(tmp_path: Path) -> None:
    """C230: by the id that it was sent under."""
    async with opened(tmp_path, url="http://127.0.0.1:1/", allow_private=True) as hook:
        with pytest.raises(JackfieldError):
            await hook.channel.send(Address("webhook", "hook", "hook"), OutMessage(text="x"), idempotency_key="dl_1.2")
        assert (await hook.signed({"text": "x"}, id="dl_1-2"))[1]["status"] == "ignored"


async def test_who_waits_is_answered_on_the_line(tmp_path: Path) -> None:
    import asyncio

    async with opened(tmp_path) as hook:
        asking = [asyncio.create_task(hook.signed({"text": n}, id=f"msg_{n}", query="?wait=20")) for n in "ab"]
        await hook.context.until(lambda: len(hook.events) == 2, "both questions")
        for event in reversed(hook.events):
            assert event.address.thread_id == event.ref.ids[0], "each has a thread of its own"
            await hook.channel.send(
                event.address, OutMessage(text=f"re {event.text}"), idempotency_key="dl_" + event.text
            )
        for n, task in zip("ab", asking, strict=True):
            status, answer = await task
            assert (status, answer["id"], answer["text"]) == (200, f"msg_{n}", f"re {n}")


async def test_who_waits_too_long_is_told_that_it_was_taken(tmp_path: Path) -> None:
    async with opened(tmp_path, wait_limit=1) as hook:
        assert await hook.signed({"text": "a"}, query="?wait=0.05") == (
            202,
            {"id": "msg_1", "event": "ev_1", "status": "accepted"},
        )
        for query in ("?wait=2", "?wait=-1", "?wait=nan", "?wait=x", "?wait=", "?wait=1&wait=1"):
            assert (await hook.signed({"text": "b"}, id="msg_2", query=query))[0] == 400
        assert hook.texts == ["a"]


async def test_who_waits_when_the_hook_stops_is_told_that_it_was_taken(tmp_path: Path) -> None:
    import asyncio

    async with opened(tmp_path) as hook:
        asking = asyncio.create_task(hook.signed({"text": "a"}, query="?wait=20"))
        await hook.context.until(lambda: bool(hook.events), "the question")
        await hook.channel.stop()
        assert (await asking)[0] == 202
        assert (await hook.signed({"text": "a"}))[0] == 503, "nothing is taken any more"


async def test_refusals_are_logged_but_can_not_fill_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(tmp_path) as hook:
        for _ in range(20):
            await hook.call(b"{}")
        lines = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
        assert lines == ["hook hook refused 1 deliveries; the last: the header webhook-id is missing"]
        hook.clock.seconds += 11
        await hook.call(b"{}")
        assert "refused 20 deliveries" in caplog.records[-1].getMessage()


async def test_one_hook_cannot_speak_for_the_people_of_another(tmp_path: Path) -> None:
    """C141: the same id on another instance is somebody else, and no id is another hook's name."""
    handles = []
    for name in ("trusted", "guests"):
        async with opened(tmp_path / name, name, map={"user": "$.who"}) as hook:
            for number, who in enumerate(({"who": "17"}, {"who": "trusted"}, {})):
                await hook.signed({"text": "hello", **who}, id=f"msg_{number}")
            handles += [event.sender.handle for event in hook.events]
    assert len(set(handles)) == len(handles)
    assert handles[:3] == ["17@trusted", "trusted@trusted", "trusted"]
