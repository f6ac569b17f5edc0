"""Shall this message start a turn?  (messaging.md 2.3)"""

from __future__ import annotations

from functools import lru_cache

from jackfield.api import EngageDecision
from jackfield.errors import ConfigError
from jackfield.host.patterns import Pattern, check_pattern
from jackfield.models import Addressed, ConversationKind, EngageMode, MessageReceived, Wiring
from jackfield.models.mentions import mention_in

__all__ = ["check_pattern", "decide", "mention_in"]

_DIRECT = frozenset({ConversationKind.DM, ConversationKind.CONSOLE, ConversationKind.MAILBOX})
_ADDRESSED = frozenset({Addressed.DM, Addressed.MENTION, Addressed.REPLY, Addressed.COMMAND})


def decide(wiring: Wiring, event: MessageReceived, sticky: bool) -> EngageDecision:
    """Whether `event` engages the wiring's agent, with a stable reason code.

    `sticky` tells that an earlier engagement of this wiring and thread has not expired; it counts in groups only.
    How the bot was addressed is the channel's word (C042, C046); a direct chat counts as a mention.  A stored pattern
    that can't be used engages nothing (messaging.md 17.4, pitfall 8).
    """
    match wiring.engage_mode:
        case EngageMode.ALWAYS:
            return EngageDecision(engage=True, reason="always")
        case EngageMode.PATTERN:
            return _by_pattern(wiring.engage_pattern, event.text)
        case EngageMode.MENTION | EngageMode.MENTION_STICKY:
            reason = _addressed(event)
            if reason is None and wiring.engage_mode is EngageMode.MENTION_STICKY and sticky and event.is_group:
                reason = "sticky"
            return EngageDecision(engage=reason is not None, reason=reason or "not_mentioned")


def _addressed(event: MessageReceived) -> str | None:
    if event.addressed in _ADDRESSED:
        return event.addressed.value
    return "dm" if event.kind in _DIRECT and not event.is_group else None


def _by_pattern(pattern: str | None, text: str) -> EngageDecision:
    if pattern is None or pattern == ".":
        return EngageDecision(engage=True, reason="always")
    checked = _checked(pattern)
    if checked is None:
        return EngageDecision(engage=False, reason="invalid_pattern")
    found = checked.search(text)
    return EngageDecision(engage=found, reason="pattern" if found else "no_pattern_match")


@lru_cache(maxsize=256)
def _checked(pattern: str) -> Pattern | None:
    try:
        return check_pattern(pattern)
    except ConfigError:
        return None
