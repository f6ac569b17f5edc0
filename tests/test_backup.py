"""Backups of a home in the middle of its work, and homes made from them (cases, areas 11, 17, 27, 28)."""

from __future__ import annotations

import gzip
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tarfile
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from jackfield.config.home import Home

from tests.conftest import MakeExchange
from tests.harness.exchange import BOUND, Exchange, prepared


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    """A home with a conversation that has its end, and no host."""
    with prepared(tmp_path_factory.mktemp("quiet")) as exchange:
        exchange.join("c")
        exchange.start()
        exchange.say("c", "mock: say first")
        exchange.wait_text("c", "first")
        exchange.wait_for(lambda: exchange.state_of("c") == [("completed", None)], "the end")
        exchange.stop()
        yield exchange


@pytest.fixture(scope="module")
def archive(quiet: Exchange) -> Path:
    path = quiet.root / "quiet.tar.gz"
    quiet.run("backup", str(path))
    return path


def moved(exchange: Exchange, home: Path) -> Exchange:
    """The same platform, with a restored home."""
    other = Exchange(root=exchange.root, home_at=home, environment=exchange.environment)
    other._said = len((exchange.box / "in.jsonl").read_bytes().splitlines())
    return other


def settled(exchange: Exchange) -> bool:
    return not (
        exchange.query("SELECT id FROM inbound WHERE state IN ('queued', 'claimed', 'retrying', 'parked')")
        or exchange.query("SELECT id FROM deliveries WHERE state IN ('pending', 'sending', 'retrying', 'waiting')")
        or exchange.query("SELECT id FROM events WHERE state = 'received'")
    )


def names(path: Path) -> set[str]:
    with tarfile.open(path) as tar:
        return set(tar.getnames())


# ---- the whole way


def test_a_backup_in_the_middle_of_traffic_becomes_a_home_that_goes_on(make_exchange: MakeExchange) -> None:
    """C090, architecture 10: nothing is lost, nothing that had its end is repeated."""
    exchange = make_exchange(host_settings="max_runners = 8")
    chats = [f"c{number}" for number in range(4)]
    for chat in chats:
        exchange.join(chat)
    exchange.start()
    for chat in chats:
        exchange.say(chat, f"mock: say {chat}-0")
    exchange.wait_for(lambda: len(exchange.sent()) == len(chats), "the first answers")
    answered = {word for item in exchange.sent() for word in _said(item["text"])}
    command = [sys.executable, "-m", "jackfield.cli", "backup", str(exchange.root / "b.tar.gz")]
    with subprocess.Popen(command, env=exchange.env()) as child:
        number = 0
        while child.poll() is None and number < 80:
            number += 1
            exchange.say(chats[number % 4], f"mock: say {chats[number % 4]}-{number}")
            time.sleep(0.02)  # people don't write faster
    assert child.returncode == 0
    exchange.kill()  # the machine is lost; so the old home answers nothing any more

    restored = moved(exchange, exchange.root / "elsewhere")
    told = exchange.json("restore", str(exchange.root / "b.tar.gz"), "--into", str(restored.home.root))
    assert told["restored"] is True
    restored.start()
    try:
        for chat in chats:
            restored.say(chat, f"mock: say {chat}-after")
            restored.wait_text(chat, f"{chat}-after")
        restored.wait_for(lambda: settled(restored), "an end for everything", bound=30)
        got = Counter(word for item in restored.sent() for word in _said(item["text"]))
        said = {f"{chats[one % 4]}-{one}" for one in range(1, number + 1)} | {f"{chat}-0" for chat in chats}
        assert got.keys() == said | {f"{chat}-after" for chat in chats}, "nothing is lost"
        assert max(got.values()) <= 2, got
        assert not {word for word, count in got.items() if count > 1} & answered, "nothing that had its end is repeated"
    finally:
        restored.stop()


def _said(text: str) -> list[str]:
    return [word for word in text.split() if word.startswith("c") and "-" in word]


