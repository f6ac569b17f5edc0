"""Clicks on cards, and typed answers where there are no buttons (C149, C155).

Whoever answers is judged by their roles of this moment and by the chat in which the card lies; everybody else is told
privately, and nothing changes.  A typed text counts only where a card lies that can't be clicked, or as a reply to the
card, and only when it is exactly the number or the label of a choice.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence

from jackfield.api import ActionReply, ApprovalChoice, ApprovalState, SendPath
from jackfield.api import Answers as AnswersClicks
from jackfield.clock import UnixMs
from jackfield.errors import ChannelError, MalformedData
from jackfield.host.approvals import cards, policy
from jackfield.host.approvals.engine import Approvals
from jackfield.host.approvals.showing import LOCAL_OPERATOR, Showing
from jackfield.host.channels import ChannelDirectory
from jackfield.host.delivery import Delivery
from jackfield.host.hub import Hub
from jackfield.host.questions import GONE, Questions
from jackfield.ids import ApprovalId, UserId, is_id, user_id
from jackfield.models import ActionInvoked, Address, MessageReceived, OutMessage, Person, Support, Trust
from jackfield.store import approval_cards, approvals, people
from jackfield.store.approval_cards import Card
from jackfield.store.approvals import Approval, Via

__all__ = ["Answers", "typed_choice"]

log = logging.getLogger(__name__)

ANSWER_SECONDS = 15.0
SEVERAL = "Several decisions wait in this chat. Reply to the one that you mean."
DOUBTFUL = (
    "Something else was written here since you were asked about “{title}”. If “{choice}” is your answer to that, write "
    "the same again; {id} is its number for `jackfield approval show`."
)
_NUMBER = re.compile(r"^\(?(\d{1,2})[.):]?$")
_PLACE = re.compile(r"^#([0-9]{1,3})$")


def clicked_choice(choices: Sequence[ApprovalChoice], value: str) -> ApprovalChoice | None:
    """The choice of a button; `#<index>`, from 0, is the one at that place, for a channel that forgot the values."""
    found = next((one for one in choices if one.value == value), None)
    if found is None and (place := _PLACE.match(value)) is not None and int(place[1]) < len(choices):
        return choices[int(place[1])]
    return found


def typed_choice(choices: Sequence[ApprovalChoice], text: str) -> ApprovalChoice | None:
    """The choice whose number (`2`, `2.`) or label is typed, and nothing else; None if none, or not one alone."""
    said = text.strip()
    number = _NUMBER.match(said)
    if number is not None and number[1].isascii() and 1 <= int(number[1]) <= len(choices):
        return choices[int(number[1]) - 1]
    meant = [one for one in choices if said and one.label.strip().casefold() == said.casefold()]
    return meant[0] if len(meant) == 1 else None


class Answers:
    """Where clicks and texts are heard first; what is no answer to an approval goes on to the questions."""

    def __init__(
        self,
        hub: Hub,
        channels: ChannelDirectory,
        approvals: Approvals,
        showing: Showing,
        delivery: Delivery,
        questions: Questions,
    ) -> None:
        self._hub = hub
        self._channels = channels
        self._approvals = approvals
        self._showing = showing
        self._delivery = delivery
        self._questions = questions

    # ---- clicks

    async def invoked(self, event: ActionInvoked) -> None:
        """Somebody clicked.

        Raises:
            JackfieldError: it could not be judged or recorded; with the same event again it will be.
        """
        if not is_id(event.prompt_id, "ap"):
            await self._questions.invoked(event)
            return
        id = ApprovalId(event.prompt_id.lower())
        item = await self._hub.store.read(approvals.approval, id)
        lies_here = item is not None and any(
            card.address.chat == event.address.chat
            for card in await self._hub.store.read(approval_cards.cards_of, item.id)
        )
        choice = clicked_choice(item.choices, event.value) if item is not None else None
        if item is None or not lies_here:
            await self._reply(event, GONE, accepted=False)
        elif choice is None:
            await self._reply(event, "That is no answer to this.", accepted=False)
        elif not await self._may(item, event.user, event.address):
            await self._reply(event, "Only an owner, or an admin of this agent, decides this.", accepted=False)
        else:
            await self._click(event, item, choice)

    async def _click(self, event: ActionInvoked, item: Approval, choice: ApprovalChoice) -> None:
        async with self._showing.lock(item.id):  # what follows from it changes the card only after the click's answer
            decided = await self._clicked(event, item, choice)
        if decided is not None:
            await self._showing.refresh(decided)

    async def _clicked(self, event: ActionInvoked, item: Approval, choice: ApprovalChoice) -> Approval | None:
        """Decide, and answer; the approval when its card here may be an old one."""
        by = self._name(event.user, event.address, None)
        decided, counts = await self._approvals.decide(item.id, choice.value, by, Via.CARD)
        # The same click again, after a crash came between deciding and answering, is the one that counted.
        again = (decided.value, decided.decided_by) == (choice.value, by)
        if counts or again:
            parts = [
                len(card.parts or ())
                for card in await self._hub.store.read(approval_cards.cards_of, item.id)
                if card.address.chat == event.address.chat
            ]
            text = await self._showing.final_text(decided, whole=parts == [1])
            if await self._reply(event, text, accepted=True) and event.source is not None:
                await self._showing.answered(decided, event.address)
        elif decided.state is ApprovalState.PENDING:
            await self._reply(event, "Its time is over.", accepted=False)
        else:
            name = await self._showing.name_of(decided.decided_by)
            await self._reply(event, f"Already: {cards.verdict(decided, name)}", accepted=False)
            return decided
        return None

    async def _reply(self, event: ActionInvoked, text: str, *, accepted: bool) -> bool:
        """Tell the clicker, where the channel can.  Whether it did; if not, the card is changed as if by anybody."""
        instance = self._channels.instance(event.address.channel_type, event.address.instance)
        channel = instance.channel if instance is not None else None
        if not isinstance(channel, AnswersClicks) or event.responder is None:
            return False
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await channel.answer(event.responder, event.source, ActionReply(text=text, accepted=accepted))
            return True
        except (ChannelError, MalformedData, TimeoutError) as problem:
            log.info("a click in %s could not be answered: %s", event.address, problem)
        except Exception:
            self._hub.trouble(f"channel {event.address.instance}")
            log.exception("a click in %s could not be answered", event.address)
        return False

    # ---- texts

    async def text_answer(self, event: MessageReceived, user: UserId) -> bool:
        """Whether a message was an answer; then no agent gets it as a message."""
        now = self._hub.clock.now()
        waiting = await self._hub.store.read(approval_cards.open_in_chat, event.address, now)
        here = [card for card in waiting if card.address.thread_id == event.address.thread_id]
        if here and await self._decided_by_text(event, user, here):
            return True
        return await self._questions.text_answer(event, user)

    async def _decided_by_text(self, event: MessageReceived, user: UserId, here: Sequence[Card]) -> bool:
        answered = event.reply_to.platform_id if event.reply_to is not None else None
        meant = [card for card in here if answered is not None and any(answered in ids for ids in card.parts or ())]
        bare = not meant
        if bare and not event.is_group:
            meant = [card for card in here if not self._has_buttons(card.address)]
        found: list[tuple[Approval, ApprovalChoice]] = []
        for card in meant:
            item = await self._hub.store.read(approvals.approval, card.approval_id)
            choice = typed_choice(item.choices, event.text) if item is not None else None
            if item is not None and choice is not None and await self._may(item, event.sender, event.address, user):
                found.append((item, choice))
        if len(found) > 1:
            await self._delivery.send_direct(event.address, OutMessage(text=SEVERAL), path=SendPath.NOTICE)
            return True
        for item, choice in found:
            if bare and await self._is_doubtful(item, choice, meant, event.address):
                return True
            by = self._name(event.sender, event.address, user)
            await self._approvals.decide(item.id, choice.value, by, Via.REPLY)
        return bool(found)

    async def _is_doubtful(
        self, item: Approval, choice: ApprovalChoice, cards_here: Sequence[Card], at: Address
    ) -> bool:
        """Whether the text may be meant for what an agent wrote below the card, such as a list of its own with a 1.

        Then the person is asked for the same once more, and told for what.
        """
        card = next(one for one in cards_here if one.approval_id == item.id)
        if not await self._hub.store.read(approval_cards.is_covered, card):
            return False
        text = DOUBTFUL.format(choice=cards.label(choice.label), title=cards.label(item.title), id=item.id)
        await self._delivery.send_direct(at, OutMessage(text=text), path=SendPath.NOTICE)
        await self._hub.store.write(approval_cards.named, card, UnixMs(self._hub.clock.now() + 1))
        return True

    def _has_buttons(self, address: Address) -> bool:
        instance = self._channels.instance(address.channel_type, address.instance)
        if instance is None or instance.channel is None:
            return True
        return instance.channel.capabilities(address).prompt is not Support.NONE

    # ---- who

    def _is_operator(self, person: Person, at: Address) -> bool:
        instance = self._channels.instance(at.channel_type, at.instance)
        local = instance is not None and instance.info is not None and instance.info.local
        return local and person.trust is Trust.OPERATOR

    def _name(self, person: Person, at: Address, user: UserId | None) -> str:
        return LOCAL_OPERATOR if self._is_operator(person, at) else user or user_id(at.channel_type, person.handle)

    async def _may(self, item: Approval, person: Person, at: Address, user: UserId | None = None) -> bool:
        """Whether that person may decide it, by their roles now."""
        if person.is_bot or person.is_self:
            return False
        who = user or user_id(at.channel_type, person.handle)
        roles = await self._hub.store.read(people.roles_of, who)
        local = self._is_operator(person, at)
        return policy.may_decide(roles, person.trust, item.agent_group_id, local=local)
