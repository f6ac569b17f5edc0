"""Kill points (architecture, section 10)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from jackfield import points
from jackfield.errors import ConfigError

VISIT = """
import sys
from jackfield.points import reach
for number in range(int(sys.argv[2])):
    reach(sys.argv[1])
print("alive")
"""


def visit(name: str, times: int, kill_at: str | None) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != points.VARIABLE}
    if kill_at is not None:
        environment[points.VARIABLE] = kill_at
    return subprocess.run(
        [sys.executable, "-c", VISIT, name, str(times)], env=environment, capture_output=True, text=True, timeout=60
    )


def test_an_unarmed_point_does_nothing() -> None:
    assert visit("store.mid_transaction", 3, None).stdout == "alive\n"


def test_the_process_dies_at_the_first_visit_of_the_armed_point() -> None:
    assert visit("store.mid_transaction", 1, "store.mid_transaction").returncode == -signal.SIGKILL


def test_the_process_dies_at_the_visit_with_the_given_number() -> None:
    assert visit("runner.claim.after", 2, "runner.claim.after:3").stdout == "alive\n"
    assert visit("runner.claim.after", 3, "runner.claim.after:3").returncode == -signal.SIGKILL


def test_other_points_than_the_armed_one_do_nothing() -> None:
    assert visit("runner.claim.after", 5, "runner.claim.before").stdout == "alive\n"


def test_a_place_that_is_not_listed_is_refused() -> None:
    with pytest.raises(ValueError, match="not a kill point"):
        points.reach("somewhere.else")


@pytest.mark.parametrize("text", ["nowhere", "store.mid_transaction:0", "store.mid_transaction:x", ":1"])
def test_an_environment_that_names_no_point_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="JACKFIELD_KILL_AT"):
        points.armed({points.VARIABLE: text})


def test_the_environment_tells_point_and_visit() -> None:
    assert points.armed({}) is None
    assert points.armed({points.VARIABLE: "store.mid_transaction"}) == ("store.mid_transaction", 1)
    assert points.armed({points.VARIABLE: "store.mid_transaction:12"}) == ("store.mid_transaction", 12)