def test_a_conversation_goes_on_in_its_session_with_its_mailbox(quiet: Exchange, archive: Path, tmp_path: Path) -> None:
    before = quiet.op("session.list")
    restored = moved(quiet, tmp_path / "home")
    quiet.run("restore", str(archive), "--into", str(tmp_path / "home"))
    old = quiet.query("SELECT epoch, seq_cursor FROM sessions")
    new = restored.query("SELECT epoch, seq_cursor FROM sessions")
    assert [row[1] for row in old] == [row[1] for row in new]
    assert [row[0] for row in old] == [row[0] for row in new], "what lies in the mailbox is the newest runner's"
    restored.start()
    try:
        restored.say("c", "mock: say second")
        restored.wait_text("c", "second")
        assert [one["id"] for one in restored.op("session.list")] == [one["id"] for one in before]
        assert restored.texts("c").count("first") == 1
    finally:
        restored.stop()
    ids = [exchange.query("SELECT value FROM notes WHERE key = 'install_id'") for exchange in (quiet, restored)]
    assert ids[0] != ids[1], "two that may live side by side are two installations"


def test_sends_that_were_open_count_as_maybe_done(make_exchange: MakeExchange) -> None:
    """C081: the rule of an ambiguous send decides, as after a crash."""
    exchange = make_exchange()
    exchange.join("held")
    exchange.order("held", {"until": "go"})
    exchange.start()
    exchange.say("held", "mock: say in flight")
    exchange.wait_for(lambda: exchange.query("SELECT id FROM deliveries WHERE state = 'sending'"), "a send under way")
    made = exchange.json("backup", str(exchange.root / "b.tar.gz"))
    assert made["open_sends"] == {"sending": 1}
    (exchange.box / "go").touch()
    exchange.wait_text("held", "in flight")  # the old home sends it after the backup
    exchange.kill()
    restored = moved(exchange, exchange.root / "new")
    told = exchange.json("restore", str(exchange.root / "b.tar.gz"), "--into", str(restored.home.root))
    assert told["maybe_sent"] == 1
    restored.start()
    try:
        first, second = restored.wait_sent("held", 2)
        assert (first["maybe_duplicate"], second["maybe_duplicate"]) == (False, True)
        restored.wait_for(lambda: settled(restored), "its end")
        assert len(restored.sent("held")) == 2
    finally:
        restored.stop()


def test_what_is_sent_while_the_backup_is_made_is_not_sent_again(
    make_exchange: MakeExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is copied before the mailboxes: what leaves in between is entered into the copy."""
    exchange = make_exchange()
    exchange.join("c")
    exchange.start()
    exchange.say("c", "mock: say before")
    exchange.wait_text("c", "before")
    exchange.wait_for(lambda: settled(exchange), "its end")
    code = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from jackfield.cli.main import main
        from jackfield.host.archive import home
        real = home._session
        def slow(*arguments):
            Path(sys.argv[1]).touch()
            while not Path(sys.argv[2]).exists():
                pass
            return real(*arguments)
        home._session = slow
        main(["backup", sys.argv[3]])
        """
    )
    # The mailbox is copied before it is packed; so another conversation's is the one that comes later.
    exchange.join("d")
    exchange.say("d", "mock: say hello d")
    exchange.wait_text("d", "hello d")
    exchange.wait_for(lambda: settled(exchange), "its end")
    waiting, go, path = exchange.root / "waiting", exchange.root / "go", exchange.root / "b.tar.gz"
    child = subprocess.Popen([sys.executable, "-c", code, str(waiting), str(go), str(path)], env=exchange.env())
    exchange.wait_for(waiting.exists, "the backup's first mailbox")
    for chat in ("c", "d"):
        exchange.say(chat, f"mock: say meanwhile {chat}")
        exchange.wait_text(chat, f"meanwhile {chat}")
    exchange.wait_for(lambda: settled(exchange), "their end")
    go.touch()
    assert child.wait(BOUND) == 0
    exchange.kill()
    restored = moved(exchange, exchange.root / "new")
    exchange.run("restore", str(path), "--into", str(restored.home.root))
    restored.start()
    try:
        for chat in ("c", "d"):
            restored.say(chat, f"mock: say then {chat}")
            restored.wait_text(chat, f"then {chat}")
        restored.wait_for(lambda: settled(restored), "an end for everything")
        got = Counter(item["text"] for item in restored.sent())
        assert all(count == 1 for count in got.values()), got
    finally:
        restored.stop()


