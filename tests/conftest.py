"""Fixtures for tests that cross packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.exchange import Exchange, prepared

MakeExchange = Callable[..., Exchange]

ATTENTION = 3.0
"""Seconds for which an agent of the hall goes on listening once it was mentioned."""


@pytest.fixture
def make_exchange(tmp_path: Path) -> Iterator[MakeExchange]:
    """Makes prepared exchanges below the test's folder; their hosts are ended with the test."""
    made: list[Exchange] = []

    def make(**settings: Any) -> Exchange:
        exchange = Exchange(root=tmp_path / f"x{len(made)}", **settings)
        made.append(exchange)
        return exchange.prepare()

    yield make
    for exchange in made:
        ended = exchange.stop()
        exchange.sweep()
        if ended not in (0, -9):
            pytest.fail(f"the host did not end well\n{exchange.tail()}")


@pytest.fixture
def exchange(make_exchange: MakeExchange) -> Exchange:
    return make_exchange()


@pytest.fixture(scope="session")
def exchange_hall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    """One running host for every test that needs no settings of its own; each uses chats of its own."""
    settings = f"max_runners = 16\nquestion_timeout = 20\nsticky_hours = {ATTENTION / 3600}"
    with prepared(tmp_path_factory.mktemp("hall"), host_settings=settings) as exchange:
        yield exchange.start()
