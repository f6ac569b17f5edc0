"""What to do after a turn, a crash or a send went wrong (architecture 5, rule 5).  Pure: values to a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jackfield.clock import UnixMs
from jackfield.errors import (
    Ambiguous,
    AuthFailed,
    BadContent,
    ChannelError,
    Migrated,
    NobodyListening,
    ProviderErrorKind,
    RateLimited,
    Transient,
)
from jackfield.models import TurnError
from jackfield.plugins.files import one_line

__all__ = [
    "HINTS",
    "KEPT_TEXT",
    "MAX_TRIES",
    "NEEDS_OWNER",
    "SEND_WINDOW",
    "WAIT_TEXT",
    "Complete",
    "Fail",
    "GiveUp",
    "LookUp",
    "MoveTo",
    "ParkScope",
    "ParkSession",
    "RetryAt",
    "SendAgain",
    "SendDecision",
    "SendPlain",
    "SendState",
    "TurnDecision",
    "Wait",
    "about",
    "after_crash",
    "after_send",
    "after_turn",
    "turn_delay",
]

FIRST_DELAY = 5.0
LONGEST_DELAY = 80.0
MAX_TRIES = 5
"""Retries after the first run, 5, 10, 20, 40 and 80 s apart."""
SCOPE_DELAY = 60.0
"""How long a shared credential or provider rests when nobody said how long; doubles with each try."""
TRIES: dict[ProviderErrorKind, int] = {"context_overflow": 1, "continuation_lost": 1, "engine_crash": 3, "protocol": 3}
"""Retries of kinds that have fewer, where the error says at all that trying again may help."""
NEEDS_OWNER: frozenset[ProviderErrorKind] = frozenset({"auth", "billing", "permission", "engine_missing"})
"""What waiting does not mend: a key, an account, a program."""
MEND_TRIES = 78
"""Retries while an owner should mend it: the first six come within an hour or so, the others once an hour."""
KEPT_TEXT = "Your message is kept and answered later."
WAIT_TEXT = f"The model can't be reached at the moment. {KEPT_TEXT}"
LEAST_TOLD = 90.0
"""Seconds from which people are told how long a wait may be."""
HINTS: dict[ProviderErrorKind, str] = {
    "refusal": "Its model declined to; it may help to ask in another way.",
    "output_limit": "The answer became too long; ask for a shorter one, or for a part of it.",
    "context_overflow": "The conversation is too long for its model; /clear begins a new one.",
    "budget": "What it may spend is used up for now.",
    "livelock": "It went round in circles and was stopped.",
    "model_not_found": "Its operator has to look at which model it is set to.",
    "engine_missing": "Its operator has to look at what is installed.",
    "config": "Its operator has to look at how it is set up.",
    "mcp_unavailable": "A program that it needs for its tools does not answer.",
}
"""What else people are told at the end, where that helps them."""
REASON_LENGTH = 300
"""Characters of an error's sentence that the ledger keeps."""
SEND_FIRST = 1.0
SEND_LONGEST = 300.0
SEND_WINDOW = 24 * 3600.0
"""Seconds from the first try after which a transient failure is final."""


