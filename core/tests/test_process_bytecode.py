"""Byte code that the host makes for runners."""

from __future__ import annotations

import os
from pathlib import Path

from jackfield.process import environment
from jackfield.process.bytecode import compile_stale


def test_only_what_is_missing_or_old_is_compiled(tmp_path: Path) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text("x = 1\n", encoding="utf-8")
    two.write_text("x = 2\n", encoding="utf-8")
    assert [compile_stale([tmp_path]), compile_stale([tmp_path])] == [2, 0]
    two.write_text("x = 22\n", encoding="utf-8")
    assert [compile_stale([tmp_path]), compile_stale([tmp_path])] == [1, 0]
    os.utime(one, (1_000_000_000, 1_000_000_000))
    assert compile_stale([tmp_path]) == 1


def test_a_module_that_is_no_python_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def (", encoding="utf-8")
    (tmp_path / "fine.py").write_text("", encoding="utf-8")
    assert compile_stale([tmp_path]) == 1


def test_our_own_packages_are_found_and_no_others() -> None:
    names = {folder.name for folder in environment.source_folders()}
    assert "jackfield" in names
    assert all(name.startswith("jackfield") for name in names)
