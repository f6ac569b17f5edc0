"""Kill points: named places on the message path where a test can make the process die (architecture, section 10).

`reach(name)` does nothing unless ``JACKFIELD_KILL_AT=<name>`` or ``<name>:<n>`` is in the environment; then the process
kills itself with SIGKILL at the n-th visit (the first, without a number).  `POINTS` lists all of them, so that a crash
test can visit every one.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping

from jackfield.errors import ConfigError

__all__ = ["POINTS", "VARIABLE", "reach"]

VARIABLE = "JACKFIELD_KILL_AT"

POINTS: frozenset[str] = frozenset(
    {
        "host.accept.before_commit",
        "host.accept.after_commit",
        "host.route.before_ledger",
        "host.route.after_enqueue",
        "host.route.after_ledger",
        "host.collect.before_commit",
        "host.collect.after_commit",
        "host.deliver.before_intent",
        "host.deliver.after_intent",
        "host.deliver.after_send",
        "host.deliver.after_record",
        "host.agents.after_enqueue",
        "host.agents.after_rows",
        "host.approval.after_decide",
        "host.approval.before_deed",
        "host.approval.after_deed",
        "host.schedule.after_claim",
        "host.schedule.after_feed",
        "runner.claim.before",
        "runner.claim.after",
        "runner.turn.before_commit",
        "runner.turn.after_commit",
        "runner.tool.after_send",
        "mailbox.host.mid_transaction",
        "mailbox.runner.mid_transaction",
        "store.mid_transaction",
    }
)


def armed(environment: Mapping[str, str]) -> tuple[str, int] | None:
    """The point and the visit at which to die, as the environment says; None when it says nothing.

    Raises:
        ConfigError: the variable names no point, or its number is none.
    """
    text = environment.get(VARIABLE, "")
    if not text:
        return None
    name, _, number = text.partition(":")
    if name not in POINTS:
        raise ConfigError(f"{VARIABLE}={text!r}: there is no kill point {name!r}", fix="see jackfield.points.POINTS")
    if number and not (number.isascii() and number.isdigit() and int(number) > 0):
        raise ConfigError(f"{VARIABLE}={text!r}: {number!r} is not a number of visits (1 or more)")
    return name, int(number or 1)


_armed = armed(os.environ)
_lock = threading.Lock()
_visits = 0


def reach(name: str) -> None:
    """Mark a place on the message path.  Costs next to nothing when not armed.

    Raises:
        ValueError: `name` is not in `POINTS`.
    """
    global _visits
    if name not in POINTS:
        raise ValueError(f"{name!r} is not a kill point; add it to jackfield.points.POINTS")
    if _armed is None or _armed[0] != name:
        return
    with _lock:
        _visits += 1
        due = _visits == _armed[1]
    if due:
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()
