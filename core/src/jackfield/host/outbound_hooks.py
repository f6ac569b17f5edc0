"""What hooks say of a message before it is sent: the guards first, then those that compose its words (C187, C189)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from jackfield.api import OutboundPart
from jackfield.errors import HookFailed
from jackfield.host.hub import Hub
from jackfield.models import Card, DeliveryState, OutMessage, Prompt

__all__ = ["Refusal", "passed_hooks"]

_Composer = Callable[[str], Awaitable[str]]


class Refusal(Exception):
    """A message that will not be sent; `state` and `reason` go into the ledger."""

    def __init__(self, state: DeliveryState, reason: str, error: str) -> None:
        super().__init__(error)
        self.state = state
        self.reason = reason
        self.error = error


async def passed_hooks(hub: Hub, part: OutboundPart) -> OutMessage:
    """The message after the guards allowed it and the composing hooks changed its words (C187, C189).

    Raises:
        Refusal: a guard said no, or failed.
    """
    dispatcher = hub.plugins.dispatcher
    if dispatcher.has("intercept_outbound"):
        try:
            verdict = await dispatcher.first("intercept_outbound", part=part)
        except HookFailed as problem:
            raise Refusal(DeliveryState.BLOCKED, "GuardFailed", str(problem)) from None
        if verdict is not None and not verdict.allow:
            raise Refusal(DeliveryState.BLOCKED, "Guard", verdict.reason or "a guard blocked it")
    if not dispatcher.has("compose_outbound"):
        return part.message

    async def composed(text: str) -> str:
        return await dispatcher.compose("compose_outbound", "text", text, part=part) if text else text

    message = part.message
    card, prompt = message.card, message.prompt
    if card is not None:
        card = await _composed_card(card, composed)
    if prompt is not None:
        prompt = await _composed_prompt(prompt, composed)
    return replace(message, text=await composed(message.text), card=card, prompt=prompt)


async def _composed_card(card: Card, composed: _Composer) -> Card:
    return replace(
        card,
        title=await composed(card.title),
        text=await composed(card.text),
        fields=tuple(
            [replace(item, name=await composed(item.name), value=await composed(item.value)) for item in card.fields]
        ),
        links=tuple([replace(link, label=await composed(link.label)) for link in card.links]),
        fallback_text=await composed(card.fallback_text),
    )


async def _composed_prompt(prompt: Prompt, composed: _Composer) -> Prompt:
    return replace(
        prompt,
        title=await composed(prompt.title),
        question=await composed(prompt.question),
        choices=tuple(
            [
                replace(
                    choice,
                    label=await composed(choice.label),
                    selected_label=await composed(choice.selected_label),
                )
                for choice in prompt.choices
            ]
        ),
    )
