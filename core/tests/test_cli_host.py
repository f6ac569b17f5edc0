"""`init`, `up`, `status`, `reload`, `down`: the host's life, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BOUND = 60


class Shell:
    """Runs the program as somebody would at a prompt."""

    def __init__(self, home: Path, cache: Path) -> None:
        self.home = home
        self.environment = {**os.environ, "JACKFIELD_HOME": str(home), "XDG_CACHE_HOME": str(cache)}

    def __call__(self, *words: str, expect: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "jackfield.cli", *words],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=BOUND,
            env=self.environment,
        )
        assert done.returncode == expect, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def json(self, *words: str, expect: int = 0) -> Any:
        return json.loads(self(*words, "--json", expect=expect))


@pytest.fixture
def jackfield(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path / "home", tmp_path / "cache")
    yield shell
    if (shell.home / "jackfield.toml").exists():
        shell("down")


def test_a_home_is_made_once_and_a_second_time_changes_nothing(jackfield: Shell) -> None:
    first = jackfield.json("init", "--name", "Zoë", "--folder", "zoe")
    assert first["created"] is True
    assert first["owner"].startswith("terminal:")
    before = {path: path.read_bytes() for path in jackfield.home.rglob("*") if path.suffix in (".toml", ".md")}
    assert jackfield.json("init", "--name", "Other")["created"] is False
    assert {path: path.read_bytes() for path in jackfield.home.rglob("*") if path.suffix in (".toml", ".md")} == before
    assert [group["folder"] for group in jackfield.json("group", "list")] == ["zoe"]
    jackfield("config", "check", "--strict")


def test_the_host_goes_up_answers_reloads_and_goes_down(jackfield: Shell) -> None:
    jackfield("init")
    assert jackfield.json("status")["running"] is False
    started = jackfield.json("up", "--detach")
    assert Path(started["log"]).exists()
    status = jackfield.json("status")
    assert (status["running"], status["pid"]) == (True, started["pid"])
    assert "process" in jackfield("up", expect=4)
    assert jackfield.json("up", "--detach", expect=4)["error"]["code"] == "HostRunning"

    jackfield("group", "add", "Bob", "--folder", "bob")
    jackfield("group", "set", "bob", "limits.turn_seconds", "90")
    assert jackfield.json("group", "show", "bob")["settings"]["limits"]["turn_seconds"] == 90
    jackfield("owner", "add", "telegram:1")
    jackfield("member", "add", "telegram:2", "bob")
    jackfield("admin", "add", "telegram:3", "bob")
    assert {owner["user"] for owner in jackfield.json("owner", "list")} > {"telegram:1"}
    assert jackfield.json("member", "list", "bob")[0]["user"] == "telegram:2"
    assert [(one["user"], one["group"]) for one in jackfield.json("admin", "list")] == [("telegram:3", "bob")]
    jackfield("admin", "remove", "telegram:3", expect=3)
    jackfield("admin", "remove", "telegram:3", "bob")
    assert jackfield.json("wire", "no-address", "bob", expect=2)["error"]["code"] == "UsageError"

    (jackfield.home / "jackfield.toml").write_text("[host]\nmax_runners = 'x'\n", encoding="utf-8")
    assert "max_runners" in jackfield("reload", expect=2)
    (jackfield.home / "jackfield.toml").write_text("[channels.terminal]\n", encoding="utf-8")
    jackfield("reload")

    assert jackfield.json("down") == {"stopped": True, "running": False}
    assert jackfield.json("status")["running"] is False
    assert {group["folder"] for group in jackfield.json("group", "list")} == {"andy", "bob"}
    lines = Path(started["log"]).read_text(encoding="utf-8").splitlines()
    assert all({"event", "level", "logger", "time"} <= json.loads(line).keys() for line in lines)


def test_a_host_in_the_foreground_ends_by_ctrl_c_with_code_0(jackfield: Shell) -> None:
    jackfield("init")
    host = subprocess.Popen(
        [sys.executable, "-m", "jackfield.cli", "up"],
        stderr=subprocess.PIPE,
        env=jackfield.environment,
        encoding="utf-8",
    )
    assert host.stderr is not None
    for line in host.stderr:
        if line.startswith("ready"):
            break
    else:
        pytest.fail("it never became ready")
    host.send_signal(signal.SIGINT)
    _, said = host.communicate(timeout=BOUND)
    assert host.returncode == 0, said
    assert "Traceback" not in said


def test_a_start_names_what_it_leaves_out_and_a_strict_one_refuses(jackfield: Shell) -> None:
    """C198, C200, C202."""
    jackfield("init")
    config = jackfield.home / "jackfield.toml"
    config.write_text("pairingNeeded = true\n[channels.terminal]\n[channels.work]\ntype = 5\n", encoding="utf-8")
    before = {path: path.read_bytes() for path in (config, jackfield.home / "state.db")}
    said = jackfield("up", "--strict", expect=2)
    assert "jackfield.toml:1: pairingNeeded" in said
    assert "jackfield.toml:4: channels.work.type" in said
    assert {path: path.read_bytes() for path in before} == before
    assert "channels.work.type" in jackfield("up", "--detach", "--strict", expect=2)
    jackfield("up", "--detach")
    status = jackfield.json("status")
    assert [channel["name"] for channel in status["channels"]] == ["terminal"]
    assert len(status["problems"]) == 2


def test_a_file_that_can_not_be_read_is_replaced_by_the_last_good_one(jackfield: Shell) -> None:
    """C181, C198."""
    jackfield("init")
    config = jackfield.home / "jackfield.toml"
    config.write_text("a = 1\na = 2\n", encoding="utf-8")
    said = jackfield("up", "--detach", expect=2)
    assert "jackfield.toml:2" in said
    config.write_text("[channels.terminal]\n[host]\nmax_runners = 3\n", encoding="utf-8")
    jackfield("up", "--detach")
    jackfield("down")
    config.write_text("a = 1\na = 2\n", encoding="utf-8")
    jackfield("up", "--detach")
    status = jackfield.json("status")
    assert status["runner_cap"] == 3
    assert "last good copy" in status["problems"][0]
    assert config.read_text(encoding="utf-8") == "a = 1\na = 2\n"


def test_commands_at_once_without_a_host_wait_for_each_other(jackfield: Shell) -> None:
    jackfield("init")
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "jackfield.cli", "owner", "add", f"telegram:{number}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=jackfield.environment,
            encoding="utf-8",
        )
        for number in range(3)
    ]
    ends = [(one.communicate(timeout=BOUND)[1], one.returncode) for one in running]
    assert all(code == 0 for _, code in ends), ends
    assert len(jackfield.json("owner", "list")) == 4


def test_the_time_is_shown_in_json_as_iso_8601_in_utc(jackfield: Shell) -> None:
    jackfield("init")
    at = jackfield.json("group", "list")[0]["created_at"]
    assert at.endswith("Z")
    assert time.strptime(at[:19], "%Y-%m-%dT%H:%M:%S")
