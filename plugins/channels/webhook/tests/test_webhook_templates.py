"""Templates and paths: what they can't do, whatever is written in them, and whatever a body holds."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield_channel_webhook import templates
from jackfield_channel_webhook.rules import BadBody, parse_body, parse_rule
from jackfield_channel_webhook.templates import TemplateFailed

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def said(rule: str, body: Any = None) -> str:
    return parse_rule(rule)(body, {})


@pytest.mark.parametrize(
    "source",
    [
        "{{ range(10) }}", "{{ lipsum() }}", "{{ cycler('a') }}", "{{ body.keys() }}", "{{ ''.join(body) }}",
        "{{ ().__class__.__bases__[0].__subclasses__() }}", "{{ body|attr('__class__') }}",
        "{{ body|map('x') }}",
        "{{ '%s' | format(1) }}", "{{ 'x' * 1000000000 }}", "{{ 9 ** 9999999 }}", "{{ 'a' ~ 'b' }}", "{{ 1 + 1 }}",
        "{{ 1 // 0 }}", "{% set x = 1 %}", "{% macro m() %}{{ m() }}{% endmacro %}", "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}", "{% extends 'x' %}", "{% block a %}{% endblock %}",
        "{% call x() %}{% endcall %}",
        "{% filter upper %}x{% endfilter %}",
        "{% with a = 1 %}{% endwith %}", "{% for a in body recursive %}{% endfor %}",
        "{% for a in body %}" * 5 + "{% endfor %}" * 5, "{{ body[1:2] }}", "{{ {'a': 1} }}", "{{ 'x' | _counted }}",
        "{{ body", "{% if %}", "{{ " + "(" * 2000 + ")" * 2000 + " }}", "{{ " + "not " * 3000 + "1 }}",
        "{{ body.x | center(1000000000) }}", "{{ body.x | replace('a', 'b') }}",
        "{% autoescape true %}{% endautoescape %}",
    ],
)  # fmt: skip
def test_what_a_template_can_not_say_is_refused_when_it_is_read(source: str) -> None:
    with pytest.raises(ValueError):
        parse_rule(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ body.__class__ }}", "{{ body.__class__.__mro__ }}", "{{ body['__class__'] }}", "{{ body.keys }}",
        "{{ ''.__class__.__mro__[1] }}", "{{ headers.get }}", "{{ cycler }}", "{{ range }}", "{{ namespace.__init__ }}",
        "{% for a in [1] %}{{ loop.__class__ }}{{ loop.cycle }}{{ loop._iterable }}{% endfor %}", "{{ none.x.y.z }}",
        "{{ undefined_name.a[0]['b'] }}",
    ],
)  # fmt: skip
def test_only_keys_of_json_are_looked_up(source: str) -> None:
    """No attribute of any Python object can be reached, so there is nothing to escape by."""
    assert said(source, {"a": 1}) == ""


@pytest.mark.parametrize("source", ["{{ self }}", "{% for a in [1] %}{{ loop }}{% endfor %}"])
def test_an_object_of_the_engine_s_own_is_not_shown(source: str) -> None:
    with pytest.raises(TemplateFailed):
        said(source)


def test_names_of_python_s_own_methods_are_keys_like_any_other() -> None:
    assert said("{{ body.items }} {{ body['keys'] }} {{ body.values }}", {"items": [1], "keys": "k"}) == "[1] k"


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in body %}{% for b in body %}{% endfor %}{% endfor %}",
        "{% for a in body %}{% for b in body %}{{ body | join }}{% endfor %}{% endfor %}",
        "{% for a in body %}{{ body | json }}{% endfor %}",
        "{% for a in body %}{% for b in body %}{% if body | join == 'x' %}{% endif %}{% endfor %}{% endfor %}",
        "{{ body | join(body | join) }}",
    ],
)
def test_a_template_that_loops_over_large_data_is_stopped(source: str) -> None:
    body = list(range(20_000))
    started = time.process_time()
    with pytest.raises(TemplateFailed):
        said(source, body)
    assert time.process_time() - started < 20 * templates.SECONDS, "a bound that is far from the machine's speed"


def test_a_slow_template_is_stopped_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "SECONDS", 0.0)
    with pytest.raises(TemplateFailed, match="over 0 s"):
        said("{% for a in body %}{% endfor %}", [1, 2])


def test_what_is_in_a_body_is_never_a_template() -> None:
    assert said("{{ body.text }}", {"text": "{{ 7 * 7 }} <b>&"}) == "{{ 7 * 7 }} <b>&"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$", '{"a":[{"b c":"x"},2.5],"n":null,"t":true}'), ("$.a[0]['b c']", "x"), ('$["a"][1]', "2.5"),
        ("$.a[-1]", "2.5"),
        ("$.n", ""), ("$.t", "true"), ("$.a[9].b", ""), ("$.a.b", ""), ("$.t.x[0]", ""), ("$.a[0]", '{"b c":"x"}'),
        ("$.__class__", ""),
    ],
)  # fmt: skip
def test_a_path_finds_what_is_there_and_nothing_else(path: str, value: str) -> None:
    assert said(path, {"a": [{"b c": "x"}, 2.5], "n": None, "t": True}) == value


@pytest.mark.parametrize("path", ["$a", "$.", "$..a", "$[", "$[a]", "$.a[*]", "$.a[?(@.b)]", "$.a b", "$[99999999]"])
def test_what_is_no_path_is_refused_when_it_is_read(path: str) -> None:
    with pytest.raises(ValueError, match="is no path"):
        parse_rule(path)


@given(body=JSON)
def test_any_json_can_be_shown(body: Any) -> None:
    for rule in ("$", "$.a[0]", "{{ body }}", "{% for k, v in body | items %}{{ k }}{{ v | json }}{% endfor %}"):
        said(rule, body).encode()


@given(raw=st.binary(max_size=200))
def test_any_bytes_are_a_body_or_refused(raw: bytes) -> None:
    with contextlib.suppress(BadBody):
        parse_body(raw)