# ---- turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """The message has its end, without another turn."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryAt:
    """Give the message to the runner again at `at`.  With `resume` the next turn continues the conversation and does
    not send the prompt again."""

    at: UnixMs
    reason: str
    resume: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkSession:
    """No turn of this session before `until`; `tell` goes to the person, once for each parking."""

    until: UnixMs
    reason: str
    tell: str
    resume: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkScope:
    """No turn of any session that shares the credential or provider before `until`."""

    scope: Literal["credential", "provider"]
    until: UnixMs
    reason: str
    tell: str
    resume: bool = False
    tell_owner: str | None = None
    """What an owner is told, who alone can mend it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """Final.  `tell` goes to the person, once."""

    reason: str
    tell: str


TurnDecision = Complete | RetryAt | ParkSession | ParkScope | Fail


def turn_delay(tries: int) -> float:
    """Seconds before retry number `tries + 1`."""
    return min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(tries, 16))


def after_turn(error: TurnError, attempts: int, now: UnixMs, *, random: float = 0.0) -> TurnDecision:
    """After a turn that ended with an error.  `attempts` counts the runs of this message so far, this one included;
    `random` is in [0, 1) and spreads long waits, so that not all who share a limit come back in the same moment.

    A wait that the provider asked for and that is longer than any delay of ours parks the session; a failure whose
    scope is a credential or a provider parks all that share it, also when it is not retryable by itself, because then
    somebody must mend the credential and the message should still be answered.

    Tries: five retries in all; one for a conversation that was lost or became too long, since the next turn begins a
    new one; three for an engine that breaks off (as it was, then with a new conversation); for what only an owner can
    mend, one an hour for three days.

    The reason is for operators: the kind of the error and its own sentence.  In the chat only the kind is named, unless
    the provider has words for people: an engine's sentence may tell of the operator's account or machine.
    """
    if error.kind == "cancelled":
        return Complete(reason="cancelled")
    shared = _shared(error)
    mend = shared is not None and not error.retryable and error.kind in NEEDS_OWNER
    tries = max(0, attempts - 1)
    reason = _reason(error)
    if tries >= (MEND_TRIES if mend else TRIES.get(error.kind, MAX_TRIES)) or not (error.retryable or shared):
        return Fail(reason=reason, tell=error.message_for_user or _sorry(error, tries))
    asked = max(0.0, error.retry_after or 0.0)
    spread = random * min(30.0, 0.1 * asked)
    if shared is not None:
        until = _after(now, asked + spread if asked else min(3600.0, SCOPE_DELAY * 2.0 ** min(tries, 16)))
        return ParkScope(
            scope=shared,
            until=until,
            reason=reason,
            tell=_wait_text(error, asked),
            resume=error.tools_ran,
            tell_owner=reason if mend else None,
        )
    if asked > LONGEST_DELAY:
        until = _after(now, asked + spread)
        return ParkSession(until=until, reason=reason, tell=_wait_text(error, asked), resume=error.tools_ran)
    return RetryAt(at=_after(now, max(asked, turn_delay(tries))), reason=reason, resume=error.tools_ran)


def _shared(error: TurnError) -> Literal["credential", "provider"] | None:
    """Who else it concerns.  A key that is refused, or an account that is not paid, is never one turn's trouble."""
    if error.scope == "credential" or error.scope == "provider":
        return error.scope
    return "credential" if error.kind in ("auth", "billing") else None


def after_crash(attempts: int, now: UnixMs) -> RetryAt | Fail:
    """After a runner died with the message in its hands.  `attempts` counts the runs that really got it (C088)."""
    tries = max(0, attempts - 1)
    if tries >= MAX_TRIES:
        return Fail(
            reason="crashed",
            tell=f"The agent broke off {attempts} times over this message; it will not try again by itself.",
        )
    return RetryAt(at=_after(now, turn_delay(tries)), reason="crashed")


def _reason(error: TurnError) -> str:
    """``kind: sentence`` in one line."""
    sentence = one_line(error.message, REASON_LENGTH)
    return f"{error.kind}: {sentence}" if sentence else error.kind


def _wait_text(error: TurnError, seconds: float) -> str:
    """`seconds` is how long it takes, as far as the provider said."""
    text = f"{error.message_for_user} {KEPT_TEXT}" if error.message_for_user else WAIT_TEXT
    return f"{text} That may take about {about(seconds)}." if seconds >= LEAST_TOLD else text


def about(seconds: float) -> str:
    """A duration as people say it: ``3 minutes``, ``2 hours``, ``a day``."""
    for size, one, many in ((86_400, "a day", "days"), (3600, "an hour", "hours"), (60, "a minute", "minutes")):
        count = round(seconds / size)
        if seconds >= 0.75 * size:
            return one if count <= 1 else f"{count} {many}"
    return "a moment"


