"""The session folder and its one path builder (architecture, section 6; C065, C067)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield.errors import MailboxDamaged, MalformedData, UnsafePath
from jackfield.ids import AgentGroupId, SessionId
from jackfield.mailbox import HostMailbox, RunnerMailbox, SessionFolder, file_name, safe_name
from jackfield.models import RunnerPaths, RunnerSpec

BAD_NAMES = [
    "", ".", "..", "/", "a/b", "../x", "..\\x", "C:\\x", "/etc/passwd", "a\0b", "a\nb", "\x1b[2J", "a\x7f", "a\x85b",
    "a\u2028b", "x" * 256, "ä" * 128, "\ud800",
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> SessionFolder:
    made = SessionFolder(tmp_path / "ag" / "ses")
    made.create()
    return made


def spec() -> RunnerSpec:
    return RunnerSpec(
        session_id=SessionId("ses_1"),
        agent_group_id=AgentGroupId("ag_1"),
        epoch=3,
        install_id="i",
        agent_name="Ann",
        provider="mock",
        paths=RunnerPaths(session="/session", workspace="/workspace", group="/group"),
    )


def test_a_spec_says_of_which_version_it_is_whatever_version_reads_it(folder: SessionFolder) -> None:
    """C207: a default is left out of the file, so it must mean the same to every version."""
    folder.write_spec(replace(spec(), format=2, protocol=3))
    told = json.loads(folder.spec_file.read_bytes())
    assert (told["format"], told["protocol"]) == (2, 3)
    folder.write_spec(spec())
    assert (folder.read_spec().format, folder.read_spec().protocol) == (1, 1)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_not_one_entry_of_a_folder_is_refused(name: str, folder: SessionFolder) -> None:
    """C065."""
    with pytest.raises(UnsafePath):
        safe_name(name)
    for build in (folder.inbox_path, folder.outbox_path):
        with pytest.raises(UnsafePath):
            build("m1", name)
        with pytest.raises(UnsafePath):
            build(name, "file")
    with pytest.raises(UnsafePath):
        folder.store_inbox("m1", name, b"x")
    with pytest.raises(UnsafePath):
        folder.store_inbox(name, "file", b"x")
    with pytest.raises(UnsafePath):
        folder.open_outbox(name, "file")
    with pytest.raises(UnsafePath):
        folder.remove_outbox(name)


@pytest.mark.parametrize("name", ["a", "...", ".hidden", "日本語.png", "a b", "x" * 255, "-rf", "$(id)", "CON"])
def test_a_plain_name_is_itself(name: str) -> None:
    assert safe_name(name) == name


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\x\\a.txt", "a.txt"),
        ("/", "fallback"),
        ("..", "fallback"),
        ("", "fallback"),
        ("\0\0", "fallback"),
        ("  . . ", "fallback"),
        ("nul.txt", "_nul.txt"),
        ("COM1", "_COM1"),
        ("con.tar.gz", "_con.tar.gz"),
        ("a\u202egnp.exe", "agnp.exe"),
        ("a\r\nb.txt", "ab.txt"),
        ('a<b>:"c.txt', "a_b___c.txt"),
        ("x" * 400 + ".jpeg", "x" * 195 + ".jpeg"),
        ("\ud800x", "x"),
        ("cafe\u0301.txt", "caf\u00e9.txt"),
        (".bashrc", "bashrc"),
    ],
)
def test_a_senders_name_is_cleaned(sent: str, kept: str) -> None:
    """C065."""
    assert file_name(sent, "fallback") == kept


@given(st.text(), st.text())
def test_a_cleaned_name_is_always_safe(sent: str, fallback: str) -> None:
    """C065."""
    cleaned = file_name(sent, fallback)
    assert safe_name(cleaned) == cleaned


def test_a_session_folder_needs_an_absolute_path() -> None:
    with pytest.raises(UnsafePath):
        SessionFolder(Path("relative"))


def test_making_a_folder_again_changes_nothing(folder: SessionFolder) -> None:
    folder.outbound_journal.write_bytes(b"x")
    inode = folder.outbound_db.stat().st_ino
    folder.create()
    assert folder.outbound_db.stat().st_ino == inode
    assert folder.outbound_journal.read_bytes() == b"x"
    assert folder.root.stat().st_mode & 0o777 == 0o700
    assert folder.outbound_db.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["inbound.db", "outbound.db", "outbound.db-journal", "heartbeat"])
@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_making_a_folder_refuses_what_is_no_file(tmp_path: Path, name: str, kind: str) -> None:
    folder = SessionFolder(tmp_path / "s")
    folder.root.mkdir()
    victim = tmp_path / "victim"
    put(folder.root / name, kind, victim)
    with pytest.raises(MailboxDamaged):
        folder.create()
    assert not victim.exists()


def put(path: Path, kind: str, target: Path) -> None:
    if kind == "link":
        path.symlink_to(target)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()


def test_a_received_file_lies_under_its_message_and_only_there(folder: SessionFolder) -> None:
    path = folder.store_inbox("m1", "a.txt", [b"one", b"two"], 100)
    assert path == "inbox/m1/a.txt"
    assert (folder.root / path).read_bytes() == b"onetwo"
    assert folder.inbox_path("m1", "a.txt") == folder.root / path
    assert os.listdir(folder.inbox / "m1") == ["a.txt"]


def test_a_replay_keeps_the_first_bytes(folder: SessionFolder) -> None:
    folder.store_inbox("m1", "a.txt", b"first", 100)
    folder.store_inbox("m1", "a.txt", b"second", 100)
    assert (folder.inbox / "m1" / "a.txt").read_bytes() == b"first"


def test_a_file_over_the_limit_leaves_nothing(folder: SessionFolder) -> None:
    with pytest.raises(MalformedData, match="more than 5 bytes"):
        folder.store_inbox("m1", "a.txt", [b"abc", b"def"], 5)
    assert os.listdir(folder.inbox / "m1") == []


def test_a_download_that_breaks_off_leaves_nothing(folder: SessionFolder) -> None:
    def broken() -> object:
        yield b"abc"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        folder.store_inbox("m1", "a.txt", broken(), 100)  # type: ignore[arg-type]  # an iterator that breaks
    assert os.listdir(folder.inbox / "m1") == []


@pytest.mark.parametrize("place", ["inbox", "inbox/m1", "inbox/m1/a.txt"])
def test_nothing_is_stored_through_a_link(folder: SessionFolder, tmp_path: Path, place: str) -> None:
    """C067."""
    canary = tmp_path / "canary"
    canary.mkdir()
    target = canary / "file" if place.endswith("a.txt") else canary
    at = folder.root / place
    if at.is_dir():
        at.rmdir()
    at.parent.mkdir(exist_ok=True)
    at.symlink_to(target)
    with pytest.raises(UnsafePath):
        folder.store_inbox("m1", "a.txt", b"stolen", 100)
    with pytest.raises(UnsafePath):
        folder.inbox_path("m1", "a.txt")
    assert list(canary.iterdir()) == []


@pytest.mark.parametrize("place", ["outbox", "outbox/r1", "outbox/r1/key"])
def test_nothing_is_sent_through_a_link(folder: SessionFolder, tmp_path: Path, place: str) -> None:
    """C067."""
    secret = tmp_path / "secret" / "r1" / "key"
    secret.parent.mkdir(parents=True)
    secret.write_text("master key")
    target = {"outbox": secret.parent.parent, "outbox/r1": secret.parent, "outbox/r1/key": secret}[place]
    at = folder.root / place
    if at.is_dir():
        at.rmdir()
    at.parent.mkdir(exist_ok=True)
    at.symlink_to(target)
    with pytest.raises(UnsafePath):
        folder.open_outbox("r1", "key")
    with pytest.raises(UnsafePath):
        folder.outbox_path("r1", "key")
    if place == "outbox":
        with pytest.raises(UnsafePath):
            folder.remove_outbox("r1")
    else:
        folder.remove_outbox("r1")
        assert not (folder.outbox / "r1").is_symlink()
    assert secret.read_text() == "master key"


def test_a_file_with_a_second_name_elsewhere_is_not_sent(folder: SessionFolder, tmp_path: Path) -> None:
    """C067."""
    secret = tmp_path / "key"
    secret.write_text("master key")
    (folder.outbox / "r1").mkdir()
    os.link(secret, folder.outbox / "r1" / "key")
    with pytest.raises(UnsafePath, match="2 names"):
        folder.open_outbox("r1", "key")


def test_a_fifo_or_a_folder_is_not_sent_and_does_not_block(folder: SessionFolder) -> None:
    """C067."""
    (folder.outbox / "r1" / "sub").mkdir(parents=True)
    os.mkfifo(folder.outbox / "r1" / "pipe")
    for name in ("pipe", "sub", "missing"):
        with pytest.raises(UnsafePath):
            folder.open_outbox("r1", name)


def test_a_regular_file_is_sent(folder: SessionFolder) -> None:
    assert folder.store_outbox("r1", "a.txt", b"hello") == 5
    with folder.open_outbox("r1", "a.txt") as file:
        assert file.read() == b"hello"
        assert os.fstat(file.fileno()).st_size == 5


def test_removing_an_outbox_takes_everything_however_deep_and_nothing_outside(
    folder: SessionFolder, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    (canary / "deep").mkdir(parents=True)
    (canary / "file").write_text("stays")
    root = folder.outbox / "r1"
    root.mkdir()
    (root / "link").symlink_to(canary)
    descriptor = os.open(root, os.O_RDONLY)
    for _ in range(3000):  # far deeper than a path may be long or a stack high
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.symlink(canary, "link", dir_fd=descriptor)
    os.close(descriptor)
    folder.remove_outbox("r1")
    assert not root.exists()
    assert sorted(path.name for path in canary.iterdir()) == ["deep", "file"]
    folder.remove_outbox("r1")


def test_the_spec_comes_back_as_it_was_written(folder: SessionFolder) -> None:
    with pytest.raises(MalformedData, match="could not read"):
        folder.read_spec()
    folder.write_spec(spec())
    assert folder.read_spec() == spec()
    folder.write_spec(spec())
    assert not [name for name in os.listdir(folder.root) if name.endswith(".part")]


def test_a_spec_that_is_a_link_or_nonsense_is_refused(folder: SessionFolder, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("{}")
    folder.spec_file.symlink_to(tmp_path / "other")
    with pytest.raises(MalformedData):
        folder.read_spec()
    folder.spec_file.unlink()
    os.mkfifo(folder.spec_file)
    with pytest.raises(MalformedData):
        folder.read_spec()
    folder.spec_file.unlink()
    folder.spec_file.write_text('{"epoch": "seven"}')
    with pytest.raises(MalformedData, match=r"session\.json"):
        folder.read_spec()


def test_the_heartbeat_is_looked_at_but_never_opened(folder: SessionFolder, tmp_path: Path) -> None:
    """runtime.md 3.7."""
    assert folder.heartbeat_at() is None
    runner = RunnerMailbox(folder, 1)
    runner.touch_heartbeat()
    runner.close()
    at = folder.heartbeat_at()
    assert at is not None and at > 1_600_000_000_000
    folder.heartbeat.unlink()
    assert folder.heartbeat_at() is None
    folder.heartbeat.symlink_to(tmp_path)
    assert folder.heartbeat_at() is None
    folder.heartbeat.unlink()
    os.mkfifo(folder.heartbeat)
    assert folder.heartbeat_at() is None


def test_a_runner_makes_a_missing_heartbeat(folder: SessionFolder) -> None:
    folder.heartbeat.unlink()
    runner = RunnerMailbox(folder, 1)
    runner.touch_heartbeat()
    runner.close()
    assert folder.heartbeat_at() is not None


def test_copying_to_the_outbox_takes_regular_files_only(folder: SessionFolder, tmp_path: Path) -> None:
    source = tmp_path / "a.bin"
    source.write_bytes(os.urandom(700_000))
    os.mkfifo(tmp_path / "pipe")
    runner = RunnerMailbox(folder, 1)
    assert runner.copy_to_outbox("r1", source, "b.bin") == 700_000
    assert (folder.outbox / "r1" / "b.bin").read_bytes() == source.read_bytes()
    for bad in (tmp_path / "pipe", tmp_path, tmp_path / "missing", Path("a\0b")):
        with pytest.raises(UnsafePath):
            runner.copy_to_outbox("r1", bad, "c.bin")
    with pytest.raises(MalformedData):
        runner.copy_to_outbox("r1", source, "c.bin", limit=1000)
    with pytest.raises(UnsafePath):
        runner.copy_to_outbox("r1", source, "../c.bin")
    runner.close()


def test_a_damaged_mailbox_is_set_aside_and_its_numbers_go_on(folder: SessionFolder) -> None:
    folder.write_spec(spec())
    folder.store_inbox("m1", "a.txt", b"x")
    folder.store_outbox("r1", "b.txt", b"y")
    folder.inbound_db.write_bytes(b"garbage" * 1000)
    host = HostMailbox(folder)
    problem = host.check()
    assert problem is not None and "inbound.db" in problem
    host.close()
    aside = folder.set_aside(problem, floor=41)
    assert aside.parent == folder.root.parent and aside.name.startswith("damaged-")
    assert (aside / "inbound.db").read_bytes() == b"garbage" * 1000
    assert "inbound.db" in (aside / "reason.txt").read_text()
    assert (folder.inbox / "m1" / "a.txt").read_bytes() == b"x"
    assert (folder.outbox / "r1" / "b.txt").read_bytes() == b"y"
    assert folder.read_spec() == spec()
    assert host.check() is None
    host.close()


@pytest.mark.parametrize("what", ["link", "file"])
def test_what_lies_in_the_place_of_a_session_folder_is_set_aside_untouched(tmp_path: Path, what: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "inbox").mkdir(parents=True)
    folder = SessionFolder(tmp_path / "sessions" / "ag" / "ses")
    folder.root.parent.mkdir(parents=True)
    if what == "link":
        folder.root.symlink_to(elsewhere)
    else:
        folder.root.write_text("a file")
    with pytest.raises(MailboxDamaged, match="is not a folder"):
        folder.create()
    aside = folder.set_aside("not a folder", floor=3)
    assert aside.is_symlink() if what == "link" else aside.read_text() == "a file"
    assert list(elsewhere.rglob("*")) == [elsewhere / "inbox"]
    host = HostMailbox(folder)
    assert host.check() is None
    host.close()


def test_the_disk_being_full_is_told_apart(folder: SessionFolder) -> None:
    child = """
import resource, sys
from pathlib import Path
from jackfield.errors import MailboxFull
from jackfield.mailbox import SessionFolder
resource.setrlimit(resource.RLIMIT_FSIZE, (10000, 10000))
folder = SessionFolder(Path(sys.argv[1]))
try:
    folder.store_inbox("m1", "a.bin", [b"x" * 6000] * 4)
except MailboxFull as problem:
    print("full", "a.bin" in str(problem))
"""
    done = subprocess.run(
        [sys.executable, "-c", child, str(folder.root)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "full True\n"
    assert os.listdir(folder.inbox / "m1") == []


def test_descriptors_are_not_leaked(folder: SessionFolder) -> None:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
    for number in range(50):
        folder.store_inbox("m1", f"{number}", b"x")
        with pytest.raises(UnsafePath):
            folder.open_outbox("r9", "missing")
        folder.remove_outbox("r9")
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 1
