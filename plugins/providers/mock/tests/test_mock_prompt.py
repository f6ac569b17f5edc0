"""How the mock reads prompts and commands."""

from __future__ import annotations

import gc
import time
from dataclasses import fields
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield_provider_mock.actions import VERBS, Call, Crash, Fail, Say, Stream, Wait, read_action
from jackfield_provider_mock.commands import COMMANDS, read_commands
from jackfield_provider_mock.prompt import read_prompt
from jackfield_provider_mock.script import Step, choose

_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=60)


def message(text: str, **attributes: str) -> str:
    written = "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())
    return f"<message{written}>{escape(text)}</message>"


def test_a_plain_prompt_is_one_message() -> None:
    (heard,) = read_prompt("  hello <b>there</b> ")
    assert (heard.text, heard.kind, heard.sender) == ("hello <b>there</b>", "message", "")


def test_every_message_of_a_batch_is_found_with_its_sender_and_number() -> None:
    prompt = (
        '<context timezone="UTC" />\n<messages>\n'
        + message("a < b & c", id="2", sender='Eve "x"', **{"from": "home"})
        + "\n"
        + message("two", id="4", sender="Bob")
        + "\n</messages>"
    )
    first, second = read_prompt(prompt)
    assert (first.text, first.id, first.sender, first.source) == ("a < b & c", "2", 'Eve "x"', "home")
    assert (second.text, second.id) == ("two", "4")


def test_a_quoted_message_is_not_part_of_the_text() -> None:
    body = '\n  <quoted_message from="Bob">mock: crash</quoted_message>\nyes, do it'
    assert read_prompt(f'<message id="6" sender="Eve" reply_to="4">{body}</message>')[0].text == "yes, do it"


def test_tasks_and_notices_are_heard_too() -> None:
    heard = read_prompt('<task from="x">do</task>\n<notice>mind</notice>')
    assert [(item.kind, item.text) for item in heard] == [("task", "do"), ("notice", "mind")]


@given(_TEXT, _TEXT)
def test_what_a_person_wrote_comes_out_as_it_went_in(text: str, sender: str) -> None:
    heard = read_prompt('<context timezone="UTC" />\n' + message(text, id="2", sender=sender.replace("\n", " ")))
    assert [item.text for item in heard] == [text.strip()]


@pytest.mark.parametrize(
    "piece", ["<message ", '<message id="1">', "&lt;", "mock: ", '<message a="', "<quoted_message"]
)
def test_hostile_prompts_cost_no_more_than_their_length(piece: str) -> None:
    """C217."""

    def spent(times: int) -> float:
        text = piece * times
        start = time.process_time()
        for item in read_prompt(text):
            read_commands(item.text)
        return time.process_time() - start

    spent(500)
    gc.disable()  # a collection looks at everything that the tests before this one have left
    try:
        assert spent(8000) <= max(0.05, 40 * spent(1000))
    finally:
        gc.enable()


def test_commands_are_read_one_after_the_other() -> None:
    assert read_commands("please mock: sleep 0.5 mock: say a\nb  MOCK: stream one two") == [
        Wait(wait=0.5),
        Say(say="a\nb"),
        Stream(stream="one two"),
    ]


def test_a_word_that_only_ends_in_mock_is_no_command() -> None:
    assert read_commands("hammock: say hi") == []


def test_tool_arguments_are_json() -> None:
    assert read_commands('mock: tool send_message {"text": "hi; there"}') == [
        Call(call="send_message", arguments={"text": "hi; there"})
    ]


def test_failures_take_options() -> None:
    assert read_commands("mock: fail overloaded times=2 retry_after=1.5 tools_ran=yes message='too much'") == [
        Fail(fail="overloaded", times=2, retry_after=1.5, tools_ran=True, message="too much")
    ]
    assert read_commands("mock: crash 3 times=1") == [Crash(crash=3, times=1)]


@pytest.mark.parametrize(
    "line",
    ["fail nonsense", "fail", "sleep soon", "tool x {", "tool", "ask only a question", "bogus", "later 1", "long x"],
)
def test_a_command_that_can_not_be_read_is_answered(line: str) -> None:
    (said,) = read_commands(f"mock: {line}")
    assert isinstance(said, Say)
    assert "Usage" in said.say or "I know" in said.say


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"sing": "x"}, "it needs one of: say"),
        ({"say": "x", "loud": True}, "say has no 'loud'"),
        ({"wait": -1}, "at least 0"),
        ({"fail": "server", "times": 0}, "at least 1"),
        ({"fail": "boredom"}, "Input should be 'auth'"),
        ("say", "a table"),
    ],
)
def test_an_action_that_can_not_be_says_why(table: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_action(table)


def test_every_verb_is_the_first_field_of_its_action() -> None:
    assert all(fields(kind)[0].name == verb for verb, kind in VERBS.items())


def test_help_names_every_command() -> None:
    (said,) = read_commands("mock: help")
    assert isinstance(said, Say)
    assert all(f"`mock: {verb}" in said.say for verb in COMMANDS)
    assert "- `mock: tool NAME {JSON}`: call a tool" in said.say and "- `mock: quiet`: say nothing" in said.say


@given(st.text(max_size=80))
def test_no_text_breaks_the_grammar(text: str) -> None:
    read_commands("mock: " + text)
    for verb in COMMANDS:
        read_commands(f"mock: {verb} {text}")


def test_a_matching_step_goes_before_the_next_in_order() -> None:
    steps = [
        Step(actions=(Say(say="1"),)),
        Step(match="Weather", actions=(Say(say="rain"),)),
        Step(match="/^bye$/", once=True, actions=(Say(say="ciao"),)),
        Step(actions=(Say(say="2"),)),
    ]
    assert choose(steps, [], "the weather?") == 1
    assert choose(steps, [], "bye") == 2
    assert choose(steps, [2], "bye") == 0
    assert choose(steps, [0], "x") == 3
    assert choose(steps, [0, 3], "x") is None
