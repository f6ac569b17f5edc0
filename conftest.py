"""What a machine must have: `JACKFIELD_TEST_REQUIRE` names it, and a test that misses it fails instead of skipping.

``JACKFIELD_TEST_REQUIRE=all``, or a list such as ``root,isolation``.  CI sets ``all``, so that a green run can't hide a
test that never ran; elsewhere such a test skips, and the end of the run counts it with its reason.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import hypothesis
import pytest
from jackfield.redaction import REDACTOR

REQUIREMENTS = {
    "root": r"needs root|gives files to other users|no uid can be given",
    "linux": r"only Linux|by /proc|no file size limit",
    "isolation": r"nothing isolates here|needs Landlock|the filter doesn't know",
    "tmpfs": r"(tmpfs|file system) can't be mounted",
    "curl": r"no curl on this machine",
    "synapse": r"no synapse on this machine",
    "ngircd": r"no ngircd on this machine",
    "inspircd": r"no inspircd on this machine",
    "telegram-clients": r"no telegram-clients on this machine",
}
"""What may be required, and how the reasons read with which tests skip for want of it."""


def required() -> dict[str, str]:
    """The requirements that hold in this run.

    Raises:
        pytest.UsageError: the variable names something that is not in the table.
    """
    named = {name.strip() for name in os.environ.get("JACKFIELD_TEST_REQUIRE", "").split(",") if name.strip()}
    if "all" in named:
        return REQUIREMENTS
    if unknown := named - set(REQUIREMENTS):
        known = ", ".join(sorted(REQUIREMENTS))
        raise pytest.UsageError(f"JACKFIELD_TEST_REQUIRE: there is no {', '.join(sorted(unknown))}; all, or {known}")
    return {name: REQUIREMENTS[name] for name in named}


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Commands that run inside the tests' own process set logging up; the next test must not notice."""
    loggers = [logging.getLogger(name) for name in ("", "jackfield")]
    kept = [(one.level, one.propagate, one.disabled, list(one.handlers)) for one in loggers]
    yield
    for one, (level, propagate, disabled, handlers) in zip(loggers, kept, strict=True):
        one.setLevel(level)
        one.propagate, one.disabled, one.handlers = propagate, disabled, handlers


@contextmanager
def _secrets_as_they_were() -> Iterator[None]:
    kept = set(REDACTOR._known)
    yield
    if REDACTOR._known != kept:
        REDACTOR._known, REDACTOR._net = kept, None


@pytest.fixture(autouse=True, scope="module")
def secrets_of_the_module() -> Iterator[None]:
    """The redactor is the process's own: what a test calls a secret must not be masked in the next one."""
    with _secrets_as_they_were():
        yield


@pytest.fixture(autouse=True)
def secrets_of_the_test() -> Iterator[None]:
    with _secrets_as_they_were():
        yield


hypothesis.settings.register_profile("busy", deadline=None)  # a machine with other work is no fault of a test
hypothesis.settings.load_profile("busy")


def pytest_configure(config: pytest.Config) -> None:
    required()
    os.environ.setdefault("JACKFIELD_ENGINES", str(config.rootpath / ".engines"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        for name, pattern in required().items():
            if re.search(pattern, reason):
                report.outcome = "failed"
                report.longrepr = f"JACKFIELD_TEST_REQUIRE asks for {name!r}, and this test skipped: {reason}"
    return report
