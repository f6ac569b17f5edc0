"""A host that finds links, FIFOs or files in the place of its sessions' files: only what they hold is lost."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.harness.exchange import prepared


def test_each_swapped_session_is_set_aside_and_its_chat_is_answered(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    chats = ("linked-file", "fifo", "linked-folder", "file")
    with prepared(tmp_path / "exchange") as exchange:
        for chat in chats:
            exchange.join(chat)
        exchange.start()
        for chat in chats:
            exchange.say(chat, "before")
        for chat in chats:
            exchange.wait_text(chat, "before")
        folders = {chat: Path(exchange.session_of(chat)["folder"]) for chat in chats}
        exchange.stop()

        (folders["linked-file"] / "inbound.db").unlink()
        (folders["linked-file"] / "inbound.db").symlink_to("/etc/passwd")
        (folders["fifo"] / "outbound.db").unlink()
        os.mkfifo(folders["fifo"] / "outbound.db")
        shutil.rmtree(folders["linked-folder"])
        folders["linked-folder"].symlink_to(elsewhere)
        shutil.rmtree(folders["file"])
        folders["file"].write_text("a file")

        exchange.start()
        for chat in chats:
            exchange.say(chat, "after")
        for chat in chats:
            exchange.wait_text(chat, "after")
        assert list(elsewhere.iterdir()) == []
        assert all(any(folder.parent.glob(f"damaged-*-{folder.name}")) for folder in folders.values())
