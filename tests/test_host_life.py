"""One host for one home, started, reloaded, refused (architecture 10, 11; C090, C200, C202)."""

from __future__ import annotations

import hashlib
import shutil
import signal
import sqlite3
from pathlib import Path

from tests.harness.exchange import Exchange


def digest(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith("host.")
    }


def test_an_invalid_file_is_named_and_changes_nothing_in_the_running_host(exchange: Exchange) -> None:
    exchange.start()
    exchange.join("c1")
    toml = exchange.home.jackfield_toml
    good = toml.read_text(encoding="utf-8")
    toml.write_text(good.replace("[host]", '[host]\nmax_runners = "many"\nchanels = 1', 1), encoding="utf-8")
    refused = exchange.run("reload", check=False)
    assert refused.returncode == 2
    assert "max_runners" in refused.stderr and "chanels" in refused.stderr, "all problems in one go (C200)"
    exchange.say("c1", "still there?")
    assert exchange.wait_sent("c1", 1)[0]["text"] == "You said: still there?"
    assert exchange.process is not None
    exchange.process.send_signal(signal.SIGHUP)
    exchange.wait_for(lambda: "the configuration stays as it was" in exchange.tail(), "the word in the log")
    box = good + f'\n[channels.box2]\ntype = "postbox"\nfolder = "{exchange.box}2"\n'
    Path(f"{exchange.box}2").mkdir()
    for name in ("in.jsonl", "out.jsonl"):
        Path(f"{exchange.box}2", name).touch()
    toml.write_text(box, encoding="utf-8")
    exchange.run("reload")
    states = {channel["name"]: channel["state"] for channel in exchange.op("status")["channels"]}
    assert states["box2"] == "ready"


def test_a_damaged_store_is_refused_with_a_clear_message(exchange: Exchange) -> None:
    data = bytearray(exchange.home.state_db.read_bytes())
    data[:4096] = b"\xde\xad" * 2048
    exchange.home.state_db.write_bytes(bytes(data))
    before = digest(exchange.home.root)
    refused = exchange.run("up", check=False)
    assert refused.returncode == 1
    assert "state.db" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "backup" in refused.stderr.lower()
    assert digest(exchange.home.root) == before


def test_a_store_of_a_newer_version_is_refused_untouched(exchange: Exchange) -> None:
    """C202."""
    db = sqlite3.connect(exchange.home.state_db)
    db.execute(
        "INSERT INTO schema_version SELECT 9999, 'from the future', checksum, applied_at FROM schema_version LIMIT 1"
    )
    db.commit()
    db.close()
    before = digest(exchange.home.root)
    refused = exchange.run("up", check=False)
    assert refused.returncode == 1
    assert "newer" in refused.stderr
    assert digest(exchange.home.root) == before


def test_replayed_events_and_commands_of_the_past_do_nothing(exchange: Exchange) -> None:
    """C090: the cursor is lost, and the platform replays everything."""
    exchange.op("owner.add", user="postbox:ann")
    exchange.join("c1")
    exchange.start()
    for number in range(1, 4):
        exchange.say("c1", f"event {number}")
    exchange.say("c1", "/clear")
    exchange.wait_text("c1", "Session cleared.")
    exchange.stop()
    shutil.copy(exchange.box / "in.jsonl", exchange.box / "past.jsonl")
    db = sqlite3.connect(exchange.home.state_db)
    db.execute("DELETE FROM cursors")
    db.commit()
    db.close()
    before = len(exchange.sent("c1"))
    exchange.start()
    exchange.say("c1", "event 11")
    exchange.wait_text("c1", "event 11")
    assert len(exchange.sent("c1")) == before + 1
