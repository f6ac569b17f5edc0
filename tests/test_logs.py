"""`jackfield logs` on what a real host wrote (cases C133, C215; issue: logs)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.exchange import BOUND, Exchange, prepared

SECRET = "neverseenbefore9z"


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    with prepared(tmp_path_factory.mktemp("logs")) as exchange:
        exchange.environment["JACKFIELD_SECRET_BOX"] = SECRET
        exchange.join("c")
        exchange.join("d")
        exchange.start()
        exchange.order("c", {"fail": "permanent"})
        exchange.say("c", "mock: say PRIVATEWORDS")
        exchange.say("d", f"mock: say PRIVATEWORDS {SECRET}")
        exchange.wait_text("d", "PRIVATEWORDS")
        exchange.wait_for(lambda: exchange.query("SELECT id FROM deliveries WHERE state = 'failed'"), "the failure")
        yield exchange


def shown(exchange: Exchange, *options: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in exchange.run("logs", "--json", *options).stdout.splitlines()]


def test_lines_are_found_by_what_they_are_about(exchange: Exchange) -> None:
    assert {line["channel"] for line in shown(exchange, "--channel", "box")} == {"box"}
    failures = shown(exchange, "--level", "warning", "--grep", "failed: chatnotfound")
    assert len(failures) == 1
    assert failures[0]["channel"] == "box"
    assert shown(exchange, "--grep", "failed: chatnotfound", "--level", "error") == []
    assert len(shown(exchange, "-n", "2")) == 2
    assert shown(exchange, "--since", "10m", "--grep", "host is ready")
    assert shown(exchange, "--group", "andy", "--channel", "none") == []
    text = exchange.run("logs", "--grep", "host is ready").stdout
    assert "info" in text
    assert "{" not in text
    assert exchange.run("logs", "--grep", "(", check=False).returncode == 2
    assert exchange.run("logs", "--group", "nobody", check=False).returncode == 3


def test_nothing_that_people_or_agents_wrote_and_no_secret_is_in_the_log(exchange: Exchange) -> None:
    """C133."""
    for path in exchange.home.logs.iterdir():
        text = path.read_text(encoding="utf-8")
        assert "PRIVATEWORDS" not in text
        assert SECRET not in text
        assert path.stat().st_mode & 0o777 == 0o600
    assert SECRET not in exchange.tail()


def test_what_comes_is_followed_until_somebody_stops_it(exchange: Exchange, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jackfield.cli", "logs", "-f", "-n", "1", "--json", "--grep", "stops|ready"]
    with (tmp_path / "out").open("wb") as out:
        child = subprocess.Popen(command, env=exchange.env(), stdout=out)
    exchange.wait_for(lambda: (tmp_path / "out").stat().st_size, "the newest line")
    exchange.stop()
    exchange.wait_for(lambda: b"the host stops" in (tmp_path / "out").read_bytes(), "a line that came later")
    child.send_signal(2)
    assert child.wait(BOUND) == 0
    assert shown(exchange, "--grep", "the host stops"), "the log can be read without a host"
