"""Where things lie."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import jackfield.config
import pytest
from jackfield.config.home import Home
from jackfield.errors import ConfigError, NotInitialised
from jackfield.plugins.files import user_cache, write_object


def test_the_home_is_what_was_given_then_the_environment_then_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("JACKFIELD_HOME", raising=False)
    assert Home.find(None).root == tmp_path / ".jackfield"
    monkeypatch.setenv("JACKFIELD_HOME", "~/other")
    assert Home.find(None).root == tmp_path / "other"
    assert Home.find("/given").root == Path("/given")
    monkeypatch.chdir(tmp_path)
    assert Home.find("here").root == tmp_path / "here"


@pytest.mark.parametrize("home", ["", None])
def test_without_home_in_the_environment_the_system_says_whose_folder_it_is(
    monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    for name in ("JACKFIELD_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    own = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert Home.find(None).root == own / ".jackfield"
    assert user_cache() == own / ".cache" / "jackfield"


def test_a_user_without_a_folder_is_told_to_name_a_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("JACKFIELD_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    with pytest.raises(ConfigError, match=r"\$HOME is not set") as refused:
        Home.find(None)
    assert "$JACKFIELD_HOME" in (refused.value.fix or "")
    assert Home.find(str(tmp_path)).root == tmp_path
    assert not write_object(user_cache() / "x.json", {})
    with pytest.raises(ConfigError, match="nobody-by-this-name"):
        Home.find("~nobody-by-this-name/x")


def test_a_home_is_closed_to_others_and_made_only_once(tmp_path: Path) -> None:
    home = Home(tmp_path / "a" / "home")
    with pytest.raises(NotInitialised):
        home.require()
    home.create()
    home.create()
    assert not home.initialised
    for folder in (home.root, home.groups, home.sessions, home.logs, home.backups, home.plugins):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_asking_where_things_lie_imports_nothing_heavy() -> None:
    heavy = {"pydantic", "tomlkit", "click", "asyncio"}
    code = f"import sys, jackfield.config.home; print(sorted({heavy} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=True)
    assert out.stdout.strip() == "[]"


def test_the_rooms_names_are_all_there() -> None:
    for name in jackfield.config.__all__:
        assert getattr(jackfield.config, name) is not None
    with pytest.raises(AttributeError):
        _ = jackfield.config.nothing
