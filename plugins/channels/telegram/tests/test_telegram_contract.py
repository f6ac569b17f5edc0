"""Telegram keeps the contract of channels, over a Bot API server of ours."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).parent))

from jackfield.testing import ChannelContract, Peer
from peer import TelegramPeer


class TestTelegram(ChannelContract):
    plugin = "telegram"
    settings: ClassVar[Mapping[str, Any]] = {"token": "telegram-token"}

    def make_peer(self, instance: str) -> Peer:
        return TelegramPeer(instance)


class TestOrdinaryMessages(ChannelContract):
    """Without rich messages, and with streams that grow by edits."""

    plugin = "telegram"
    settings: ClassVar[Mapping[str, Any]] = {"token": "telegram-token", "rich": False}

    def make_peer(self, instance: str) -> Peer:
        return TelegramPeer(instance, rich=False)
