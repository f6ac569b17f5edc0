"""Two programs that answer each other without end: noticed by their pace, and ended (channels.md R10; C228, C230).

What a platform marks as a bot's or our own is dropped before this.  What is left are bots that nobody marks: an IRC
bot, a bridge, a script behind a person's account.  Who answers our words again and again faster than a person could
read and write is taken for one; so is who answers them more often than a person would.  Then the agents of the chat
rest for that sender, which ends the loop, since nothing more is said that could be answered.

A memory of this host's life, bounded; times are seconds of a monotonic clock.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum

from jackfield.models import Address

__all__ = ["Loops", "Pace", "Word", "is_made", "weigh"]

REACTION = 1.0
"""Seconds in which nobody reads an answer and writes the next message."""
TYPING = 25.0
"""Characters a second that nobody types for long; a few pasted texts are no loop."""
WINDOW = 600.0
"""Seconds after which an answer counts no more."""
MANY = 10
"""How many times as many answers may come at a person's pace in `WINDOW` as at a machine's in a row."""
QUIET = 30.0
"""Seconds without a word of either side after which somebody may go on before the rest is over.

A program that only answers has fallen silent by then; a person who was taken for one has not lost the chat.
"""
KEPT = 2000
"""Chats and senders that are kept in mind."""


class Word(StrEnum):
    """What a message means for the loop that it may belong to."""

    PASS = "pass"
    TRIP = "trip"
    """This one makes it a loop: it goes to no agent, and the chat is told once."""
    REST = "rest"
    """It comes while the agents rest."""


@dataclass(slots=True)
class Pace:
    """How one sender writes in one chat."""

    made: int = 0
    """Answers in a row that came at a machine's pace."""
    answers: int = 0
    """Answers of any pace since `since`."""
    since: float = 0.0
    heard: float = float("-inf")
    """When the sender wrote last."""
    rests_until: float | None = None


def is_made(length: int, waited: float) -> bool:
    """Whether a text of that many characters, that long after ours, is a program's."""
    return waited < REACTION or length > waited * TYPING


def weigh(pace: Pace, *, said: float, length: int, marked: bool, now: float, turns: int, rest: float) -> Word:
    """Count a message, and say what it means.

    `said` is when we wrote last in that chat, `marked` whether the platform calls the sender a bot.  A message counts
    when it answers one of ours; of several in a row only the first does.
    """
    last, pace.heard = pace.heard, now
    if pace.rests_until is not None:
        if now < pace.rests_until and now - max(said, last) < QUIET:
            return Word.REST
        pace.rests_until, pace.made, pace.answers = None, 0, 0
    if said < last:
        return Word.PASS
    if now - pace.since > WINDOW:
        pace.since, pace.answers, pace.made = now, 0, 0
    pace.answers += 1
    pace.made = pace.made + 1 if marked or is_made(length, now - said) else 0
    if pace.made <= turns and pace.answers <= turns * MANY:
        return Word.PASS
    pace.rests_until = now + rest
    return Word.TRIP


Chat = tuple[str, str, str]
"""Channel type, instance and platform id: these hash faster than an `Address`."""


def _chat(address: Address) -> Chat:
    return address.channel_type, address.instance, address.platform_id


class Loops:
    """The paces of all chats."""

    def __init__(self) -> None:
        self._said: OrderedDict[Chat, float] = OrderedDict()
        self._answering: set[Chat] = set()
        self._paces: OrderedDict[tuple[str, str, str, str], Pace] = OrderedDict()

    def say(self, address: Address, now: float) -> None:
        """Something of ours leaves for that chat, or begins to be shown there.

        Of an answer in several parts, or one that grows while it is written, the beginning counts: people read along.
        """
        chat = _chat(address)
        if chat in self._answering:
            return
        self._answering.add(chat)
        self._said[chat] = now
        self._said.move_to_end(chat)
        if len(self._said) > KEPT:
            self._answering.discard(self._said.popitem(last=False)[0])

    def hear(
        self, address: Address, sender: str, *, length: int, marked: bool, now: float, turns: int, rest: float
    ) -> Word:
        """Somebody wrote there what would go to an agent.  `sender` is empty for all whom nobody vouches for: they may
        change their names with every message.  `turns` 0 turns the watch off."""
        chat = _chat(address)
        said = self._said.get(chat)
        if said is None or not turns:
            return Word.PASS  # nothing of ours that it could answer
        self._answering.discard(chat)
        key = (*chat, sender)
        pace = self._paces.get(key)
        if pace is None:
            pace = self._paces[key] = Pace(since=now)
            if len(self._paces) > KEPT:
                self._paces.popitem(last=False)
        self._paces.move_to_end(key)
        return weigh(pace, said=said, length=length, marked=marked, now=now, turns=turns, rest=rest)

    def person(self, address: Address, sender: str) -> None:
        """A sign that no program gives by answering: that sender pressed a button there."""
        self._paces.pop((*_chat(address), sender), None)
