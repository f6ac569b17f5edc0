"""Whatever a home is called, everything of it lies in it (C245)."""

from __future__ import annotations

from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from jackfield.config.home import Home
from jackfield.mailbox import SessionFolder

PLACES = tuple(name for name, value in vars(Home).items() if isinstance(value, property))
LETTERS = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
NAMES = LETTERS.filter(lambda name: name not in (".", ".."))


@given(parts=st.lists(NAMES, min_size=1, max_size=4), end=st.sampled_from(["", "/", "//"]))
@example(parts=["home", "first.last"], end="")
@example(parts=["home", "a user"], end="/")
@example(parts=["Users", "josé 🦜"], end="//")
@example(parts=["~user"], end="")
def test_every_place_of_a_home_is_below_it(parts: list[str], end: str) -> None:
    """C245: "user" and ".app" never become "user.app"."""
    text = "/" + "/".join(parts) + end
    home = Home.find(text)
    root = Path("/").joinpath(*parts)
    assert home.root == root
    assert len(PLACES) > 8
    for name in PLACES:
        place = getattr(home, name)
        if isinstance(place, Path):
            assert root in place.parents, name
    folder = SessionFolder(home.sessions / "ag_1" / "ses_1")
    assert all(root in place.parents for place in (folder.inbound_db, folder.inbox, folder.bell, folder.spec_file))
