"""Editing the configuration by commands."""

from __future__ import annotations

import os
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield.config import Home, add_channel, remove_channel, set_agent_value, set_host_value, template
from jackfield.config.edit import values_from_texts
from jackfield.config.load import load
from jackfield.config.problems import near
from jackfield.errors import ConfigError, Conflict, NotFound, UsageError
from pydantic import BaseModel, ConfigDict


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create()
    home.jackfield_toml.write_text(template.jackfield_toml(), encoding="utf-8")
    return home


@pytest.fixture
def folder(home: Home) -> Path:
    folder = home.groups / "andy"
    folder.mkdir()
    (folder / "agent.toml").write_text(template.agent_toml(name="Andy"), encoding="utf-8")
    return folder


def comments(file: Path) -> list[str]:
    return [line.partition("#")[2] for line in file.read_text(encoding="utf-8").splitlines() if "#" in line]


def test_an_edit_keeps_every_comment_and_the_rest_of_the_file(home: Home) -> None:
    before = home.jackfield_toml.read_text(encoding="utf-8")
    assert set_host_value(home, "timezone", "Europe/Paris") == "Europe/Paris"
    after = home.jackfield_toml.read_text(encoding="utf-8")
    assert after == before.replace('"UTC"', '"Europe/Paris"')


def test_a_channel_comes_and_goes_and_comments_stay(home: Home) -> None:
    before = comments(home.jackfield_toml)
    add_channel(home, "telegram", "work", {"token": "work-token", "port": 8080, "allow": ["a", "b"]})
    found = load(home, strict=True).channels["work"]
    assert (found.type, found.settings) == ("telegram", {"token": "work-token", "port": 8080, "allow": ["a", "b"]})
    assert comments(home.jackfield_toml) == before
    with pytest.raises(Conflict, match="'work'"):
        add_channel(home, "telegram", "work", {})
    remove_channel(home, "work")
    assert list(load(home, strict=True).channels) == ["terminal"]
    assert comments(home.jackfield_toml) == before
    with pytest.raises(NotFound) as refused:
        remove_channel(home, "terminl")
    assert "'terminal'" in (refused.value.fix or "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "[host]\n",
        '[channels.a]\ntype = "terminal"\n',
        "channels = {}\n",
        "channels = { a = {} }\n",
        "channels.a = {}\n",
        "[channels]\n[channels.a]\n[host]\n",
        "\ufeff[host]\r\n",
    ],
)
def test_a_channel_can_be_added_to_and_removed_from_any_valid_file(home: Home, text: str) -> None:
    home.jackfield_toml.write_bytes(text.encode())
    before = load(home, strict=True)
    add_channel(home, "telegram", "work", {"x": 1})
    after = load(home, strict=True)
    assert after.host == before.host
    assert {**before.channels, "work": after.channels["work"]} == after.channels
    assert after.channels["work"].settings == {"x": 1}
    remove_channel(home, "work")
    assert load(home, strict=True).channels == before.channels


def test_an_edit_with_a_wrong_result_is_refused_and_the_file_is_untouched(home: Home, folder: Path) -> None:
    """C202."""
    files = [home.jackfield_toml, folder / "agent.toml"]
    before = [file.read_bytes() for file in files]
    for key, text in [("timezone", "Nowhere"), ("max_runners", "many"), ("max_runers", "3")]:
        with pytest.raises(ConfigError):
            set_host_value(home, key, text)
    with pytest.raises(ConfigError):
        add_channel(home, "telegram", "bad name", {})
    for key, text in [
        ("limits.memry", "1"),
        ("toolz", "x"),
        ("allow_unisolated", "perhaps"),
        ("unwrapped", "nodge"),
        ("name.x", "1"),
    ]:
        with pytest.raises(ConfigError):
            set_agent_value(folder, key, text)
    with pytest.raises(UsageError):
        set_agent_value(folder, "a b", "x")
    assert [file.read_bytes() for file in files] == before
    assert sorted(os.listdir(home.root)) == ["backups", "groups", "jackfield.toml", "logs", "plugins", "sessions"]


def test_what_only_the_plugin_knows_can_refuse_too(home: Home) -> None:
    before = home.jackfield_toml.read_bytes()

    class Model(BaseModel):
        model_config = ConfigDict(strict=True)
        port: int

    with pytest.raises(ConfigError, match="a whole number"):
        add_channel(
            home,
            "x",
            "work",
            {"port": "a"},
            more_checks=lambda found: (
                found.settings_of("channels.work", found.channels["work"].settings, Model).problems
            ),
        )
    assert home.jackfield_toml.read_bytes() == before