def test_a_hot_journal_goes_along_and_is_rolled_back_by_the_restored_home(
    make_exchange: MakeExchange,
) -> None:
    """C209: a runner that died in mid-transaction is no obstacle to a backup."""
    exchange = make_exchange()
    exchange.join("c")
    exchange.start()
    exchange.say("c", "mock: say one")
    exchange.wait_text("c", "one")
    exchange.wait_for(lambda: settled(exchange), "its end")
    exchange.stop()
    folder = Path(exchange.session_of("c")["folder"])
    code = textwrap.dedent(
        """
        import os, sqlite3, sys
        db = sqlite3.connect(sys.argv[1], isolation_level=None)
        db.execute("PRAGMA journal_mode=TRUNCATE").fetchone()
        db.execute("PRAGMA cache_size=10")
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE messages_out SET content = hex(zeroblob(3000000))")
        db.execute("INSERT INTO session_state VALUES ('x', hex(zeroblob(3000000)), 1)")
        os.kill(os.getpid(), 9)
        """
    )
    subprocess.run([sys.executable, "-c", code, str(folder / "outbound.db")], check=False, timeout=BOUND)
    assert (folder / "outbound.db-journal").stat().st_size > 0
    made = exchange.json("backup", str(exchange.root / "b.tar.gz"))
    assert "journal of a runner that died" in made["notes"][0]
    restored = moved(exchange, exchange.root / "new")
    exchange.run("restore", str(exchange.root / "b.tar.gz"), "--into", str(restored.home.root))
    restored.start()
    try:
        restored.say("c", "mock: say two")
        restored.wait_text("c", "two")
        assert restored.texts("c") == ["one", "two"]
    finally:
        restored.stop()


@pytest.mark.parametrize("name", ["inbound.db", "outbound.db"])
def test_a_damaged_mailbox_does_not_end_a_backup(make_exchange: MakeExchange, name: str) -> None:
    exchange = make_exchange()
    exchange.join("c")
    exchange.start()
    exchange.say("c", "mock: say one")
    exchange.wait_text("c", "one")
    exchange.wait_for(lambda: settled(exchange), "its end")
    exchange.stop()
    (Path(exchange.session_of("c")["folder"]) / name).write_bytes(b"garbage " * 1000)
    made = exchange.json("backup", str(exchange.root / "b.tar.gz"))
    assert f"{name} is in the backup as it is" in made["notes"][0]
    restored = moved(exchange, exchange.root / "new")
    exchange.run("restore", str(exchange.root / "b.tar.gz"), "--into", str(restored.home.root))
    restored.start()
    try:
        restored.say("c", "mock: say two")
        restored.wait_text("c", "two")
        restored.wait_for(lambda: settled(restored), "its end")
        assert restored.texts("c") == ["one", "two"]
    finally:
        restored.stop()


def test_without_sessions_agents_and_chats_are_there_and_conversations_begin_anew(
    quiet: Exchange, tmp_path: Path
) -> None:
    path = tmp_path / "b.tar.gz"
    made = quiet.json("backup", str(path), "--no-sessions")
    assert made["conversations"] == 0
    assert not any(name.startswith(("sessions", "outgoing", "spool")) for name in names(path))
    restored = moved(quiet, tmp_path / "home")
    quiet.run("restore", str(path), "--into", str(restored.home.root))
    restored.start()
    try:
        restored.say("c", "mock: say anew")
        restored.wait_text("c", "anew")
        assert restored.texts("c").count("first") == 1
    finally:
        restored.stop()


# ---- what goes in


def test_sockets_and_locks_stay_outside_and_so_does_the_key_if_asked_for(quiet: Exchange, tmp_path: Path) -> None:
    """C135."""
    home = quiet.home
    quiet.op("secret.set", name="TOKEN", value="SECRETvalue")
    try:
        without, with_them = tmp_path / "a.tar.gz", tmp_path / "b.tar.gz"
        assert "keep a copy elsewhere" in quiet.run("backup", str(without), "--without-key").stderr
        assert "whoever has the file can read every secret" in quiet.run("backup", str(with_them)).stderr
        assert names(with_them) - names(without) == {"master.key"}
        of_one_life = ("host.sock", "host.lock", "host.json", "heartbeat", "bell.sock")
        assert not [name for name in names(with_them) if name.endswith(of_one_life)]
        assert b"SECRETvalue" not in gzip.decompress(with_them.read_bytes())
        restored = quiet.json("restore", str(with_them), "--into", str(tmp_path / "home"))
        assert (restored["key"], restored["key_fits"]) == (True, True)
        assert (tmp_path / "home/master.key").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "home/master.key").read_bytes() == home.master_key.read_bytes()
        told = quiet.run("restore", str(without), "--into", str(tmp_path / "other")).stderr
        assert "master.key is not in the backup" in told
        refused = quiet.run("up", check=False, JACKFIELD_HOME=str(tmp_path / "other"))
        assert refused.returncode == 1 and "master.key is missing" in refused.stderr
    finally:
        quiet.op("secret.remove", name="TOKEN")


