"""What a button carries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield_channel_kit.prompt import PAYLOAD_BYTES, PromptBook, decode, encode


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12), st.integers(0, 999))
def test_a_payload_is_read_as_it_was_written(prompt_id: str, index: int) -> None:
    payload = encode(prompt_id, index)
    assert len(payload.encode()) <= PAYLOAD_BYTES and decode(payload) == (prompt_id, index)


@given(st.text())
def test_a_foreign_payload_is_none_of_ours(payload: str) -> None:
    found = decode(payload)
    assert found is None or encode(*found) == payload or payload.rpartition(":")[2].startswith("0")


def test_what_does_not_fit_is_refused() -> None:
    for prompt_id, index in (("x" * 64, 1), ("", 1), ("x", -1)):
        with pytest.raises(ValueError, match="payload"):
            encode(prompt_id, index)
    assert decode("p:" + "x" * 80 + ":1") is None and decode("p::1") is None and decode("p:x:²") is None


def test_the_book_remembers_the_newest_prompts() -> None:
    book = PromptBook(size=2)
    for name in ("a", "b", "a", "c"):
        book.sent(name, [f"{name} yes", f"{name} no"])
    assert book.value("a", 1) == "a no" and book.value("c", 0) == "c yes"
    assert book.value("b", 1) == "#1" and book.value("a", 2) == "#2"
