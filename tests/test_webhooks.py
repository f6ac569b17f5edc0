"""A hook through every real part: a signed POST in, the agent's answer POSTed out (channels.md 3.15; C209, C220)."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest
from jackfield_channel_kit.verify import sign_standard, standard_webhooks

from tests.conftest import MakeExchange
from tests.harness.exchange import BOUND, Exchange

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Receiver:
    """The system that answers are posted to; it outlives the host.  It checks every signature."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                standard_webhooks(dict(self.headers.items()), body, [SECRET], time.time())
                receiver.answers.append(json.loads(body)["data"])
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/answers"

    @property
    def texts(self) -> list[str]:
        return [answer["text"] for answer in self.answers]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(BOUND)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def hooked(make_exchange: MakeExchange, receiver: Receiver) -> Exchange:
    exchange = make_exchange()
    exchange.environment["JACKFIELD_SECRET_HOOK_SECRET"] = SECRET
    toml = exchange.home.jackfield_toml
    text = toml.read_text(encoding="utf-8")
    assert "# port = 8787" in text
    text = text.replace("# port = 8787", "port = 0") + (
        f'\n[channels.hook]\ntype = "webhook"\nsecrets = "hook-secret"\nurl = "{receiver.url}"\nallow_private = true\n'
        'map = { text = "$.text", thread = "$.thread", user = "$.user" }\n'
    )
    toml.write_text(text, encoding="utf-8")
    exchange.op("wire.add", chat="webhook:hook:hook", group="andy", engage="always", policy="public")
    return exchange


def post(exchange: Exchange, message_id: str, query: str = "", **body: Any) -> tuple[int, dict[str, Any]]:
    """Call the hook; status 0 when the host is gone before it answers."""
    raw = json.dumps(body).encode()
    address = urlsplit(exchange.op("status")["ingress"]["address"])
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=BOUND)
    try:
        connection.request(
            "POST", "/channels/hook" + query, raw, dict(sign_standard(message_id, raw, [SECRET], time.time()))
        )
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    except (ConnectionError, http.client.HTTPException):
        return 0, {}
    finally:
        connection.close()


def wait_answered(exchange: Exchange, receiver: Receiver, text: str) -> None:
    exchange.wait_for(lambda: text in receiver.texts, f"{text!r}, got {receiver.texts}")


def settled(exchange: Exchange) -> Callable[[], bool]:
    def look() -> bool:
        return not (
            exchange.query("SELECT id FROM inbound WHERE state IN ('queued', 'claimed', 'retrying', 'parked')")
            or exchange.query("SELECT id FROM deliveries WHERE state IN ('pending', 'sending', 'retrying', 'waiting')")
            or exchange.query("SELECT id FROM events WHERE state = 'received'")
        )

    return look


def test_a_signed_call_is_answered_at_the_url_and_on_the_line(hooked: Exchange, receiver: Receiver) -> None:
    hooked.start()
    status, accepted = post(hooked, "msg_1", text="mock: say hello", thread="t1", user="ann")
    (event,) = hooked.query("SELECT id FROM events")
    assert (status, accepted) == (202, {"id": "msg_1", "event": event[0], "status": "accepted"})
    wait_answered(hooked, receiver, "hello")
    assert (receiver.answers[0]["chat"], receiver.answers[0]["thread"]) == ("hook", "t1")
    assert post(hooked, "msg_1", text="mock: say hello", thread="t1", user="ann")[1]["status"] == "duplicate"
    status, answer = post(hooked, "msg_2", "?wait=30", text="mock: say at once")
    assert (status, answer["text"]) == (200, "at once")
    hooked.wait_for(settled(hooked), "an end for everything")
    assert receiver.texts == ["hello"], "what was answered on the line is not posted"
    shown = hooked.run("status").stdout
    assert "/channels/hook" in shown and "http://127.0.0.1:" in shown


def test_a_host_killed_between_accept_and_answer_answers_once(hooked: Exchange, receiver: Receiver) -> None:
    """C209: the 202 was the promise."""
    hooked.start()
    assert post(hooked, "msg_1", text="mock: sleep 1 mock: say kept")[0] == 202
    hooked.kill()
    assert not receiver.texts
    hooked.start()
    wait_answered(hooked, receiver, "kept")
    hooked.wait_for(settled(hooked), "an end for everything")
    assert receiver.texts == ["kept"]


def test_a_host_killed_before_it_acknowledged_takes_the_repeat_for_what_it_is(
    hooked: Exchange, receiver: Receiver
) -> None:
    """C209, C220: stored, not acknowledged, sent again by its sender under the same id."""
    hooked.start(JACKFIELD_KILL_AT="host.accept.after_commit")
    assert post(hooked, "msg_1", text="mock: say once")[0] == 0
    hooked.wait_ended()
    hooked.start()
    (event,) = hooked.query("SELECT id FROM events")
    repeated = {"id": "msg_1", "event": event[0], "status": "duplicate"}
    assert post(hooked, "msg_1", text="mock: say once") == (202, repeated)
    wait_answered(hooked, receiver, "once")
    hooked.wait_for(settled(hooked), "an end for everything")
    assert Counter(receiver.texts) == {"once": 1}


def test_a_host_killed_after_it_posted_repeats_under_the_same_id_and_says_so(
    hooked: Exchange, receiver: Receiver
) -> None:
    """Architecture 5, rule 5: one send in flight may be doubled, and whoever compares ids sees it."""
    hooked.start(JACKFIELD_KILL_AT="host.deliver.after_send")
    assert post(hooked, "msg_1", text="mock: say twice at most")[0] == 202
    hooked.wait_ended()
    hooked.start()
    hooked.wait_for(settled(hooked), "an end for everything")
    assert set(receiver.texts) == {"twice at most"} and len(receiver.texts) <= 2
    assert len({answer["id"] for answer in receiver.answers}) == 1
    assert all(answer["maybe_duplicate"] for answer in receiver.answers[1:])
