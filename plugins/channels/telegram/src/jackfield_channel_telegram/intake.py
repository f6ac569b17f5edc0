"""The long poll: every update is stored before Telegram is told that it came (channels.md 1.5).

Telegram forgets what is below the offset of the next poll.  So the offset follows the stored cursor, and the cursor
moves in the transaction that stores the event.  An album holds the offset back until it is whole, while others'
messages are taken at once; those are noted in the cursor, so that after a crash nothing comes twice.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jackfield.api import ChannelContext, Cursor
from jackfield.clock import UnixMs
from jackfield.errors import ChannelError, JackfieldError
from jackfield.models import ActionInvoked, ChannelState, ChannelStatus, Event
from jackfield_channel_kit.reconnect import backoff

from jackfield_channel_telegram.api import Bot, Conflict
from jackfield_channel_telegram.reading import ALLOWED_UPDATES, Reader, Update, album_of

__all__ = ["CURSOR", "Place", "Poller", "deliver"]

log = logging.getLogger(__name__)

CURSOR = "updates"
POLL_SECONDS = 50
TRIAL_SECONDS = 5
"""After trouble: who polls so long undisturbed is alone again."""
ANSWER_SECONDS = 15.0
"""How much later than the poll's own end an answer may come."""
QUIET_MS = 6 * 86_400_000
"""After a week without updates Telegram counts from elsewhere; before that the offset is given up."""

Clicked = Callable[[str, bool], None]
"""Called with the id of a click, and whether the core may have something to say to it."""


@dataclass(slots=True)
class Place:
    """How far updates were taken: all up to `last`, and some above it.  As text: `last time some,some`."""

    last: int = 0
    at: int = 0
    above: set[int] = field(default_factory=set)

    @classmethod
    def parse(cls, text: str | None) -> Place:
        """Read the stored text; an unreadable one is the beginning, for what comes twice is recognised."""
        parts = (text or "").split(" ")
        try:
            above = {int(one) for one in parts[2].split(",")} if len(parts) > 2 else set()
            return cls(int(parts[0]), int(parts[1]), above)
        except (ValueError, IndexError):
            return cls()

    def __str__(self) -> str:
        above = f" {','.join(map(str, sorted(self.above)))}" if self.above else ""
        return f"{self.last} {self.at}{above}"

    def offset(self, now: UnixMs) -> int | None:
        """What to ask for; None for all that nobody confirmed."""
        return self.last + 1 if self.last and now - self.at < QUIET_MS else None

    def knows(self, update_id: int) -> bool:
        return update_id in self.above

    def after(self, taken: Sequence[int], open_ids: Sequence[int], now: UnixMs) -> Place:
        """With these taken as well, while `open_ids` are still to be."""
        done = self.above | set(taken)
        bound = min(open_ids, default=None)
        below = {one for one in done if bound is None or one < bound}
        return Place(max(below), now, done - below) if below else Place(self.last, self.at, done)


