"""The channel keeps the contract of channels on both servers: one with IRCv3, one with the old protocol only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from irc_peer import IrcPeer, engine
from jackfield.testing import ChannelContract, Peer


class Irc(ChannelContract):
    plugin = "irc"
    server = ""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        self.folders = tmp_path_factory
        yield

    def make_peer(self, instance: str) -> Peer:
        return IrcPeer(instance, engine(self.server, self.folders.mktemp(self.server)))


class TestInspircd(Irc):
    server = "inspircd"


class TestNgircd(Irc):
    server = "ngircd"
