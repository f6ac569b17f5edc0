"""The host's log: what a line holds, what it never holds, how the file turns over, and reading it."""

from __future__ import annotations

import base64
import datetime
import errno
import json
import logging
import os
import re
import stat
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield.errors import UsageError
from jackfield.host.logs import records
from jackfield.host.logs.files import LogFile, log_troubles, older
from jackfield.host.logs.reading import Follower, Line, Wanted, last, moment_before, parsed
from jackfield.models import Address
from jackfield.redaction import MASK, Redactor

SESSION, GROUP, DELIVERY = "ses_01m8pv4pt4bqyzwt6ft2", "ag_01m8pv4gb6aqgcajm9ad", "dl_01m8pv53y63nae3py3tc"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[tuple[logging.Logger, LogFile]]:
    handler = LogFile(tmp_path / "logs" / "host.jsonl", limit=1 << 20, keep=3, redact=Redactor())
    logger = logging.Logger("jackfield.try")
    logger.addHandler(handler)
    yield logger, handler
    handler.close()


def lines(handler: LogFile) -> list[dict[str, Any]]:
    return [json.loads(line) for line in handler.path.read_text(encoding="ascii").splitlines()]


# ---- what a line says


def test_a_line_says_when_how_important_by_whom_and_what_it_is_about(log: tuple[logging.Logger, LogFile]) -> None:
    logger, handler = log
    logger.warning("part 1 of %s to %s of session %s failed", DELIVERY, Address("postbox", "box", "c"), SESSION)
    (line,) = lines(handler)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert (line["level"], line["logger"]) == ("warning", "jackfield.try")
    assert (line["channel"], line["session"], line["delivery"]) == ("box", SESSION, DELIVERY)
    assert stat.S_IMODE(handler.path.stat().st_mode) == 0o600


def test_what_a_task_is_about_is_bound_once_for_all_its_lines(log: tuple[logging.Logger, LogFile]) -> None:
    import contextvars

    logger, handler = log

    def task() -> None:
        records.bind(channel="main")
        records.bind(group=GROUP)
        logger.info("one")
        logger.info("two", extra={"channel": "other"})

    contextvars.copy_context().run(task)
    logger.info("three")
    assert [(line.get("channel"), line.get("group")) for line in lines(handler)] == [
        ("main", GROUP), ("other", GROUP), (None, None),
    ]  # fmt: skip


def test_arguments_that_do_not_fit_and_texts_without_end_are_logged_all_the_same(
    log: tuple[logging.Logger, LogFile],
) -> None:
    logger, handler = log

    class Bad:
        def __str__(self) -> str:
            raise RuntimeError("no")

    logger.info("two %s and %s", "one")
    logger.info("%s", Bad())
    logger.info("x" * 100_000)
    first, second, third = lines(handler)
    assert "two %s and %s" in first["event"]
    assert second["level"] == "error"
    assert len(third["event"]) < 40_000


# ---- secrets


def test_a_known_secret_is_masked_in_every_encoding(log: tuple[logging.Logger, LogFile]) -> None:
    """C133, C137."""
    secret = 'pl/ain w"örd\\88'
    redact = Redactor()
    redact.register(secret)
    forms = {
        secret,
        urllib.parse.quote(secret, safe=""),
        urllib.parse.quote_plus(secret),
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
        *(base64.b64encode(b"x" * n + secret.encode() + b"tail").decode() for n in range(3)),
    }
    for form in forms:
        masked = redact(f"before {form} after")
        assert MASK in masked, form
        assert form not in masked
    assert redact("short plain words stay") == "short plain words stay"


