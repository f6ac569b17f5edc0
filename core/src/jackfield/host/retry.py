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
    RateLimited,
    Transient,
)
from jackfield.models import TurnError
from jackfield.plugins.files import one_line

__all__ = [
    "MAX_TRIES",
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
WAIT_TEXT = "The model can't be reached at the moment. Your message is kept and answered later."
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """Final.  `tell` goes to the person, once."""

    reason: str
    tell: str


TurnDecision = Complete | RetryAt | ParkSession | ParkScope | Fail


def turn_delay(tries: int) -> float:
    """Seconds before retry number `tries + 1`."""
    return min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(tries, 16))


def after_turn(error: TurnError, attempts: int, now: UnixMs) -> TurnDecision:
    """After a turn that ended with an error.  `attempts` counts the runs of this message so far, this one included.

    A wait that the provider asked for and that is longer than any delay of ours parks the session; a failure whose
    scope is a credential or a provider parks all that share it, also when it is not retryable by itself, because then
    somebody must mend the credential and the message should still be answered.  Five retries in all.

    The reason is for operators: the kind of the error and its own sentence.  In the chat only the kind is named, unless
    the provider has words for people: an engine's sentence may tell of the operator's account or machine.
    """
    if error.kind == "cancelled":
        return Complete(reason="cancelled")
    shared: Literal["credential", "provider"] | None = None
    if error.scope == "credential" or error.scope == "provider":
        shared = error.scope
    tries = max(0, attempts - 1)
    reason = _reason(error)
    if tries >= MAX_TRIES or not (error.retryable or shared):
        return Fail(reason=reason, tell=error.message_for_user or _sorry(error, tries))
    asked = max(0.0, error.retry_after or 0.0)
    if shared is not None:
        until = _after(now, asked or min(3600.0, SCOPE_DELAY * 2.0**tries))
        return ParkScope(scope=shared, until=until, reason=reason, tell=_wait_text(error), resume=error.tools_ran)
    if asked > LONGEST_DELAY:
        return ParkSession(until=_after(now, asked), reason=reason, tell=_wait_text(error), resume=error.tools_ran)
    return RetryAt(at=_after(now, max(asked, turn_delay(tries))), reason=reason, resume=error.tools_ran)


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


def _wait_text(error: TurnError) -> str:
    return error.message_for_user or WAIT_TEXT


def _sorry(error: TurnError, tries: int) -> str:
    again = f" after {tries + 1} tries" if tries else ""
    return f"The agent could not answer this message{again} ({error.kind.replace('_', ' ')})."


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
