"""Where log lines go."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from jackfield import redaction
from jackfield.cli.logging_setup import host_logging
from jackfield.config import Home
from jackfield.host.logs.files import LogFile

BOUND = 60


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    home.create()
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    root.handlers.clear()
    yield home
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def written(home: Home) -> list[dict[str, str]]:
    return [json.loads(line) for line in (home.logs / "host.jsonl").read_text(encoding="utf-8").splitlines()]


def test_the_file_has_one_json_object_a_line_whatever_is_logged(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """C215."""
    host_logging(home)
    log = logging.getLogger("jackfield.try")
    log.info("from %s", "Eve\u202e\n\x1b[31mforged")
    log.debug("not shown")
    try:
        raise ValueError("v")
    except ValueError:
        log.exception("it failed")
    first, second = written(home)
    assert (first["event"], first["level"], first["logger"]) == (
        "from Eve\u202e\n\x1b[31mforged",
        "info",
        "jackfield.try",
    )
    assert "ValueError: v" in second["exception"]
    assert all(ord(character) < 128 for character in (home.logs / "host.jsonl").read_text(encoding="utf-8"))
    shown = capsys.readouterr().err
    assert "forged" in shown
    assert "\u202e" not in shown
    assert "\x1b[31m" not in shown


@pytest.mark.parametrize(
    ("level", "verbose", "shown"),
    [
        ("info", 0, "iwe"),
        ("warning", 0, "we"),
        ("error", 0, "e"),
        ("error", 1, "iwe"),
        ("info", 2, "diwe"),
        ("debug", 0, "diwe"),
    ],
)
def test_levels_come_from_the_configuration_and_v_adds_to_them(
    home: Home, level: str, verbose: int, shown: str
) -> None:
    host_logging(home, level=level, verbose=verbose, terminal=False)
    log = logging.getLogger("jackfield.try")
    for write in (log.debug, log.info, log.warning, log.error):
        write("x")
    assert "".join(line["level"][0] for line in written(home)) == shown


def test_setting_up_again_replaces_what_was_there(home: Home) -> None:
    host_logging(home, terminal=False)
    host_logging(home, terminal=False)
    logging.getLogger("jackfield.try").warning("once")
    assert len(written(home)) == 1
    (handler,) = logging.getLogger().handlers
    assert isinstance(handler, LogFile)


def test_secrets_of_the_environment_are_learned_for_both_outputs(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C133."""
    monkeypatch.setattr(redaction, "REDACTOR", redaction.Redactor())
    monkeypatch.setenv("JACKFIELD_SECRET_ONE", "firstofall")
    host_logging(home)
    logging.getLogger("jackfield.try").warning("one firstofall")
    assert "firstofall" not in capsys.readouterr().err


def test_a_plugins_command_gets_a_host_of_its_own_where_none_runs(tmp_path: Path) -> None:
    environment = {**os.environ, "JACKFIELD_HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    code = textwrap.dedent(
        """
        import asyncio, contextlib
        from jackfield.api.client import connect
        from jackfield.cli.host_access import offer
        from jackfield.cli.main import main
        from jackfield.cli.state import State

        with contextlib.redirect_stdout(None):
            main(["init"])
        offer(State())

        async def work():
            async with connect() as first:
                status = await first.call("status", {})
                async with connect() as second:
                    same = await second.call("status", {})
                    return first.started_host, second.started_host, status["running"], status["pid"] == same["pid"]

        print(asyncio.run(work()), asyncio.run(work()))
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", timeout=BOUND, env=environment
    )
    assert done.stdout.strip() == "(True, False, True, True) (True, False, True, True)", done.stderr
    assert done.stderr == ""
