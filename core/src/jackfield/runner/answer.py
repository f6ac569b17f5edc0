"""What a turn has to say: texts of the provider to messages with a place, and what the agent is asked to mend."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from jackfield.api import TurnEnded
from jackfield.models import Address, MessageContent, OutboundKind, OutboundRow
from jackfield.runner.addressing import CURRENT, Target, plan_output, resolve
from jackfield.runner.desk import Desk
from jackfield.runner.drafts import Drafts
from jackfield.runner.intake import Scene
from jackfield.runner.output import Segment, parse_output
from jackfield.runner.prompting import correction

__all__ = ["Answer"]

_LOG = logging.getLogger(__name__)
_CORRECTIONS = 2


class Answer:
    """Collects the provider's texts of a turn until they are written.

    With `wrapped_only` a text without an address is asked to be addressed, once; if that doesn't help, it goes to the
    conversation of the turn all the same (messaging.md 6.4).
    """

    def __init__(self, scene: Scene, desk: Desk, *, wrapped_only: bool) -> None:
        self.corrections = 0
        """How often the agent was asked to mend something in this turn."""
        self.note: str | None = None
        """A word of the runner itself, for the conversation of the turn."""
        self._scene = scene
        self._desk = desk
        self._wrapped_only = wrapped_only
        self._texts: list[str] = []
        self._lost: list[Segment] = []
        self._ready: list[tuple[Target, str, int | None]] = []

    def place_of(self, segment: Segment) -> Address | None:
        """Where a growing text may be shown."""
        if segment.to is None and self._wrapped_only:
            return None
        target = resolve(segment.to, self._scene.destinations, self._scene.origin)
        return None if target is None or target.is_agent else target.address

    def add(self, text: str) -> None:
        """A text that may be part of the reply."""
        self._texts.append(text)

    async def send_between(self, text: str, drafts: Drafts) -> bool:
        """A text between tools is not the answer, but what it addresses is sent at once; whether there was any."""
        addressed = [(n, s) for n, s in enumerate(parse_output(text)) if s.to is not None]
        for number, segment in addressed:
            target = resolve(segment.to, self._scene.destinations, self._scene.origin)
            if target is None:
                self._lost.append(segment)
                continue
            draft = drafts.number_of(number, target.address)
            await self._desk.send(target, segment.text, draft_block=draft)
        return bool(addressed)

    def reply(self, ended: TurnEnded) -> str:
        """The whole final text of the provider's turn."""
        return ended.reply if ended.reply is not None else "\n\n".join(self._texts)

    def forget(self) -> None:
        """What the provider said in its turn is not wanted."""
        self._texts = []

    def place(self, reply: str, drafts: Drafts, *, may_correct: bool) -> str | None:
        """Find a place for each text of the reply.  What the agent must be told to mend it, or None (C005)."""
        # What earlier texts address to somebody counts too, if the reply doesn't hold it.
        earlier = [text for text in self._texts if text not in reply and "<" in text]
        segments = [s for text in earlier for s in parse_output(text) if s.to is not None] + parse_output(reply)
        self._texts = []
        scene = self._scene
        strict = self._wrapped_only and may_correct
        plan = plan_output(segments, scene.destinations, scene.origin, wrapped_only=strict)
        for number, target, text in plan.sends:
            self._ready.append((target, text, drafts.number_of(number, target.address)))
        unknown, self._lost = [*self._lost, *plan.unknown], []
        if not unknown and not plan.unwrapped:
            return None
        if may_correct and self.corrections < (_CORRECTIONS if unknown else 1):
            self.corrections += 1
            drafts.sent()
            return correction(unknown, plan.unwrapped, scene)
        self._give_up(unknown, plan.unwrapped)
        return None

    def rows(self) -> list[OutboundRow]:
        """The messages to write; what was sent there in this turn already is left out (C010)."""
        ready, self._ready = self._ready, []
        found = []
        for target, text, draft in ready:
            if self._desk.ledger.seq_of(target, text) is None:
                self._desk.ledger.remember(target, text, 0)
                content = MessageContent(text=text)
                found.append(self._desk.row(OutboundKind.MESSAGE, content, target, draft_block=draft))
        note, self.note = self.note, None
        if note is not None and self._scene.origin is not None:
            content = MessageContent(text=note, command=True)
            found.append(self._desk.row(OutboundKind.MESSAGE, content, Target(CURRENT, self._scene.origin)))
        return found

    def _give_up(self, unknown: Sequence[Segment], unwrapped: Sequence[str]) -> None:
        """The agent was told and did not mend it: nothing goes astray, and nobody is left waiting unknowingly."""
        for segment in unknown:
            _LOG.warning("a text for the unknown destination %r was not sent", segment.to)
        if unwrapped and self._scene.origin is not None:
            self._ready.extend((Target(CURRENT, self._scene.origin), text, None) for text in unwrapped)
        elif unwrapped:
            _LOG.warning("%d texts have no destination and were not sent", len(unwrapped))
        if unknown and not self._ready and not self._desk.ledger.sent:
            self.note = "(There was an answer, but it was addressed to a destination that does not exist.)"
