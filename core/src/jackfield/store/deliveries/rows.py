"""The shape of a part in the ledger: its columns, its ends, and the value made of a row."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from jackfield.clock import UnixMs
from jackfield.ids import DeliveryId, SessionId
from jackfield.models import Address, Delivery, DeliveryState

__all__ = ["COLUMNS", "ENDS", "FILES_REFUSED", "OPEN", "address_of", "delivery_of", "ids_text"]

ENDS = frozenset(
    {
        DeliveryState.ACCEPTED,
        DeliveryState.SENT,
        DeliveryState.FAILED,
        DeliveryState.DROPPED,
        DeliveryState.BLOCKED,
    }
)
FILES_REFUSED = "FilesRefused"
"""The reason of a part that the platform took without some of its files."""
COLUMNS = (
    "id, session_id, out_seq, out_id, part, parts, kind, destination, content, state, attempts, next_try_at, "
    "first_try_at, platform_ids, reason, last_error, maybe_duplicate, created_at, updated_at"
)
# The text of this condition is that of the partial index; SQLite uses one only for the very same condition.
OPEN = "state IN ('pending', 'sending', 'retrying', 'waiting')"
address_of = lru_cache(maxsize=4096)(Address.parse)


def delivery_of(row: tuple[Any, ...]) -> Delivery:
    """The part in a row of `COLUMNS`; what follows them is left alone."""
    return Delivery(
        id=DeliveryId(row[0]),
        session_id=SessionId(row[1]),
        out_seq=row[2],
        out_id=row[3],
        part=row[4],
        parts=row[5],
        kind=row[6],
        address=address_of(row[7]),
        content=row[8],
        state=DeliveryState(row[9]),
        attempts=row[10],
        next_try_at=UnixMs(row[11]),
        first_try_at=row[12],
        platform_ids=() if row[13] == "[]" else tuple(json.loads(row[13])),
        reason=row[14],
        last_error=row[15],
        maybe_duplicate=bool(row[16]),
        created_at=UnixMs(row[17]),
        updated_at=UnixMs(row[18]),
    )


def ids_text(ids: Iterable[str]) -> str:
    """Platform ids as the ledger keeps them."""
    return json.dumps(list(ids), ensure_ascii=False, separators=(",", ":"))
