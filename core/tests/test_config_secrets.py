"""Secrets from the environment and from `secrets.toml`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield.config import Home
from jackfield.config.secrets import find_secret, read_secrets, secret_source, store_secret
from jackfield.errors import ConfigError, UsageError


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "h")
    home.create()
    return home


def test_the_environment_goes_before_the_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_secret(home, "work-token") is None
    assert secret_source(home, "work-token") is None
    store_secret(home, "work-token", "filed")
    assert (find_secret(home, "work-token"), secret_source(home, "work-token")) == ("filed", "file")
    monkeypatch.setenv("JACKFIELD_SECRET_WORK_TOKEN", "set")
    assert (find_secret(home, "work-token"), secret_source(home, "work-token")) == ("set", "environment")


def test_the_file_is_made_for_its_owner_only_and_keeps_its_comments(home: Home) -> None:
    assert store_secret(home, "one", "1")
    assert home.secrets_toml.stat().st_mode & 0o777 == 0o600
    home.secrets_toml.write_text(home.secrets_toml.read_text() + "# mine\n")
    assert store_secret(home, "two", 'quo"te\nline')
    assert not store_secret(home, "one", "1")
    assert "# mine" in home.secrets_toml.read_text()
    assert read_secrets(home) == {"one": "1", "two": 'quo"te\nline'}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_may_use_is_refused_with_the_fix_and_without_its_content(home: Home, mode: int) -> None:
    store_secret(home, "one", "hush-hush")
    home.secrets_toml.chmod(mode)
    with pytest.raises(ConfigError, match=f"{mode:04o}") as caught:
        find_secret(home, "one")
    assert "chmod 600" in str(caught.value.fix)
    assert "hush" not in f"{caught.value}{caught.value.fix}"
    with pytest.raises(ConfigError):
        store_secret(home, "two", "2")


def test_a_link_in_its_place_is_not_followed(home: Home, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere.toml"
    target.write_text('one = "1"')
    target.chmod(0o600)
    home.secrets_toml.symlink_to(target)
    with pytest.raises(ConfigError):
        find_secret(home, "one")


@pytest.mark.parametrize("text", ['one = "hush', "one = 5", "[one]\nkey = 'hush'", "\udcff"])
def test_a_file_that_is_no_table_of_texts_is_refused_without_quoting_it(home: Home, text: str) -> None:
    home.secrets_toml.write_bytes(text.encode(errors="surrogateescape"))
    home.secrets_toml.chmod(0o600)
    with pytest.raises(ConfigError) as caught:
        read_secrets(home)
    assert "hush" not in f"{caught.value}{caught.value.fix}"


@pytest.mark.parametrize(
    ("name", "value"), [("", "x"), ("a b", "x"), ("a.b", "x"), ("-a", "x"), ("a" * 129, "x"), ("a", "")]
)
def test_what_can_be_no_secret_is_refused(home: Home, name: str, value: str) -> None:
    with pytest.raises(UsageError):
        store_secret(home, name, value)
    assert not home.secrets_toml.exists()


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_text_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    home = Home(tmp_path_factory.mktemp("h"))
    store_secret(home, "any", value)
    assert read_secrets(home) == {"any": value}