@given(st.text(min_size=8, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_no_neighbours_save_a_known_secret(secret: str, before: str, after: str) -> None:
    """C137."""
    redact = Redactor()
    redact.register(secret)
    if secret not in MASK * 2:
        assert secret not in redact(f"{before}\n{secret}\n{after}").replace(MASK, "")


@pytest.mark.parametrize(
    "text",
    [
        "GET https://api.telegram.org/bot8123456789:AAzz_-Q7aaaaaaaaaaaaaaaaaaaaaaaaaaaaa/getMe",
        "{'Authorization': 'Bearer SECRETabcdef0123'}",
        "authorization: Basic SECRETabcdef0123==",
        "jackfield channel set --token SECRETabcdef0123",
        "jackfield channel set --api-key=SECRETabcdef0123",
        "https://h.example/x?access_token=SECRETabcdef0123&y=1",
        'body {"client_secret": "SECRETabcdef0123"}',
        "postgres://user:SECRETabcdef0123@h.example/db",
        "xoxb-SECRETabcdef0123-4567",
        "sk-test-SECRETAAA111",
        "ghp_SECRETabcdef01230123456789abcdef012345",
        "-----BEGIN PRIVATE KEY-----\nSECRETabcdef\n-----END PRIVATE KEY-----",
    ],
)
def test_what_looks_like_a_secret_is_masked_though_nobody_told_us(text: str) -> None:
    """C133, C135."""
    masked = Redactor()(text)
    assert MASK in masked
    assert "SECRET" not in masked
    assert "AAzz" not in masked


@pytest.mark.parametrize("unit", ["-", "--a", "eyJ-", "eyJaaaaaaaa.", "://a:", "&token", "sk-", "bearer "])
def test_no_strangers_text_keeps_the_log_busy(unit: str) -> None:
    """The host redacts where it runs: a text that takes minutes to look through would stop every chat."""
    code = "import sys; from jackfield.redaction import REDACTOR; REDACTOR(sys.stdin.read())"
    subprocess.run([sys.executable, "-c", code], input=unit * (100_000 // len(unit)), text=True, timeout=60, check=True)


def test_a_thousand_secrets_are_masked_also_where_one_begins_another() -> None:
    """C137."""
    redact = Redactor()
    secrets = [f"{number:04d}-{'Zq9' * (number % 7)}-value" for number in range(1000)]
    redact.register(*secrets, "0007-Zq9", "tiny", *(f"{secret}-and-more" for secret in secrets[:50]))
    text = "\n".join(f"line {secret}-and-more {urllib.parse.quote(secret)}." for secret in secrets)
    masked = redact.values(text)
    assert "Zq9" not in masked
    assert "value" not in masked
    assert masked.splitlines()[0] == f"line {MASK} {MASK}."
    assert masked.splitlines()[-1] == f"line {MASK}-and-more {MASK}."
    assert redact.values("tiny words and --token stay") == "tiny words and --token stay"


def test_a_key_of_many_lines_is_masked_line_by_line() -> None:
    """What a process writes reaches the log in lines."""
    redact = Redactor()
    body = [base64.b64encode(os.urandom(48)).decode() for _ in range(3)]
    redact.register("\n".join(["-----BEGIN PRIVATE KEY-----", *body, "-----END PRIVATE KEY-----"]))
    for line in body:
        assert redact(f"key: {line}") == f"key: {MASK}"


def test_values_inside_json_are_masked_and_it_stays_json() -> None:
    redact = Redactor()
    redact.register("nabcdefgh")
    told = redact.inside({"a": ["\nabcdefgh", 1, None, {"nabcdefgh": "x nabcdefgh"}]})
    assert told == {"a": ["\nabcdefgh", 1, None, {MASK: f"x {MASK}"}]}


@pytest.mark.parametrize(
    "unit", ["cookie: ", "-----BEGIN PRIVATE KEY-----", "--token ", '"token": "', "xSECRETx", ":AA"]
)
def test_a_megabyte_made_to_be_slow_is_looked_through_once(unit: str) -> None:
    """The time grows with the length only."""
    code = "import sys; from jackfield.redaction import REDACTOR as it; it.register('SECRETxx'); it(sys.stdin.read())"
    text = unit * (1_000_000 // len(unit))
    subprocess.run([sys.executable, "-c", code], input=text, text=True, timeout=60, check=True)


def test_a_secret_stays_out_of_tracebacks_and_of_lines_of_other_libraries(tmp_path: Path) -> None:
    """C133, C137: whichever library logs it, also when it comes in two arguments."""
    redact = Redactor()
    redact.register("LTAI-neverseen-9z")
    handler = LogFile(tmp_path / "host.jsonl", limit=1 << 20, keep=1, redact=redact)
    logger = logging.Logger("httpx")
    logger.addHandler(handler)
    try:
        raise ConnectionError("could not reach https://x/?k=LTAI-neverseen-9z")
    except ConnectionError:
        logger.exception("request to %s%s failed", "LTAI-never", "seen-9z")
    handler.close()
    assert "neverseen" not in handler.path.read_text(encoding="ascii")
    assert "ConnectionError" in lines(handler)[0]["exception"]


# ---- the file


def test_the_file_turns_over_by_size_and_only_so_many_are_kept(tmp_path: Path) -> None:
    handler = LogFile(tmp_path / "host.jsonl", limit=2000, keep=2)
    logger = logging.Logger("x")
    logger.addHandler(handler)
    for number in range(100):
        logger.info("line %d", number)
    handler.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["host.jsonl", "host.jsonl.1", "host.jsonl.2"]
    assert all(path.stat().st_size <= 2000 for path in tmp_path.iterdir())
    found = last(handler.path, 1000, lambda line: True)
    numbers = [int(line.field("event").split()[1]) for line in found]
    assert numbers == list(range(100 - len(numbers), 100))


def test_a_disk_that_refuses_costs_lines_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C213: counted, and told in the log once it can be written again."""
    handler = LogFile(tmp_path / "host.jsonl", limit=1 << 20, keep=1)
    logger = logging.Logger("x")
    logger.addHandler(handler)
    logger.info("before")
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        real(descriptor, data[:7])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        logger.info("lost 1")
        logger.info("lost 2")
    assert handler.lost == 2
    assert log_troubles() == {"log lines lost": 2}
    monkeypatch.setattr(handler, "_not_before", 0.0)
    logger.info("after")
    shown = [line.field("event") for line in last(handler.path, 10, lambda line: bool(line.fields))]
    handler.close()
    assert shown[0] == "before"
    assert shown[-2:] == ["2 log lines were lost: the file could not be written", "after"]


def test_a_folder_that_is_missing_or_no_folder_never_raises(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    handler = LogFile(tmp_path / "logs" / "host.jsonl", limit=1 << 20, keep=1)
    logger = logging.Logger("x")
    logger.addHandler(handler)
    logger.info("lost")
    handler.close()
    assert handler.lost == 1


# ---- reading


def test_lines_are_chosen_by_all_that_is_asked_for() -> None:
    line = parsed(
        json.dumps(
            {
                "time": "2026-01-31T08:00:00.000Z",
                "level": "warning",
                "event": "It Failed",
                "session": SESSION,
                "channel": "b",
            }
        ).encode()
    )
    for wanted, shown in {
        Wanted(): True,
        Wanted(level="warning"): True,
        Wanted(level="error"): False,
        Wanted(since="2026-01-31T07:59:59.999Z"): True,
        Wanted(since="2026-01-31T08:00:00.001Z"): False,
        Wanted(session=SESSION, channel="b"): True,
        Wanted(session=SESSION, channel="c"): False,
        Wanted(grep=re.compile("it failed", re.IGNORECASE)): True,
        Wanted(grep=re.compile("warning-nothing")): False,
    }.items():
        assert wanted(line) is shown, wanted
    half = Line("half a li", {})
    assert Wanted()(half)
    assert not Wanted(session=SESSION)(half)


@pytest.mark.parametrize(("text", "shown"), [
    ("10m", "2026-01-31T07:50:00.000Z"), ("2h", "2026-01-31T06:00:00.000Z"), ("1 d", "2026-01-30T08:00:00.000Z"),
    ("2026-01-31T09:30+02:00", "2026-01-31T07:30:00.000Z"),
])  # fmt: skip
def test_since_is_a_duration_or_a_moment(text: str, shown: str) -> None:
    assert moment_before(text, datetime.datetime(2026, 1, 31, 8, tzinfo=datetime.UTC)) == shown


@pytest.mark.parametrize("text", ["", "soon", "10", "99999999w", "2026-13-01"])
def test_since_refuses_what_is_neither(text: str) -> None:
    with pytest.raises(UsageError, match="since"):
        moment_before(text, datetime.datetime.now(datetime.UTC))


def test_a_follower_misses_no_line_however_often_the_file_turns_over(tmp_path: Path) -> None:
    path = tmp_path / "host.jsonl"
    handler = LogFile(path, limit=600, keep=50)
    logger = logging.Logger("x")
    logger.addHandler(handler)
    logger.info("old")
    follower = Follower(path)
    seen: list[str] = []
    for number in range(60):
        logger.info("line %d", number)
        if number % 17 == 0:
            seen += [line.field("event") for line in follower.step()]
    seen += [line.field("event") for line in follower.step()]
    follower.close()
    handler.close()
    assert older(path, 5).exists()
    assert seen == [f"line {number}" for number in range(60)]


def test_a_follower_waits_for_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "host.jsonl"
    follower = Follower(path)
    assert list(follower.step()) == []
    path.write_bytes(b'{"event":"first"}\n{"event":"sec')
    assert [line.field("event") for line in follower.step()] == ["first"]
    with path.open("ab") as file:
        file.write(b'ond"}\n')
    assert [line.field("event") for line in follower.step()] == ["second"]
    follower.close()
