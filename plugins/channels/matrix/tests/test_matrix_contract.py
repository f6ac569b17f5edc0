"""Matrix keeps the contract of channels, with a real Synapse at the other end."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from jackfield.testing import ChannelContract, Peer
from jackfield_channel_kit.testing.synapse import Synapse
from matrix_peer import MatrixPeer


class TestMatrix(ChannelContract):
    plugin = "matrix"
    settings: ClassVar[Mapping[str, Any]] = {"homeserver": "http://127.0.0.1:1", "token": "matrix-token"}
    server: Synapse

    @pytest.fixture(autouse=True)
    def _server(self, synapse: Synapse) -> None:
        self.server = synapse

    def make_peer(self, instance: str) -> Peer:
        return MatrixPeer(self.server, instance)
