"""What a host refuses before it touches anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from jackfield.config.home import Home
from jackfield.errors import NotInitialised, StoreError
from jackfield.host.application import open_hub
from jackfield.host.ownership import own


def made(root: Path) -> Home:
    home = Home(root)
    home.create()
    home.jackfield_toml.write_text("[host]\n", encoding="utf-8")
    return home


async def test_a_place_without_a_home_is_refused_with_the_way_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(NotInitialised) as refused:
        async with open_hub(Home(tmp_path / "none")):
            pass
    assert "jackfield init" in (refused.value.fix or "")


@pytest.mark.parametrize("left", [None, b""])
async def test_an_empty_store_beside_conversations_is_refused_untouched(tmp_path: Path, left: bytes | None) -> None:
    """C202, C213: a lost database must not become a new one that has forgotten everybody."""
    home = made(tmp_path / "home")
    (home.sessions / "ag_x").mkdir()
    if left is not None:
        home.state_db.write_bytes(left)
    with pytest.raises(StoreError, match="empty or missing"):
        async with open_hub(home):
            pass
    assert home.state_db.exists() is (left is not None)


async def test_a_fresh_home_gets_its_store_and_an_install_id(tmp_path: Path) -> None:
    home = made(tmp_path / "home")
    async with open_hub(home) as hub:
        first = hub.install_id
    async with open_hub(home) as hub:
        assert hub.install_id == first


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_what_a_host_makes_has_the_same_modes_whatever_the_shell_says(tmp_path: Path, umask: int) -> None:
    """Nobody else writes to it, and runners with uids of their own can read it: with 077 none of them started."""
    home = made(tmp_path / "home")
    before = os.umask(umask)
    try:
        with own(home):
            (home.root / "made").mkdir()
        assert (home.root / "made").stat().st_mode & 0o777 == 0o755
        assert os.umask(umask) == umask, "it is the shell's again afterwards"
    finally:
        os.umask(before)
