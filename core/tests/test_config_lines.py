"""The scanner that finds the line of a key."""

from __future__ import annotations

import string
import tomllib
from typing import Any

import tomlkit
from hypothesis import given
from hypothesis import strategies as st
from jackfield.config.lines import find_lines, line_of, split_key


def test_headers_keys_and_dotted_keys_have_their_lines() -> None:
    text = 'a = 1\n\n[b.c]  # comment = no key\nd.e = 2\n"q.A" = 3\n'
    found = find_lines(text)
    assert found[("a",)] == 1
    assert found[("b",)] == found[("b", "c")] == 3
    assert found[("b", "c", "d", "e")] == 4
    assert found[("b", "c", "q.A")] == 5


def test_strings_arrays_and_inline_tables_over_many_lines_hide_no_key_and_make_none() -> None:
    text = (
        'a = """\nb = 1\n[c]\n"""\n'  # lines 1-4
        "d = '''\n'quoted' = 2'''\n"  # 5-6
        'e = [\n  "x = 1", # y = 2\n  { f = 1, g = { h = "}" } },\n]\n'  # 7-10
        "i = 1\n"  # 11
    )
    found = find_lines(text)
    assert {path: line for path, line in found.items() if len(path) == 1} == {
        ("a",): 1,
        ("d",): 5,
        ("e",): 7,
        ("i",): 11,
    }
    assert found[("e", "g", "h")] == 9


def test_elements_of_an_array_of_tables_are_told_apart() -> None:
    found = find_lines("[[a]]\nx = 1\n[[a]]\nx = 2\n[a.b]\ny = 3\n")
    assert found[("a", "0", "x")] == 2
    assert found[("a", "1", "x")] == 4
    assert found[("a", "1", "b", "y")] == 6


def test_the_line_of_a_missing_key_is_that_of_the_table_around_it() -> None:
    found = find_lines("x = 1\n[a]\nb = 1\n")
    assert line_of(found, ("a", "c", "d")) == 2
    assert line_of(found, ("nowhere",)) is None


def test_a_dotted_key_is_split_at_dots_outside_quotes() -> None:
    assert split_key('a."b.c".d') == ("a", "b.c", "d")
    assert split_key("a b") == ()
    assert split_key("") == ()


keys = st.text(string.ascii_letters + ".\"'[]#=\\ é", min_size=1, max_size=6)
scalars = st.one_of(st.integers(-5, 5), st.booleans(), st.text("ab\n\"'#=[]{}\\é", max_size=12))
tables = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(scalars, max_size=3), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=12,
)


def _paths(table: dict[str, Any], prefix: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    out: set[tuple[str, ...]] = set()
    for key, value in table.items():
        out.add((*prefix, key))
        if isinstance(value, dict):
            out |= _paths(value, (*prefix, key))
    return out


@given(st.dictionaries(keys, tables, max_size=5))
def test_every_key_of_any_document_is_found_and_on_a_line_that_holds_it(table: dict[str, Any]) -> None:
    text = tomlkit.dumps(table)
    assert tomllib.loads(text) == table
    found = find_lines(text)
    assert set(found) == _paths(table)
    assert all(1 <= line <= text.count("\n") + 1 for line in found.values())


@given(st.text("a=.[]{}\"'\\#\n, 1", max_size=60))
def test_no_text_makes_the_scanner_raise_or_run_for_ever(text: str) -> None:
    find_lines(text)
    split_key(text)
