"""How far the runner may forget: the host's word in `inbound.db`, for the side that writes `outbound.db`."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

from jackfield.clock import UnixMs
from jackfield.mailbox.schema import meta, set_meta

__all__ = ["Watermark"]

_KEY: Final = "forget"
_USAGE_KEY: Final = "forget_usage"
"""By itself, since runners of the first version expect four numbers under the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """The host has read everything up to these numbers, and its ledger knows none of it any more.

    `seq` is of `messages_out`, `change` of `processing_ack`, `activity` and `usage` of the tables so called; of them,
    only what was written before the moment `before` may go.
    """

    seq: int
    change: int
    activity: int
    before: UnixMs
    usage: int = 0

    def put(self, database: sqlite3.Connection) -> None:
        """Into `inbound.db`, inside the caller's transaction."""
        set_meta(database, _KEY, f"{self.seq} {self.change} {self.activity} {self.before}")
        set_meta(database, _USAGE_KEY, str(self.usage))

    @classmethod
    def read(cls, database: sqlite3.Connection) -> Watermark | None:
        """What the host allowed last; None when it never did."""
        text = meta(database, _KEY)
        if text is None:
            return None
        seq, change, activity, before = (int(number) for number in text.split())
        usage = int(meta(database, _USAGE_KEY) or 0)
        return cls(seq=seq, change=change, activity=activity, before=UnixMs(before), usage=usage)
