"""`--since`: a moment, or how long ago it was."""

from __future__ import annotations

import datetime

__all__ = ["SINCE", "moment"]

SINCE = "10m, 2h, 3d before now; or a moment like 2026-01-31T08:00."
"""What may be written."""


def moment(since: str | None) -> int:
    """Milliseconds since the epoch; 0 when nothing was written."""
    from jackfield.host.logs.reading import moment_before

    if since is None:
        return 0
    text = moment_before(since, datetime.datetime.now(datetime.UTC))
    return round(datetime.datetime.fromisoformat(text).timestamp() * 1000)
