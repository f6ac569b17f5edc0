"""Lines to people, and what became of each.

IRC confirms nothing by itself.  Where the server has echoes and labels, a line's own answer tells (IRCv3
echo-message, labeled-response).  Elsewhere a PING goes out behind the lines: servers work in order, so its PONG says
that they were taken, and whatever was refused has been said before it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jackfield.clock import Clock
from jackfield.errors import (
    Ambiguous,
    BadContent,
    ChannelError,
    ChatNotFound,
    RateLimited,
    SendNotAllowed,
    TooLarge,
    Transient,
)

from jackfield_channel_irc.lines import Line, shown, written
from jackfield_channel_irc.network import Network
from jackfield_channel_irc.pace import Pace

__all__ = ["Outbox"]

ANSWER_SECONDS = 30.0
PATIENCE = 15.0
"""Seconds that a send waits for its turn; beyond, the core waits better."""
SLOW_DOWN_SECONDS = 60.0

_REFUSED: Mapping[str, type[ChannelError]] = {
    "401": ChatNotFound, "402": ChatNotFound, "403": ChatNotFound, "404": SendNotAllowed, "405": SendNotAllowed,
    "407": ChatNotFound, "408": BadContent, "411": ChatNotFound, "412": BadContent, "413": ChatNotFound,
    "414": ChatNotFound, "415": SendNotAllowed, "417": TooLarge, "442": SendNotAllowed, "477": SendNotAllowed,
    "482": SendNotAllowed, "486": SendNotAllowed, "489": SendNotAllowed, "492": SendNotAllowed,
    "531": SendNotAllowed, "716": SendNotAllowed, "937": SendNotAllowed,
}  # fmt: skip
_LATER = ("263", "439", "707")
"""Too fast: try again."""


@dataclass(slots=True)
class _Sent:
    command: str
    target: str
    label: str
    answer: asyncio.Future[str | None]
    """The message's id, or None where the server gives none."""
    echo: str | None = None