def test_a_backup_goes_through_a_pipe_and_says_what_it_did_elsewhere(quiet: Exchange, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jackfield.cli", "backup", "-"], env=quiet.env(), capture_output=True, timeout=BOUND
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "b.tar.gz").write_bytes(done.stdout)
    assert quiet.json("restore", str(tmp_path / "b.tar.gz"), "--dry-run")["restored"] is False
    assert quiet.run("backup", "-", "--json", check=False).returncode == 2


def test_without_a_name_it_lies_among_the_homes_backups(quiet: Exchange) -> None:
    made = quiet.json("backup")
    path = Path(made["file"])
    assert path.parent == quiet.home.backups
    assert path.stat().st_mode & 0o777 == 0o600
    assert not [name for name in names(path) if name.startswith("backups")]
    path.unlink()


# ---- what must not happen


def refused(exchange: Exchange, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = exchange.run(*arguments, "--json", check=False)
    return done.returncode, json.loads(done.stdout)["error"]


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(folder)): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.name not in ("host.lock", "host.json") and path.is_file()
    }


def test_a_restore_is_refused_where_it_would_harm(make_exchange: MakeExchange, archive: Path) -> None:
    exchange = make_exchange().start()
    code, error = refused(exchange, "restore", str(archive), "--force")
    assert (code, error["code"]) == (4, "HostRunning")
    exchange.stop()
    before = tree(exchange.home.root)
    code, error = refused(exchange, "restore", str(archive))
    assert (code, error["code"]) == (4, "Conflict")
    assert "--force" in error["fix"]
    assert tree(exchange.home.root) == before
    told = json.loads(exchange.run("restore", str(archive), "--force", "--json").stdout)
    assert tree(Path(told["aside"])) == before, "the old home is kept, as it was"
    assert exchange.query("SELECT count(*) FROM sessions") == [(1,)]


def test_a_damaged_newer_or_foreign_archive_touches_nothing(quiet: Exchange, archive: Path, tmp_path: Path) -> None:
    """C202."""
    whole = archive.read_bytes()
    before = tree(quiet.home.root)
    (tmp_path / "cut").write_bytes(whole[:-1000])
    (tmp_path / "flipped").write_bytes(whole[:3000] + bytes([whole[3000] ^ 1]) + whole[3001:])
    (tmp_path / "text").write_text("no archive")
    for name in ("cut", "flipped", "text"):
        code, error = refused(quiet, "restore", str(tmp_path / name), "--force")
        assert (code, error["code"]) == (7, "VerificationFailed"), name
    _newer(archive, tmp_path / "newer")
    code, error = refused(quiet, "restore", str(tmp_path / "newer"), "--force")
    assert (code, error["code"]) == (1, "StoreNewer")
    assert refused(quiet, "restore", str(tmp_path / "none"), "--force")[0] == 3
    assert tree(quiet.home.root) == before
    assert not list(quiet.home.root.parent.glob(".home.restore-*"))


def _newer(archive: Path, place: Path) -> None:
    with tarfile.open(archive) as old, tarfile.open(place, "w:gz") as new:
        for info in old:
            content = old.extractfile(info)
            data = content.read() if content is not None else b""
            if info.name == "MANIFEST.json":
                data = json.dumps(json.loads(data) | {"format": 2, "app": "9.0"}).encode()
            import io

            info.size = len(data)
            new.addfile(info, io.BytesIO(data))