def test_a_file_with_several_faults_can_be_mended_one_by_one_and_nothing_else(home: Home) -> None:
    home.jackfield_toml.write_text("[host]\nx = 1\n[channels]\na = 5\nb = 6\n", encoding="utf-8")
    with pytest.raises(ConfigError):
        add_channel(home, "terminal", "terminal", {})
    remove_channel(home, "a")
    remove_channel(home, "b")
    assert [problem.key for problem in load(home).problems] == ["host.x"]


def test_a_file_that_is_no_toml_is_never_written(home: Home) -> None:
    home.jackfield_toml.write_text("a = 1\na = 2\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"jackfield\.toml:2"):
        set_host_value(home, "max_runners", "3")
    assert home.jackfield_toml.read_text(encoding="utf-8") == "a = 1\na = 2\n"


def test_agent_values_are_read_as_their_setting_wants_them(folder: Path) -> None:
    for key, text, value in [
        ("limits.memory", "512 MiB", "512 MiB"),
        ("limits.turn_seconds", "90", 90),
        ("tools", "messaging,canvas", ["messaging", "canvas"]),
        ("tools", '["messaging"]', ["messaging"]),
        ("packs", "insights", ["insights"]),
        ("name", "123", "123"),
        ("name", "true", "true"),
        ("allow_unisolated", "true", True),
        ("providers.mock.script", "a.toml", "a.toml"),
        ('providers.mock."x.y"', "7", 7),
    ]:
        assert set_agent_value(folder, key, text) == value
    found = tomllib.loads((folder / "agent.toml").read_text(encoding="utf-8"))
    assert found["providers"] == {"mock": {"script": "a.toml", "x.y": 7}}
    assert found["limits"]["memory"] == "512 MiB"
    set_agent_value(folder, "providers.mock.script", None)
    set_agent_value(folder, "model", None)
    assert "script" not in (folder / "agent.toml").read_text(encoding="utf-8")


def test_a_group_without_a_file_gets_one(home: Home) -> None:
    folder = home.groups / "new"
    folder.mkdir()
    set_agent_value(folder, "provider", "mock")
    assert (folder / "agent.toml").read_text(encoding="utf-8") == 'provider = "mock"\n'
    assert (folder / "agent.toml").stat().st_mode & 0o777 == 0o600


def test_a_link_to_the_configuration_is_followed_and_stays_a_link(home: Home, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    home.jackfield_toml.rename(real)
    home.jackfield_toml.symlink_to(real)
    set_host_value(home, "max_runners", "3")
    assert home.jackfield_toml.is_symlink()
    assert "max_runners = 3" in real.read_text(encoding="utf-8")


def test_two_commands_at_once_lose_nothing_of_one_another(home: Home) -> None:
    names = [f"c{number}" for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: add_channel(home, "terminal", name, {}), names))
    assert sorted(load(home, strict=True).channels) == [*names, "terminal"]


def test_values_without_a_model_are_read_as_toml_where_they_are() -> None:
    assert values_from_texts(None, {"a": "1", "b": "x", "c": "[1]", "d": "1 # 2", "e": ""}) == {
        "a": 1, "b": "x", "c": [1], "d": 1, "e": "",
    }  # fmt: skip


@given(st.text(max_size=20))
def test_any_text_can_be_given_for_a_text(text: str) -> None:
    class Model(BaseModel):
        model_config = ConfigDict(strict=True)
        a: str

    value = values_from_texts(Model, {"a": text})["a"]
    assert isinstance(value, str)


def test_guesses_see_through_case_and_hyphens() -> None:
    assert near("maxRunners", ["max_runners", "idle_exit"]) == "max_runners"
    assert near("max-runners", ["max_runners"]) == "max_runners"
    assert near("qqqq", ["max_runners"]) is None


def test_a_setting_of_the_ingress_is_named_with_its_table(home: Home) -> None:
    set_host_value(home, "ingress.port", "0")
    assert load(home).ingress.port == 0
    with pytest.raises(ConfigError, match="prot"):
        set_host_value(home, "ingress.prot", "1")
    with pytest.raises(ConfigError):
        set_host_value(home, "ingress.port", "65536")
