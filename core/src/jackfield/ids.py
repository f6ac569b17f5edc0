"""Identifiers: 2-4 letters, `_`, 20 base32 characters; time-sorted and case-insensitive (architecture, section 2).

The 100 bits are 50 bits of milliseconds since the epoch and 50 random ones.  The alphabet is Crockford's (no i, l, o,
u), in lower case, so that ids sort as text in the order in which they were made.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from typing import NewType

from jackfield.clock import UnixMs
from jackfield.errors import MalformedData

__all__ = [
    "AgentGroupId",
    "ApprovalId",
    "DeliveryId",
    "EventId",
    "InboundId",
    "MessagingGroupId",
    "OutboundId",
    "QuestionId",
    "RequestId",
    "SecretId",
    "SessionId",
    "TaskId",
    "TaskRunId",
    "TurnId",
    "UserId",
    "WiringId",
    "derive_id",
    "is_id",
    "new_id",
    "parse_id",
    "user_id",
]

AgentGroupId = NewType("AgentGroupId", str)  # ag_
MessagingGroupId = NewType("MessagingGroupId", str)  # mg_
WiringId = NewType("WiringId", str)  # wr_
SessionId = NewType("SessionId", str)  # ses_
EventId = NewType("EventId", str)  # ev_
InboundId = NewType("InboundId", str)  # in_
OutboundId = NewType("OutboundId", str)  # out_
DeliveryId = NewType("DeliveryId", str)  # dl_
TurnId = NewType("TurnId", str)  # trn_
RequestId = NewType("RequestId", str)  # req_
QuestionId = NewType("QuestionId", str)  # qst_
ApprovalId = NewType("ApprovalId", str)  # ap_
TaskId = NewType("TaskId", str)  # tsk_: a series
TaskRunId = NewType("TaskRunId", str)  # run_: one occurrence of it
SecretId = NewType("SecretId", str)  # sec_
UserId = NewType("UserId", str)
"""`<channel type>:<handle>`; the handle may hold colons."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = tuple(first + second for first in _ALPHABET for second in _ALPHABET)
_SHAPE = re.compile(r"^([a-z]{2,4})_([0-9a-hjkmnp-tv-z]{20})$")
_RANDOM_BITS = 50
_lock = threading.Lock()
_last: tuple[int, int] = (0, 0)


def _base32(value: int) -> str:
    """The lowest 50 bits as ten characters."""
    return (
        _PAIRS[value >> 40 & 1023]
        + _PAIRS[value >> 30 & 1023]
        + _PAIRS[value >> 20 & 1023]
        + _PAIRS[value >> 10 & 1023]
        + _PAIRS[value & 1023]
    )


def new_id(prefix: str, at: UnixMs | None = None) -> str:
    """A fresh id, later than every one made before in this process, also within one millisecond.

    `at` is its moment; without it, now.
    """
    global _last
    if at is None:
        import time

        at = UnixMs(time.time_ns() // 1_000_000)
    with _lock:
        last_ms, last_random = _last
        if at <= last_ms and at > last_ms - 1000:
            moment, chance = last_ms, last_random + 1 + secrets.randbits(20)
            if chance >> _RANDOM_BITS:
                moment, chance = last_ms + 1, secrets.randbits(_RANDOM_BITS - 1)
        else:
            moment, chance = at, secrets.randbits(_RANDOM_BITS - 1)
        if moment >= last_ms:
            _last = (moment, chance)
    return f"{prefix}_{_base32(moment)}{_base32(chance)}"


def derive_id(prefix: str, base: str, *parts: str) -> str:
    """The one id that belongs to `base` and `parts`: the same inputs give the same id, always.

    It keeps the moment of `base`.  This is what makes each step of the message path idempotent (architecture 5, rule
    3): the row for (event, wiring) has the same id however often routing is taken up again.
    """
    _, body = parse_id(base)
    digest = hashlib.sha256("\x1f".join((prefix, base, *parts)).encode()).digest()
    return f"{prefix}_{body[:10]}{_base32(int.from_bytes(digest[:8], 'big') >> 14)}"


def parse_id(text: str) -> tuple[str, str]:
    """Prefix and body.  Upper case is accepted.

    Raises:
        MalformedData: it is no id.
    """
    found = _SHAPE.match(text.lower())
    if found is None:
        raise MalformedData(f"{text!r} is not an id (two to four letters, '_', 20 base32 characters)")
    return found[1], found[2]


def is_id(text: str, prefix: str | None = None) -> bool:
    """Whether `text` is an id, and of that prefix if one is given."""
    found = _SHAPE.match(text.lower())
    return found is not None and (prefix is None or found[1] == prefix)


def user_id(channel_type: str, handle: str) -> UserId:
    """The permission key of a person on a channel.

    The prefix is always added, whatever the handle contains: a handle is never trusted to be namespaced already, so
    `29:abc` on Teams or `telegram:1` as somebody's nick stay what they are (messaging.md 17.4, pitfall 15).
    """
    return UserId(f"{channel_type}:{handle}")
