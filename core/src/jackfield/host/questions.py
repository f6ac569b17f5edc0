"""Questions to people: who may answer, once, in time, by a click or in words (messaging.md 8.4; C157, C159).

The question is opened in the store when its message is planned.  Whoever answers is judged before anything in the chat
changes; the first allowed answer counts, is written into the session's inbox under the question's id, and the runner is
rung.  When the turn that asked is over, because its runner died, say, the answer is also a notice to the agent, once.
Every other click is told why it did nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

from jackfield.api import ActionReply, Answers
from jackfield.errors import ChannelError, JackfieldError, MalformedData, NotFound
from jackfield.host.admission import admits
from jackfield.host.channels import ChannelDirectory
from jackfield.host.hub import Hub
from jackfield.host.inbox import Inbox
from jackfield.ids import QuestionId, RequestId, SessionId, UserId, derive_id, user_id
from jackfield.models import (
    ActionInvoked,
    Addressed,
    Choice,
    MessageReceived,
    Person,
    Prompt,
    Response,
    ResponseStatus,
    SessionStatus,
    Support,
    Trust,
    loads,
)
from jackfield.store import questions, sessions
from jackfield.store.questions import Decision, Question

__all__ = ["Questions", "match_text_answer"]

log = logging.getLogger(__name__)

_NUMBER = re.compile(r"^\(?(\d{1,3})[.):]?$")
_PLACE = re.compile(r"^#([0-9]{1,3})$")
ANSWER_SECONDS = 15.0
RESPOND_TRIES = 5
RESPOND_WAIT = 5.0
GONE = "This question is not open any more."

Respond = Callable[[SessionId, Response], Awaitable[Any]]


def clicked(prompt: Prompt, value: str) -> Choice | None:
    """The choice of that value; `#<index>`, from 0, is the one at that place, for a channel that forgot the values."""
    found = next((choice for choice in prompt.choices if choice.value == value), None)
    if found is None and (place := _PLACE.match(value)) is not None and int(place[1]) < len(prompt.choices):
        return prompt.choices[int(place[1])]
    return found


def match_text_answer(prompt: Prompt, text: str) -> str | None:
    """The value of the choice that a typed text means: its number (`2`, `2.`), its label or its value; None if none.

    A label that two choices share means neither.
    """
    said = text.strip()
    number = _NUMBER.match(said)
    if number is not None and 1 <= int(number[1]) <= len(prompt.choices):
        return prompt.choices[int(number[1]) - 1].value
    folded = said.casefold()
    meant = [choice.value for choice in prompt.choices if choice.label.strip().casefold() == folded]
    if not meant:
        meant = [choice.value for choice in prompt.choices if choice.value.strip().casefold() == folded]
    return meant[0] if folded and len(meant) == 1 else None


class Questions:
    def __init__(self, hub: Hub, channels: ChannelDirectory, inbox: Inbox, *, respond: Respond) -> None:
        """`respond` writes an answer into a session's inbox, where the first one stays, and rings the runner."""
        self._hub = hub
        self._channels = channels
        self._inbox = inbox
        self._respond = respond

    async def invoked(self, event: ActionInvoked) -> None:
        """Somebody clicked.

        Raises:
            JackfieldError: the answer could not be handed over; with the same event again it will be.
        """
        question = await self._hub.store.read(questions.question, QuestionId(event.prompt_id))
        if question is None or question.address.chat != event.address.chat:
            await self._reply(event, GONE, accepted=False)
            return
        prompt = loads(Prompt, question.prompt)
        choice = clicked(prompt, event.value)
        if choice is None:
            await self._reply(event, "That is no answer to this question.", accepted=False)
        elif not _is_asked(prompt, event.user) or not await self._admitted(event, question, event.user):
            await self._reply(event, "This question is for somebody else.", accepted=False)
        else:
            await self._chosen(event, question, prompt, choice)

    async def _chosen(self, event: ActionInvoked, question: Question, prompt: Prompt, choice: Choice) -> None:
        by = user_id(event.address.channel_type, event.user.handle)
        now = self._hub.clock.now()
        decision = await self._hub.store.write(questions.decide, question.id, choice.value, by, now)
        if decision is Decision.ALREADY:
            # The same click again, after a crash came between deciding and handing over, is the one that counts.
            known = await self._hub.store.read(questions.question, question.id)
            if known is not None and (known.value, known.decided_by) == (choice.value, by):
                decision = Decision.DECIDED
            elif known is not None:
                said = next((one.label for one in prompt.choices if one.value == known.value), known.value or "")
                await self._reply(event, f"Already answered: {said}", accepted=False)
                return
        if decision is Decision.DECIDED:
            await self._hand_over(question, choice.value, by)
            shown = choice.selected_label or choice.label
            heading = prompt.title or prompt.question
            await self._reply(event, f"{heading}\n\n{shown}", accepted=True)
        else:
            await self._reply(event, GONE, accepted=False)

    async def text_answer(self, event: MessageReceived, user: UserId) -> bool:
        """Whether a message was the answer to a question of its chat and thread; then no agent gets it as a message.

        Typed choices count where the channel shows no buttons; free words where the question allows them, in a group
        only when they are addressed to the agent.
        """
        now = self._hub.clock.now()
        for question in await self._hub.store.read(questions.open_in_chat, event.address, now):
            if question.address.thread_id != event.address.thread_id:
                continue
            value = self._answer_in(event, question)
            if value is None or not await self._admitted(event, question, event.sender, user):
                continue
            decision = await self._hub.store.write(questions.decide, question.id, value, user, now)
            if decision is Decision.DECIDED:
                try:
                    await self._hand_over(question, value, user)
                except JackfieldError as problem:
                    log.warning("the answer to %s could not be handed over yet: %s", question.id, problem)
                    self._hub.spawn(self._keep_handing_over(question, value, user), f"answer {question.id}")
                return True
        return False

    def _answer_in(self, event: MessageReceived, question: Question) -> str | None:
        try:
            prompt = loads(Prompt, question.prompt)
        except MalformedData:
            return None
        if not _is_asked(prompt, event.sender):
            return None
        if prompt.allow_text or not self._has_buttons(question, prompt):
            value = match_text_answer(prompt, event.text)
            if value is not None:
                return value
        addressed = not event.is_group or event.addressed is not Addressed.NONE
        text = event.text.strip()
        return text if prompt.allow_text and addressed and text and not text.startswith("/") else None

    async def _admitted(
        self, event: ActionInvoked | MessageReceived, question: Question, person: Person, user: UserId | None = None
    ) -> bool:
        """An answer reaches the agent, so who may not write to it there may not answer either."""
        instance = self._channels.instance(event.address.channel_type, event.address.instance)
        local = instance is not None and instance.info is not None and instance.info.local
        known = user or user_id(event.address.channel_type, person.handle)
        return await admits(self._hub, question.session_id, event.address, person, known, local=local)

    def _has_buttons(self, question: Question, prompt: Prompt) -> bool:
        instance = self._channels.instance(question.address.channel_type, question.address.instance)
        if instance is None or instance.channel is None:
            return False
        can = instance.channel.capabilities(question.address)
        fits = not can.prompt_max_choices or len(prompt.choices) <= can.prompt_max_choices
        return can.prompt is not Support.NONE and bool(prompt.choices) and fits

    async def expire(self) -> None:
        """End the questions whose time is over; each asking session is told once."""
        now = self._hub.clock.now()
        if not await self._hub.store.read(questions.any_due, now):
            return
        for question in await self._hub.store.write(questions.expire_due, now):
            body = json.dumps({"message": "nobody answered in time", "code": "Expired"})
            response = Response(request_id=RequestId(question.id), status=ResponseStatus.EXPIRED, body=body, at=now)
            try:
                await self._respond(question.session_id, response)
            except JackfieldError as problem:
                # The asking tool has a time-out of its own.
                log.info("session %s was not told that its question expired: %s", question.session_id, problem)

    # ---- inside

    async def _hand_over(self, question: Question, value: str, by: UserId) -> None:
        body = json.dumps({"value": value, "by": by}, ensure_ascii=False)
        at = self._hub.clock.now()
        response = Response(request_id=RequestId(question.id), status=ResponseStatus.OK, body=body, at=at)
        awaited = await self._hub.store.read(questions.is_awaited, question, at)
        try:
            await self._respond(question.session_id, response)
            if not awaited:
                await self._tell_late(question, value, by)
        except NotFound:
            log.info("the session that asked %s is gone", question.id)

    async def _tell_late(self, question: Question, value: str, by: UserId) -> None:
        """Nobody waits for the answer any more: the agent reads it as a notice, once, and is woken once (C157)."""
        session = await self._hub.store.read(sessions.session, question.session_id)
        if session is None or session.status is SessionStatus.CLOSED:
            return
        prompt = loads(Prompt, question.prompt)
        label = next((one.label for one in prompt.choices if one.value == value), value)
        text = f"An answer to your earlier question {prompt.title or prompt.question!r}, from {by}: {label}"
        row_id = derive_id("in", session.id, question.id)
        await self._inbox.notify(
            session, text, subject="late answer", wake=True, origin=question.address, row_id=row_id
        )

    async def _keep_handing_over(self, question: Question, value: str, by: UserId) -> None:
        """A typed answer is not routed again, so the hand-over itself is repeated."""
        for tries in range(1, RESPOND_TRIES + 1):
            try:
                await self._hand_over(question, value, by)
                return
            except JackfieldError as problem:
                self._hub.trouble("answer")
                log.warning("the answer to %s could not be handed over (try %d): %s", question.id, tries, problem)
                await self._hub.clock.sleep(RESPOND_WAIT)

    async def _reply(self, event: ActionInvoked, text: str, *, accepted: bool) -> None:
        """Tell the clicker, where the channel can; nothing depends on it."""
        instance = self._channels.instance(event.address.channel_type, event.address.instance)
        channel = instance.channel if instance is not None else None
        if not isinstance(channel, Answers) or event.responder is None:
            return
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await channel.answer(event.responder, event.source, ActionReply(text=text, accepted=accepted))
        except (ChannelError, TimeoutError) as problem:
            log.info("a click in %s could not be answered: %s", event.address, problem)
        except Exception:
            self._hub.trouble(f"channel {event.address.instance}")
            log.exception("a click in %s could not be answered", event.address)


def _is_asked(prompt: Prompt, person: Person) -> bool:
    """Whether the question is for that person; a name that nobody vouches for is nobody's (C141)."""
    if person.is_bot or not prompt.allowed_users:
        return not person.is_bot
    return person.handle in prompt.allowed_users and person.trust is not Trust.UNVERIFIED