def test_a_full_disk_in_the_middle_leaves_everything_as_it_was(quiet: Exchange, archive: Path, tmp_path: Path) -> None:
    """C213: exit code 5, failed and rolled back."""
    big = quiet.home.groups / "andy" / "workspace" / "big"
    big.write_bytes(os.urandom(3 << 20))
    path = tmp_path / "b.tar.gz"
    path.write_bytes(archive.read_bytes())
    try:
        done = _limited(quiet, 1 << 20, "backup", str(path), "--json")
        assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (5, "RolledBack"), done
        assert path.read_bytes() == archive.read_bytes(), "the backup of before is as it was"
        assert [one.name for one in tmp_path.iterdir()] == ["b.tar.gz"]
        quiet.run("backup", str(path))
    finally:
        big.unlink()
    done = _limited(quiet, 1 << 20, "restore", str(path), "--into", str(tmp_path / "home"), "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (5, "RolledBack"), done
    assert [one.name for one in tmp_path.iterdir()] == ["b.tar.gz"]
    assert not list(quiet.home.backups.glob(".staging-*"))


def _limited(exchange: Exchange, size: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that may write no file over that size, as on a disk that fills up."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return subprocess.run(
        [sys.executable, "-m", "jackfield.cli", *arguments],
        env=exchange.env(), capture_output=True, text=True, timeout=BOUND, preexec_fn=limit,
    )  # fmt: skip


KILLED = """
import os, signal, sys
from jackfield.cli.main import main
from jackfield.host.archive import home, swapping, unpacking, writing

def die(*arguments, **more):
    os.kill(os.getpid(), signal.SIGKILL)

def after(real):
    def then_die(*arguments, **more):
        real(*arguments, **more)
        die()
    return then_die

match sys.argv[1]:
    case "packing":
        home._session = after(home._session)
    case "finished":
        writing.ArchiveWriter.finish = after(writing.ArchiveWriter.finish)
    case "unpacked":
        home.unpack = after(home.unpack)
    case "before the swap":
        home.put_in_place = die
    case "after the swap":
        home.put_in_place = after(home.put_in_place)
    case "before the host knows":
        from jackfield.host.archive import group
        group.put_in_place = after(group.put_in_place)
    case "after the host knows":
        from jackfield.cli import transfer
        from jackfield.host.archive import group
        real = transfer.call
        transfer.call = lambda op, **more: (real(op, **more), op == "group.import" and die())[0]
main(sys.argv[2:])
"""


@pytest.mark.parametrize("moment", ["packing", "finished"])
def test_a_backup_that_is_killed_leaves_nothing_that_looks_like_one(
    quiet: Exchange, tmp_path: Path, moment: str
) -> None:
    path = tmp_path / "b.tar.gz"
    quiet.run("backup", str(path))
    whole = names(path)
    path.unlink()
    done = subprocess.run([sys.executable, "-c", KILLED, moment, "backup", str(path)], env=quiet.env(), timeout=BOUND)
    assert done.returncode == -signal.SIGKILL
    assert not path.exists()
    assert list(quiet.home.backups.glob(".staging-*"))
    quiet.run("backup", str(path))
    assert [one.name for one in tmp_path.iterdir()] == ["b.tar.gz"], "the next one clears away what was left"
    assert not list(quiet.home.backups.glob(".staging-*"))
    assert names(path) == whole


@pytest.mark.parametrize(("moment", "new"), [("unpacked", False), ("before the swap", False), ("after the swap", True)])
def test_a_restore_that_is_killed_leaves_the_old_home_or_the_new_one(
    quiet: Exchange, archive: Path, tmp_path: Path, moment: str, new: bool
) -> None:
    place = tmp_path / "home"
    quiet.run("restore", str(archive), "--into", str(place))
    mark = place / "mark"
    mark.write_text("old")
    command = [sys.executable, "-c", KILLED, moment, "restore", str(archive), "--into", str(place), "--force"]
    done = subprocess.run(command, env=quiet.env(), timeout=BOUND)
    assert done.returncode == -signal.SIGKILL
    assert Home(place).initialised
    assert mark.exists() is not new
    if new:
        (aside,) = tmp_path.glob("home.before-restore-*")
        assert (aside / "mark").read_text() == "old"
    quiet.run("restore", str(archive), "--into", str(place), "--force")
    assert not list(tmp_path.glob(".home.restore-*")), "the next one clears away what was left"
    with closing(sqlite3.connect(place / "state.db")) as db:
        assert db.execute("SELECT count(*) FROM sessions").fetchone() == (1,)


def test_two_backups_at_once_are_both_whole(make_exchange: MakeExchange) -> None:
    exchange = make_exchange()
    exchange.join("c")
    exchange.start()
    exchange.say("c", "mock: say one")
    exchange.wait_text("c", "one")
    commands = [
        [sys.executable, "-m", "jackfield.cli", "backup", str(exchange.root / name)]
        for name in ("a.tar.gz", "b.tar.gz", "same.tar.gz", "same.tar.gz")
    ]
    children = [subprocess.Popen(command, env=exchange.env()) for command in commands]
    assert [child.wait(BOUND) for child in children] == [0, 0, 0, 0]
    for name in ("a.tar.gz", "b.tar.gz", "same.tar.gz"):
        assert exchange.json("restore", str(exchange.root / name), "--dry-run")["restored"] is False
    assert not list(exchange.home.backups.glob(".staging-*"))


# ---- one agent as a file


def test_an_agent_moves_to_another_home_with_what_it_knows(make_exchange: MakeExchange) -> None:
    exchange, other = make_exchange(), make_exchange()
    folder = exchange.home.groups / "andy"
    (folder / "memory" / "facts.md").write_text("tea, not coffee")
    (folder / "workspace" / "draft.txt").write_text("work")
    (folder / "memory" / "link").symlink_to("/etc/passwd")
    exchange.join("c", engage="mention", priority=3)
    path = exchange.root / "andy.tar.gz"
    made = exchange.json("group", "export", "andy", str(path), "--wirings")
    assert made["left_out"] == [{"path": "memory/link", "why": "a link"}]
    assert "workspace/draft.txt" not in names(path)
    assert refused(other, "group", "import", str(path))[0] == 4, "the name is taken"

    told = other.json("group", "import", str(path), "--as", "bea", "--wire")
    assert told["accepted"] is False
    assert told["wired"] == ["postbox:box:c"]
    assert (other.home.groups / "bea" / "memory" / "facts.md").read_text() == "tea, not coffee"
    shown = other.op("group.show", name="bea")
    assert shown["accepted"] is False
    wired = next(one for one in shown["wirings"] if one["chat"] == "postbox:box:c")
    assert (wired["engage"], wired["priority"]) == ("mention", 3)
    assert not (other.home.groups / "bea" / "wirings.json").exists()
    before = other.run("chat", "bea", "-m", "hello", "--timeout", "30", check=False)
    assert "nobody has accepted it yet" in before.stdout + before.stderr
    assert "You said" not in before.stdout
    other.run("group", "accept", "bea")
    assert other.op("group.show", name="bea")["accepted"] is True
    assert "You said: hello" in other.run("chat", "bea", "-m", "hello").stdout

    exchange.run("group", "export", "andy", str(path), "--workspace")
    told = other.json("group", "import", str(path), "--as", "cleo")
    assert told["hints"] == []
    assert (other.home.groups / "cleo" / "workspace" / "draft.txt").read_text() == "work"


@pytest.mark.parametrize(("moment", "known"), [("before the host knows", False), ("after the host knows", True)])
def test_an_import_that_is_killed_is_there_whole_or_can_be_made_again(
    exchange: Exchange, moment: str, known: bool
) -> None:
    path = exchange.root / "andy.tar.gz"
    exchange.run("group", "export", "andy", str(path))
    command = ["group", "import", str(path), "--as", "bea"]
    done = subprocess.run([sys.executable, "-c", KILLED, moment, *command], env=exchange.env(), timeout=BOUND)
    assert done.returncode == -signal.SIGKILL
    assert any(group["folder"] == "bea" for group in exchange.op("group.list")) is known
    if known:
        assert refused(exchange, *command)[0] == 4
    else:
        exchange.run(*command)
        assert sorted(path.name for path in exchange.home.groups.iterdir()) == ["andy", "bea"]
    assert exchange.op("group.show", name="bea")["accepted"] is False


def test_an_import_of_something_else_leaves_no_trace(exchange: Exchange, archive: Path) -> None:
    before = sorted(path.name for path in exchange.home.groups.iterdir())
    code, error = refused(exchange, "group", "import", str(archive), "--as", "bea")
    assert (code, error["code"]) == (7, "VerificationFailed")
    assert "jackfield restore" in error["fix"]
    agent = exchange.home.groups / "andy" / "agent.toml"
    good = agent.read_text()
    agent.write_text("provider = 7\n")
    exchange.run("group", "export", "andy", str(exchange.root / "bad.tar.gz"))
    agent.write_text(good)
    assert refused(exchange, "group", "import", str(exchange.root / "bad.tar.gz"), "--as", "bea")[0] == 2
    exchange.run("group", "export", "andy", str(exchange.root / "good.tar.gz"))
    assert refused(exchange, "group", "import", str(exchange.root / "good.tar.gz"), "--as", "../x")[0] != 0
    assert sorted(path.name for path in exchange.home.groups.iterdir()) == before
    assert [group["folder"] for group in exchange.op("group.list")] == ["andy"]
