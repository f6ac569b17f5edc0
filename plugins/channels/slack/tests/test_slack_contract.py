"""Slack keeps the contract of channels, by sockets and by requests, in workspaces of the kit's fake."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from jackfield.testing import ChannelContract, Peer
from slack_peer import EventsWorkspace, Workspace


class TestSlackBySockets(ChannelContract):
    plugin = "slack"

    def make_peer(self, instance: str) -> Peer:
        return Workspace(instance)


class TestSlackByRequests(ChannelContract):
    plugin = "slack"

    def make_peer(self, instance: str) -> Peer:
        return EventsWorkspace(instance)
