"""The pace of a chat: programs that answer each other are stopped, people are not (C228, C230)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield.host.loops import KEPT, QUIET, REACTION, TYPING, Loops, Word
from jackfield.models import Address

CHAT = Address("irc", "net", "#room")


@dataclass
class Talk:
    """A chat in which the agent answers at once whatever it gets."""

    loops: Loops = field(default_factory=Loops)
    now: float = 1000.0
    turns: int = 10
    rest: float = 600.0
    answers: int = 0

    def answer(self, at: Address = CHAT) -> None:
        self.loops.say(at, self.now)
        self.answers += 1

    def hear(self, after: float, length: int = 20, sender: str = "x", *, marked: bool = False) -> Word:
        self.now += after
        word = self.loops.hear(
            CHAT, sender, length=length, marked=marked, now=self.now, turns=self.turns, rest=self.rest
        )
        if word is Word.PASS:
            self.answer()
        return word


def test_a_program_that_answers_at_once_is_stopped_and_told_once() -> None:
    """C228: a reply to a reply, without end."""
    talk = Talk()
    words = [talk.hear(0.2) for _ in range(30)]
    assert words[:11] == [Word.PASS] * 11
    assert words[11] is Word.TRIP
    assert set(words[12:]) == {Word.REST}


def test_a_program_that_writes_faster_than_people_type_is_stopped() -> None:
    """C228: a model on the other side needs seconds, and writes pages in them."""
    talk = Talk()
    assert [talk.hear(8.0, length=900) for _ in range(12)][-1] is Word.TRIP


def test_a_slow_program_is_stopped_by_its_number_of_answers() -> None:
    """C230: a hundred events, each the start of the next run."""
    talk = Talk()
    words = [talk.hear(3.0, length=10) for _ in range(150)]
    assert words.index(Word.TRIP) == 101


@given(st.lists(st.tuples(st.floats(1.1, 40.0), st.integers(1, 400)), min_size=1, max_size=80))
def test_a_quick_person_is_never_taken_for_a_program(said: list[tuple[float, int]]) -> None:
    """No false alarm for whatever somebody types at 20 characters a second or less, in a chat of eighty messages."""
    talk = Talk()
    assert {talk.hear(max(pause, length / 20), length) for pause, length in said} == {Word.PASS}


def test_a_person_who_pastes_now_and_then_is_no_program() -> None:
    talk = Talk()
    assert {talk.hear(4.0, length=3000 if turn % 5 else 30) for turn in range(60)} == {Word.PASS}


def test_who_reads_along_while_an_answer_grows_is_no_program() -> None:
    """An answer is written for half a minute, and the next message is typed meanwhile."""
    talk = Talk()
    for _ in range(40):
        assert talk.hear(0.5, length=100) is Word.PASS
        talk.now += 30
        talk.answer()  # its last part


def test_several_messages_before_an_answer_count_as_one() -> None:
    talk = Talk()
    talk.answer()
    talk.now += 5
    words = {
        talk.loops.hear(CHAT, "x", length=20, marked=False, now=talk.now, turns=talk.turns, rest=talk.rest)
        for _ in range(500)
    }
    assert words == {Word.PASS}


def test_what_answers_nothing_of_ours_is_no_loop() -> None:
    """A feed of messages that no agent answers goes on."""
    talk = Talk()
    words = {
        talk.loops.hear(CHAT, "x", length=20, marked=True, now=talk.now + turn, turns=talk.turns, rest=talk.rest)
        for turn in range(500)
    }
    assert words == {Word.PASS}


def test_the_rest_ends_by_itself_and_sooner_in_silence() -> None:
    talk = Talk()
    for _ in range(12):
        talk.hear(0.2)
    assert talk.hear(1.0) is Word.REST
    assert talk.hear(QUIET - 1) is Word.REST
    assert talk.hear(QUIET + 1) is Word.PASS
    for _ in range(11):
        talk.hear(0.2)
    for _ in range(int(talk.rest / 10)):
        talk.hear(10.0)
    assert talk.hear(10.0) is Word.PASS


def test_one_who_is_stopped_stops_nobody_else_and_a_button_frees_them() -> None:
    talk = Talk()
    for _ in range(12):
        talk.hear(0.2)
    assert talk.hear(0.2, sender="ann") is Word.PASS
    assert talk.hear(0.2) is Word.REST
    talk.loops.person(CHAT, "x")
    assert talk.hear(0.2) is Word.PASS


def test_what_the_platform_calls_a_bot_counts_at_any_pace() -> None:
    """C228: bots that are let in have a budget too."""
    talk = Talk()
    assert [talk.hear(20.0, length=5, marked=True) for _ in range(12)][-1] is Word.TRIP


def test_the_watch_can_be_turned_off_and_forgets_old_chats() -> None:
    talk = Talk(turns=0)
    assert {talk.hear(0.01) for _ in range(300)} == {Word.PASS}
    talk = Talk()
    for number in range(KEPT + 5):
        talk.answer(Address("irc", "net", f"#{number}"))
    assert talk.hear(0.1) is Word.PASS


@pytest.mark.parametrize("waited", [REACTION / 2, 10.0])
def test_the_threshold_is_that_of_reading_and_typing(waited: float) -> None:
    talk = Talk()
    length = int(waited * TYPING) + 1
    assert [talk.hear(waited, length) for _ in range(12)][-1] is Word.TRIP
