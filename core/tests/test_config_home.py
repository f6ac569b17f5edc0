"""Where things lie."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jackfield.config
import pytest
from jackfield.config.home import Home
from jackfield.errors import NotInitialised


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
