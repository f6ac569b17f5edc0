"""`jackfield config ...` and `jackfield channel add|remove`: what they write and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jackfield.cli.main import main
from jackfield.config import Home, template
from jackfield.config.load import load


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("JACKFIELD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = Home(tmp_path / "home")
    home.create()
    home.jackfield_toml.write_text(template.jackfield_toml(), encoding="utf-8")
    return home


def test_a_fresh_home_is_in_order(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "--strict"]) == 0
    assert "in order" in capsys.readouterr().out


def test_the_check_lists_everything_at_once_with_file_and_line(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """C198, C200."""
    home.jackfield_toml.write_text(
        '[host]\nmax_runers = 1\nidle_exit = "x"\n[channels.terminl]\n[channels.t]\ntype = "terminal"\nnope = 1\n',
        encoding="utf-8",
    )
    folder = home.groups / "andy"
    folder.mkdir()
    (folder / "agent.toml").write_text('provider = "mok"\ntoolz = 1\n', encoding="utf-8")
    assert main(["config", "check", "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["starts"]) == (False, True)
    said = {(Path(one["file"]).name, one["line"], one["key"], one["severity"]) for one in found["problems"]}
    assert {
        ("jackfield.toml", 2, "host.max_runers", "warning"),
        ("jackfield.toml", 3, "host.idle_exit", "error"),
        ("jackfield.toml", 4, "channels.terminl", "error"),
        ("agent.toml", 2, "toolz", "warning"),
        ("agent.toml", None, "provider", "error"),
    } <= said
    assert next(one["suggestion"] for one in found["problems"] if one["key"] == "provider") == "mock"
    assert main(["config", "check"]) == 2
    text = capsys.readouterr().out
    assert "jackfield.toml:2: host.max_runers: unknown key. Did you mean 'max_runners'?" in text
    assert "without what is named above" in text


def test_remarks_fail_only_a_strict_check(home: Home) -> None:
    home.jackfield_toml.write_text("[host]\nx = 1\n", encoding="utf-8")
    assert main(["config", "check"]) == 0
    assert main(["config", "check", "--strict"]) == 2
    assert main(["--strict", "config", "check"]) == 2


def test_a_file_that_stops_the_start_is_said_to(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """C200."""
    home.jackfield_toml.write_text("a = 1\na = 2\n", encoding="utf-8")
    assert main(["config", "check"]) == 2
    out = capsys.readouterr().out
    assert "jackfield.toml:2" in out
    assert "The host would not start." in out


def test_show_tells_what_takes_effect_and_no_secret(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.jackfield_toml.write_text(
        '[host]\nmax_runners = 7\n[channels.work]\ntype = "telegram"\ntoken = "s3cr3t"\nsince = 2024-01-01\n',
        encoding="utf-8",
    )
    assert main(["config", "show", "--json"]) == 0
    out = capsys.readouterr().out
    assert "s3cr3t" not in out
    found = json.loads(out)
    assert found["host"]["max_runners"] == 7
    assert found["host"]["idle_exit"] == 600.0
    assert found["channels"]["work"] == {
        "type": "telegram", "enabled": True, "token": "(not shown)", "since": "2024-01-01",
    }  # fmt: skip
    assert main(["config", "show"]) == 0
    out = capsys.readouterr().out
    assert "* max_runners" in out
    assert "s3cr3t" not in out


def test_show_tells_what_the_default_number_of_runners_is_here(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["host"]["max_runners"], found["effective"]["max_runners"]) == (0, load(home).host.runner_cap)
    assert main(["config", "show"]) == 0
    assert f"0 ({load(home).host.runner_cap} here)" in capsys.readouterr().out


def test_set_changes_one_value_and_refuses_a_wrong_one(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "set", "host.max_runners", "3"]) == 0
    assert load(home).host.max_runners == 3
    before = home.jackfield_toml.read_bytes()
    assert main(["config", "set", "max_runners", "many", "--json"]) == 2
    assert json.loads(capsys.readouterr().out.partition("\n")[2])["error"]["code"] == "ConfigError"
    assert main(["config", "set", "max_runers", "3"]) == 2
    assert "max_runners" in capsys.readouterr().err
    assert home.jackfield_toml.read_bytes() == before


def test_a_channel_of_an_unknown_type_is_refused_with_the_near_name(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    before = home.jackfield_toml.read_bytes()
    assert main(["channel", "add", "terminl"]) == 3
    assert "terminal" in capsys.readouterr().err
    assert main(["channel", "add", "terminal", "x", "novalue"]) == 2
    assert main(["channel", "remove", "nothing"]) == 3
    assert home.jackfield_toml.read_bytes() == before


def test_a_channel_can_be_removed_whatever_its_plugin_is(home: Home) -> None:
    assert main(["channel", "remove", "terminal"]) == 0
    assert load(home, strict=True).channels == {}