def _sorry(error: TurnError, tries: int) -> str:
    again = f" after {tries + 1} tries" if tries else ""
    said = f"The agent could not answer this message{again} ({error.kind.replace('_', ' ')})."
    return f"{said} {HINTS[error.kind]}" if error.kind in HINTS else said


# ---- sends


@dataclass(frozen=True, slots=True, kw_only=True)
class SendState:
    """How far one part is.  `attempts` counts tries that used one up, the one that just ended included."""

    attempts: int
    first_try_at: UnixMs
    plain: bool = False
    maybe_duplicate: bool = False
    """It was already sent once more after an ambiguous outcome."""
    moved: bool = False
    """The chat's new address was already taken over for this part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAgain:
    """Try the same part again at `at`.  `counts` False gives the attempt back; `pause` tells what else must wait."""

    at: UnixMs
    reason: str
    counts: bool = True
    maybe_duplicate: bool = False
    pause: Literal["chat", "account"] = "chat"


@dataclass(frozen=True, slots=True)
class LookUp:
    """Look for it in the chat's history first.  Found: it was sent.  Not found: `otherwise`."""

    otherwise: SendAgain | GiveUp


@dataclass(frozen=True, slots=True)
class SendPlain:
    """Send it once more as plain text, now."""


@dataclass(frozen=True, slots=True)
class MoveTo:
    """The chat has a new id; send there, now."""

    new_platform_id: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Not before somebody listens, or the channel works again; `deadline` False waits for ever."""

    reason: str
    deadline: bool


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Final.  `reason` is the class of the error."""

    reason: str


SendDecision = SendAgain | LookUp | SendPlain | MoveTo | Wait | GiveUp


def after_send(
    error: ChannelError, state: SendState, now: UnixMs, *, idempotent: bool, history: bool, random: float
) -> SendDecision:
    """After a send that raised.  `random` is in [0, 1); it spreads retries.

    - `RateLimited`: not before what the platform said, and no attempt is used up (C077).
    - `Transient`: 1 s doubling to 5 min, up to 24 h from the first try.
    - `Ambiguous`: again under the same key where the platform has one (`idempotent`); else looked up where it keeps a
      `history`; else again once, marked "maybe duplicate"; a second one is final, never silent (C081).
    - `BadContent`: plain, once.  `Migrated`: to the new address, once.
    - `NobodyListening`, `AuthFailed`: wait (C084).
    - everything else is final at once.
    """
    reason = error.code
    match error:
        case NobodyListening():
            return Wait(reason, deadline=False)
        case AuthFailed():
            return Wait(reason, deadline=True)
        case RateLimited():
            wait = max(error.retry_after, 0.05)
            spread = random * min(1.0, 0.1 * wait)
            again = SendAgain(at=_after(now, wait + spread), reason=reason, counts=False, pause=error.scope)
            return _within_window(again, state)
        case Transient():
            return _within_window(SendAgain(at=_after(now, _send_delay(state, random)), reason=reason), state)
        case Ambiguous():
            again = SendAgain(at=_after(now, _send_delay(state, random)), reason=reason, maybe_duplicate=not idempotent)
            if idempotent:
                return _within_window(again, state)
            once_more: SendAgain | GiveUp = GiveUp(reason) if state.maybe_duplicate else again
            return LookUp(once_more) if history else once_more
        case BadContent():
            return GiveUp(reason) if state.plain else SendPlain()
        case Migrated():
            return GiveUp(reason) if state.moved else MoveTo(error.new_platform_id)
        case _:
            return GiveUp(reason)


def _send_delay(state: SendState, random: float) -> float:
    doubled = SEND_FIRST * 2.0 ** min(max(0, state.attempts - 1), 16)
    return min(SEND_LONGEST, doubled * (1.0 + 0.25 * random))


def _within_window(again: SendAgain, state: SendState) -> SendAgain | GiveUp:
    if again.at - state.first_try_at > SEND_WINDOW * 1000:
        return GiveUp(again.reason)
    return again


def _after(now: UnixMs, seconds: float) -> UnixMs:
    return UnixMs(now + -int(-seconds * 1000 // 1))
