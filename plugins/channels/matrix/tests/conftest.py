"""One Synapse for all tests of the channel; those that stop it have one of their own."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parent))

from jackfield_channel_kit.testing.synapse import Synapse


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def synapse(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Synapse]:
    server = Synapse(tmp_path_factory.mktemp("synapse"))
    await server.start()
    yield server
    await server.stop()