class Poller:
    """Polls until it is cancelled or fails."""

    def __init__(
        self, bot: Bot, reader: Reader, context: ChannelContext, *, album_seconds: float, clicked: Clicked
    ) -> None:
        self._bot = bot
        self._reader = reader
        self._context = context
        self._album_seconds = album_seconds
        self._clicked = clicked
        self._place = Place()
        self._albums: dict[tuple[int, str], tuple[float, dict[int, Update]]] = {}
        """When each album that isn't taken yet grew last, and its updates."""

    async def run(self, ready: Callable[[], None]) -> None:
        """Take what comes.

        Raises:
            AuthFailed: the token was revoked.
            ChannelError: a poll failed.
        """
        self._albums.clear()
        self._place = Place.parse(await self._context.cursor(CURSOR))
        await self._bot.read("deleteWebhook")
        ready()
        troubles = 0
        while True:
            try:
                await self._take(await self._poll(TRIAL_SECONDS if troubles else POLL_SECONDS))
            except Conflict as problem:  # sending goes on, so the connection is not lost (C236)
                reason = _told(problem)
            except ChannelError:
                raise
            except JackfieldError as problem:  # it is not confirmed, so it comes again
                reason = f"what came can't be stored: {problem.message}"
            else:
                if troubles:
                    troubles = 0
                    self._report(ChannelState.READY, "")
                continue
            troubles += 1
            wait = backoff(troubles, 1.0, 60.0, 1.0)
            often = f" ({troubles} times in a row)" if troubles > 1 else ""
            log.warning("channel %s: %s%s", self._context.instance, reason, often)
            self._report(ChannelState.DEGRADED, f"{reason}{often}; next try in {wait:.0f} s")
            await self._context.clock.sleep(wait)

    async def _poll(self, timeout: int) -> list[Update]:
        clock = self._context.clock
        if self._albums:  # what is not confirmed comes again at once
            due = min(grown for grown, _ in self._albums.values()) + self._album_seconds
            await clock.sleep(due - clock.monotonic())
        timeout = 0 if self._albums else timeout
        asked = {
            "offset": self._place.offset(clock.now()),
            "timeout": timeout,
            "allowed_updates": ALLOWED_UPDATES,
        }
        found = await self._bot.read("getUpdates", asked, timeout=timeout + ANSWER_SECONDS)
        return [one for one in found if isinstance(one, Mapping)]

    async def _take(self, updates: Sequence[Update]) -> None:
        now = self._context.clock.monotonic()
        fresh = [one for one in updates if not self._place.knows(one["update_id"])]
        singles = []
        for update in fresh:
            album = album_of(update)
            if album is None:
                singles.append(update)
                continue
            grown, parts = self._albums.get(album, (now, {}))
            if update["update_id"] not in parts:
                self._albums[album] = (now, {**parts, update["update_id"]: update})
        waiting = [one["update_id"] for one in singles]
        for update in singles:
            waiting.remove(update["update_id"])
            await self._accept([update], waiting)
        for album, (grown, parts) in list(self._albums.items()):
            if now - grown >= self._album_seconds:
                del self._albums[album]
                try:
                    await self._accept([parts[number] for number in sorted(parts)], ())
                except BaseException:
                    self._albums[album] = (grown, parts)
                    raise

    async def _accept(self, updates: Sequence[Update], waiting: Sequence[int]) -> None:
        """Store what these updates say, and the place behind them with it."""
        still_open = [*waiting, *(number for _, parts in self._albums.values() for number in parts)]
        taken = [one["update_id"] for one in updates]
        place = self._place.after(taken, still_open, self._context.clock.now())
        cursor = Cursor(CURSOR, str(place))
        await deliver(self._reader, updates, lambda event, last: self._context.accept(event, cursor if last else None),
                      self._clicked)  # fmt: skip
        self._place = place

    def _report(self, state: ChannelState, detail: str) -> None:
        self._context.report(ChannelStatus(state=state, detail=detail))


async def deliver(
    reader: Reader,
    updates: Sequence[Update],
    accept: Callable[[Event, bool], Awaitable[Any]],
    clicked: Clicked,
) -> None:
    """Store the events of an update, or of an album's; `accept` gets each and whether it is the last.

    What can't be read is left out with a line in the log: asking for it again would not help.
    """
    try:
        events = reader.events(updates)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        number = updates[0].get("update_id")
        log.warning("update %s is not as the Bot API says and was left out: %r", number, problem)
        events = []
    for index, event in enumerate(events):
        await accept(event, index == len(events) - 1)
    query = updates[0].get("callback_query")
    if isinstance(query, Mapping) and query.get("id"):
        clicked(str(query["id"]), any(isinstance(one, ActionInvoked) for one in events))


def _told(problem: Conflict) -> str:
    what = "another program set a webhook" if "webhook" in problem.message else "another program polls"
    return f"{what} with this bot's token, so nothing comes in: stop it, or revoke the token at @BotFather"