class Outbox:
    """For one connection.  `write` hands bytes to the socket."""

    def __init__(self, network: Network, write: Callable[[bytes], None], pace: Pace, clock: Clock) -> None:
        self._network = network
        self._write = write
        self._pace = pace
        self._clock = clock
        self._pending: list[_Sent] = []
        self._numbers = itertools.count(1)
        self._gone: str | None = None

    async def say(
        self, command: str, target: str, texts: Sequence[str], tags: Mapping[str, str] | None = None
    ) -> list[str | None]:
        """Send lines to a target; their ids, each None where the server gives none.  `TAGMSG` has the text "".

        Raises:
            RateLimited: too many lines wait, or the server says so.
            Transient: there is no connection any more, and nothing was sent.
            Ambiguous: something was sent, and no answer came.
            ChannelError: what the server answered.
        """
        if (wait := self._pace.wait()) > PATIENCE:
            raise RateLimited(f"the next line may go in {wait:.0f} s", retry_after=wait, scope="account")
        sent: list[_Sent] = []
        try:
            for text in texts:
                await self._pace.take()
                if self._gone is not None:
                    raise (Ambiguous if sent else Transient)(self._gone)
                if any(one.answer.done() and one.answer.exception() for one in sent):
                    break
                sent.append(self._line(command, target, text, tags or {}))
            self._fence(sent)
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    return list(await asyncio.gather(*(one.answer for one in sent)))
            except TimeoutError:
                raise Ambiguous(f"the server did not say whether it took the message to {target}") from None
        finally:
            for one in sent:
                if one in self._pending:
                    self._pending.remove(one)
                if one.answer.done() and not one.answer.cancelled():
                    one.answer.exception()  # seen, so that nobody is told of it at the end
                else:
                    one.answer.cancel()

    def hint(self, target: str, tags: Mapping[str, str]) -> None:
        """Send tags that nobody misses, such as typing; left out when lines wait."""
        if self._gone is None and self._pace.spare():
            self._write(written("TAGMSG", target, tags=tags))

    def notice(self, nick: str, text: str) -> None:
        """Answer a client's question; left out when lines wait, so that nobody can use us up."""
        if self._gone is None and self._pace.spare():
            self._write(written("NOTICE", nick, text))

    def heard(self, line: Line, label: str | None) -> None:
        """Look whether a line answers something; `label` is its own or its batch's."""
        if label is not None:
            one = next((one for one in self._pending if one.label == label), None)
            if one is not None and line.command != "BATCH":
                self._settle(one, line)
        elif line.command == "PONG":
            self._pong(line.param(-1))
        elif line.command in ("PRIVMSG", "NOTICE", "TAGMSG") and self._network.is_me(line.nick):
            if (one := self._waiting(line.param(0), line.command)) is not None:
                one.echo = line.tags.get("msgid")
        elif (problem := self._problem(line)) is not None and (one := self._refused(line)) is not None:
            one.answer.set_exception(problem)

    def lost(self, reason: str) -> None:
        """The connection is gone: what was not answered may have arrived or not (C081)."""
        self._gone = reason
        for one in self._pending:
            if not one.answer.done():
                one.answer.set_exception(Ambiguous(f"{reason}, before it was said whether the message was taken"))

    # ----

    def _line(self, command: str, target: str, text: str, tags: Mapping[str, str]) -> _Sent:
        label = f"jf{next(self._numbers)}"
        params = (target,) if command == "TAGMSG" else (target, text)
        all_tags = {"label": label, **tags} if self._labels else tags
        one = _Sent(command, self._network.fold(target), label, asyncio.get_running_loop().create_future())
        self._pending.append(one)
        self._write(written(command, *params, tags=all_tags))
        return one

    @property
    def _labels(self) -> bool:
        return {"labeled-response", "echo-message", "batch"} <= self._network.caps

    def _fence(self, sent: Sequence[_Sent]) -> None:
        if sent and not self._labels:
            self._write(written("PING", sent[-1].label))

    def _waiting(self, target: str, command: str | None = None) -> _Sent | None:
        """The oldest line to that target about which nothing is known."""
        folded = self._network.fold(target)
        for one in self._pending:
            unknown = one.echo is None and not one.answer.done()
            if unknown and one.target == folded and one.command == (command or one.command):
                return one
        return None

    def _refused(self, line: Line) -> _Sent | None:
        """The line that a refusal is about: `404 miso #x :...`, `FAIL PRIVMSG CODE #x :...`."""
        return self._waiting(line.param(2 if line.command == "FAIL" else 1))

    def _pong(self, token: str) -> None:
        count = next((number for number, one in enumerate(self._pending, 1) if one.label == token), 0)
        for one in self._pending[:count]:
            if not one.answer.done():
                one.answer.set_result(one.echo)

    def _settle(self, one: _Sent, line: Line) -> None:
        if one.answer.done():
            return
        problem = self._problem(line)
        if problem is not None:
            one.answer.set_exception(problem)
        elif line.command in ("PRIVMSG", "NOTICE", "TAGMSG", "ACK"):
            one.answer.set_result(line.tags.get("msgid"))

    def _problem(self, line: Line) -> ChannelError | None:
        said = f"the server says: {shown(line.param(-1))}"
        if line.command in _LATER:
            return RateLimited(said, retry_after=_seconds_in(line.param(-1)))
        if line.command == "FAIL":
            return SendNotAllowed(said)
        kind = _REFUSED.get(line.command)
        return kind(said) if kind is not None else None


def _seconds_in(text: str) -> float:
    """The wait that a text names ("Please wait 24 seconds"), or a minute."""
    found = next((word for word in text.split() if word.isascii() and word.isdigit() and len(word) < 6), None)
    return float(found) if found is not None else SLOW_DOWN_SECONDS
