"""Secrets from the command to a tool, and nowhere else: canaries through a whole exchange (C133, C135, C137, C139)."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import json
import os
import pty
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.harness.exchange import BOUND, Exchange, prepared

MASK = "[secret]"
MakeExchange = Callable[..., Exchange]
CANARY = "cnry/8123456789+AAzz_-Q7"
TOKEN = "tokn:LTAI-neverseen-9z"
FORMS = {
    CANARY, TOKEN, quote(CANARY, safe=""), quote(TOKEN, safe=""),
    *(base64.b64encode(b"user:" + text.encode())[8:-4].decode() for text in (CANARY, TOKEN)),
}  # fmt: skip


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    """A running exchange whose agent has the leaky tools and the secret CANARY; its channel `work` has TOKEN."""
    with prepared(
        tmp_path_factory.mktemp("bank"), plugins=("leaky", "keyed"), host_settings='log_level = "debug"'
    ) as exchange:
        exchange.run("group", "set", "andy", "tools", '["messaging", "leaky"]')
        exchange.start()
        exchange.run("secret", "set", "CANARY", stdin=CANARY + "\n")
        exchange.run("secret", "assign", "CANARY", "andy")
        platform = exchange.root / "p"
        platform.mkdir()
        (platform / "key").write_text(TOKEN, encoding="utf-8")
        exchange.run(
            "channel", "setup", "keyed", "work", "--set", f"server={platform}", "--secret", "key=-", "--yes",
            stdin=TOKEN,
        )  # fmt: skip
        exchange.run("reload")
        exchange.wait_for((platform / "started-work").exists, "the channel's start")
        yield exchange


def tool(name: str, /, **arguments: Any) -> str:
    return f"mock: tool {name} {json.dumps(arguments)}"


def ask(exchange: Exchange, chat: str, text: str) -> str:
    """Say it, and wait for the next answer."""
    count = len(exchange.texts(chat))
    exchange.say(chat, text)
    exchange.wait_for(lambda: len(exchange.texts(chat)) > count, f"an answer in {chat}")
    return exchange.texts(chat)[count]


def digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:16]


def assert_clean(where: str, data: bytes | str) -> None:
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    for form in FORMS:
        assert form not in text, f"{form!r} in {where}: ...{text[max(0, text.find(form) - 80) : text.find(form) + 80]}"


# ---- reaching the agent


def test_a_tool_gets_what_is_assigned_and_its_use_is_on_record(bank: Exchange) -> None:
    bank.join("use")
    assert ask(bank, "use", tool("spend", name="CANARY")) == digest(CANARY)
    assert "it has: CANARY" in ask(bank, "use", tool("spend", name="NONE"))
    assert "work-key" not in ask(bank, "use", tool("spend", name="work-key")).replace("'work-key'", "")
    folder = Path(bank.session_of("use")["folder"])

    def used() -> list[Any]:
        db = sqlite3.connect(f"file:{folder}/outbound.db?mode=ro", uri=True)
        try:
            return db.execute("SELECT target FROM activity WHERE kind = 'secret_use'").fetchall()
        finally:
            db.close()

    bank.wait_for(used, "the record of its use")
    assert used() == [("CANARY",)]


def test_what_agents_did_is_shown_to_the_operator_and_holds_no_secret(bank: Exchange) -> None:
    """C135; issue 4: drained into the store, shown by `jackfield activity`."""
    bank.join("did")
    ask(bank, "did", tool("spend", name="CANARY"))
    ask(bank, "did", tool("blurt", name="CANARY", how="raw"))
    session = bank.session_of("did")["id"]

    def shown(*options: str) -> list[tuple[str, str]]:
        return [(one["kind"], one["target"]) for one in bank.json("activity", "--session", session, *options)]

    bank.wait_for(lambda: len(shown()) >= 4, "two calls, and two uses of the secret")
    assert shown("--kind", "secret_use") == [("secret_use", "CANARY")] * 2
    assert {target for kind, target in shown() if kind != "secret_use"} == {"spend", "blurt"}
    assert shown("--limit", "1") == shown()[:1], "the newest first"
    assert shown("--group", "andy", "--since", "1h") == shown()
    told = bank.run("activity", "--group", "andy").stdout
    assert "CANARY" in told and "spend" in told
    assert_clean("the activity", told)
    assert_clean("the activity", json.dumps(bank.op("activity.list", session=session)))
    assert bank.run("activity", "--kind", "dreams", check=False).returncode == 2
    assert bank.run("activity", "--group", "nobody", check=False).returncode == 3
    assert bank.run("activity", "--since", "soon", check=False).returncode == 2


def test_it_lies_in_no_environment_command_line_or_file_that_the_runner_sees(bank: Exchange) -> None:
    bank.join("seek")
    assert ask(bank, "seek", tool("seek", name="CANARY")) == "found in []; variables []"
    assert bank.processes()
    for process in Path("/proc").glob("[0-9]*"):  # runners, their children and the host among them
        for file in ("environ", "cmdline"):
            with contextlib.suppress(OSError):
                assert_clean(str(process / file), (process / file).read_bytes())


def test_a_changed_secret_reaches_the_next_turn_and_one_that_was_taken_away_does_not(bank: Exchange) -> None:
    bank.join("change")
    bank.op("secret.set", name="MOVING", value="first-value")
    assert "there is no secret" in ask(bank, "change", tool("spend", name="MOVING"))
    bank.op("secret.assign", name="MOVING", group="andy")
    assert ask(bank, "change", tool("spend", name="MOVING")) == digest("first-value")
    bank.op("secret.set", name="MOVING", value="second-value")
    assert ask(bank, "change", tool("spend", name="MOVING")) == digest("second-value")
    bank.op("secret.rotate")
    assert ask(bank, "change", tool("spend", name="MOVING")) == digest("second-value")
    bank.op("secret.unassign", name="MOVING", group="andy")
    assert "there is no secret" in ask(bank, "change", tool("spend", name="MOVING"))


def test_the_settings_of_a_provider_may_refer_to_a_secret(bank: Exchange) -> None:
    bank.op("secret.set", name="REPLY", value="what it answers")
    bank.add_agent("echo", '[providers.mock]\nreply = "secret:REPLY"')
    bank.join("refer", group="echo")
    bank.say("refer", "hello")
    log = bank.home.logs / "host.jsonl"
    bank.wait_for(lambda: "needs the secret 'REPLY'" in log.read_text(encoding="utf-8"), "what the operator is told")
    bank.op("secret.assign", name="REPLY", group="echo")
    bank.say("refer", "hello again")
    bank.wait_text("refer", MASK)


def test_a_runner_that_is_started_and_not_forked_gets_many_and_large_ones(make_exchange: MakeExchange) -> None:
    exchange = make_exchange(plugins=("leaky",))
    with exchange.home.jackfield_toml.open("a", encoding="utf-8") as file:
        file.write("\n[runtimes.process]\nnursery = false\n")
    exchange.run("group", "set", "andy", "tools", '["messaging", "leaky"]')
    exchange.run("group", "set", "andy", "secrets", "all")
    values = {f"LARGE_{number}": str(number) * 30_000 for number in range(5)}
    exchange.op("secret.import", values=values)
    exchange.start()
    exchange.join("large")
    assert ask(exchange, "large", tool("spend", name="LARGE_4")) == digest(values["LARGE_4"])
    assert ask(exchange, "large", tool("seek", name="LARGE_3")) == "found in []; variables []"


# ---- leaking


def test_whatever_a_tool_does_with_it_nothing_shows_it(bank: Exchange) -> None:
    """C133, C137."""
    bank.join("leak")
    for how in ("raw", "url", "json", "base64", "error"):
        assert MASK in ask(bank, "leak", tool("blurt", name="CANARY", how=how)), how
    assert "the tool failed" in ask(bank, "leak", tool("blurt", name="CANARY", how="crash"))
    assert ask(bank, "leak", tool("blurt", name="CANARY", how="log")) == "logged"
    ask(bank, "leak", tool("blurt", name="CANARY", how="act"))
    bank.say("leak", tool("blurt", name="CANARY", how="send"))
    bank.wait_text("leak", f"{MASK} and {MASK}")
    bank.wait_text("leak", "sent")
    prompt = ask(bank, "leak", f"here it is: {CANARY} and {TOKEN} mock: show prompt")
    assert prompt.count(MASK) >= 2
    bank.order("leak", {"fail": "permanent", "message": f"https://api.example/bot{TOKEN}/send: 404"})
    bank.say("leak", "mock: say refused")
    bank.wait_for(
        lambda: bank.query("SELECT 1 FROM deliveries WHERE last_error LIKE '%api.example%'"), "the failed delivery"
    )
    for file in ("message list", "message list --out", "session list", "status", "secret list", "group list"):
        assert_clean(file, bank.run(*file.split(), "--json", check=False).stdout)
    everywhere_clean(bank)


def everywhere_clean(bank: Exchange) -> None:
    """What is kept, sent and shown.  The raw output of a live runner is none of it: the host drains it first."""
    for item in bank.sent():
        assert_clean("the platform", json.dumps(item))
    places = [path for path in bank.home.root.rglob("*") if path.is_file() and "runtimes" not in path.parts]
    assert any(path.name == "host.jsonl" for path in places)
    for path in places:
        assert_clean(str(path), path.read_bytes())
    assert_clean("the console", (bank.root / "host.out").read_bytes())
    logged = (bank.home.logs / "host.jsonl").read_text(encoding="utf-8")
    assert MASK in logged


def test_a_backup_holds_no_plain_value_and_its_manifest_none_either(bank: Exchange, tmp_path: Path) -> None:
    bank.run("backup", str(tmp_path / "b.tar.gz"))
    assert_clean("the backup", gzip.decompress((tmp_path / "b.tar.gz").read_bytes()))


def test_files_that_may_hold_a_secret_are_for_the_host_alone(bank: Exchange) -> None:
    """C135: the store, the key, the logs, crash reports and backups; also what SQLite lays beside its file."""
    bank.run("backup")
    home = bank.home
    kept = [home.jackfield_toml, home.master_key, *home.root.glob("state.db*")]
    kept += [path for folder in (home.logs, home.backups) for path in folder.rglob("*") if path.is_file()]
    assert {"state.db", "master.key", "host.jsonl"} < {path.name for path in kept}
    assert any(path.parent == home.backups for path in kept)
    assert [str(path) for path in kept if path.stat().st_mode & 0o077] == []


def test_an_agent_that_is_exported_takes_no_secret_along(bank: Exchange, tmp_path: Path) -> None:
    bank.op("secret.set", name="OWN", value="own-of-andy-1", group="andy")
    bank.run("group", "export", "andy", str(tmp_path / "a.tar.gz"))
    data = gzip.decompress((tmp_path / "a.tar.gz").read_bytes())
    assert b"own-of-andy-1" not in data
    assert b"OWN" not in data
    assert_clean("the export", data)


# ---- the command


def test_a_value_is_never_taken_from_the_command_line_nor_kept_or_shown(bank: Exchange) -> None:
    """C135."""
    secret = "sk-test-AAA111"
    lines = (
        ("secret", "set", "--token", secret), ("secret", "set", f"--token={secret}"), ("secret", "set", "T", secret),
        ("secret", "set", "T", "--value", secret), ("secret", "set", f"T={secret}"), ("secret", "set", secret),
        ("secret", "set", "--password", "PLAINVALUE99"), ("group", "add", f"https://u:{secret}@h.example/x", "--oops"),
    )  # fmt: skip
    for words in lines:
        done = bank.run(*words, check=False, stdin="something-else")
        assert done.returncode == 2, words
        assert "AAA111" not in done.stdout + done.stderr, words
        assert "PLAINVALUE99" not in done.stdout + done.stderr, words
    for path in (path for path in bank.home.root.rglob("*") if path.is_file()):
        assert b"AAA111" not in path.read_bytes(), path


def test_a_crash_report_holds_no_secret(bank: Exchange) -> None:
    """C133, C135."""
    code = f"""
        from jackfield.cli import secret
        from jackfield.cli.main import main
        def crash(*args, **kwargs): raise RuntimeError("lost https://api.example/bot{CANARY}/send --token PLAINVALUE99")
        secret.call = crash
        raise SystemExit(main(["secret", "list"]))
    """
    program = "\n".join(line.strip() for line in code.splitlines())
    done = subprocess.run(
        [sys.executable, "-c", program], env=bank.env(), capture_output=True, text=True, timeout=BOUND, check=False
    )
    assert done.returncode == 1
    (report,) = bank.home.logs.glob("crash-*.log")
    text = report.read_text(encoding="utf-8")
    assert "RuntimeError" in text
    assert MASK in text
    assert_clean("the report", text)
    assert "PLAINVALUE99" not in text
    assert_clean("the command", done.stdout + done.stderr)


def test_a_person_is_asked_twice_and_sees_nothing(bank: Exchange) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "jackfield.cli", "secret", "set", "ASKED"],
        env=bank.env(TERM="dumb"), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    heard = b""
    try:
        for word in (b"(not shown)", b"Again"):
            while word not in heard:
                heard += os.read(ours, 4096)
            os.write(ours, b"typed-by-hand\n")
        while b"is stored" not in heard:
            heard += os.read(ours, 4096)
        assert process.wait(BOUND) == 0
    finally:
        process.kill()
        process.wait(BOUND)
        os.close(ours)
    assert b"typed" not in heard
    assert bank.json("secret", "show", "ASKED")["masked"] is True


def test_a_file_is_imported_whole_and_each_secret_gets_its_kind(bank: Exchange, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("ONE=one-value-1\nno-name=x\n", encoding="utf-8")
    assert bank.run("secret", "import", str(tmp_path / ".env"), check=False).returncode == 2
    (tmp_path / ".env").write_text("ONE=one-value-1\nTWO='two value 2'\nTINY=abc\nMODE=production\n", encoding="utf-8")
    said = bank.run("secret", "import", str(tmp_path / ".env"), "--group", "andy")
    assert "logs and chats: TINY\n" in said.stderr
    assert "MODE: an ordinary word" in said.stderr
    bank.op("secret.remove", name="MODE", group="andy")
    kinds = {one["name"]: (one["kind"], one["group"]) for one in bank.op("secret.list")}
    assert kinds["ONE"] == kinds["TWO"] == ("generic", "andy")
    (tmp_path / "secrets.toml").write_text('old-token = "of the old file"\n', encoding="utf-8")
    bank.run("secret", "import", str(tmp_path / "secrets.toml"))
    assert bank.op("secret.show", name="old-token")["kind"] == "channel-token"
    given = {one["name"]: one["why"] for one in bank.json("secret", "list", "--group", "andy")}
    assert given["ONE"] == "scoped" and given["CANARY"] == "assigned" and "old-token" not in given


def test_a_secret_is_given_taken_away_sealed_anew_and_forgotten(bank: Exchange) -> None:
    def given() -> set[str]:
        return {one["name"] for one in bank.json("secret", "list", "--group", "andy")}

    bank.run("secret", "set", "SPARE", stdin="a spare value\n")
    assert "SPARE" not in given()
    bank.run("secret", "assign", "SPARE", "andy")
    assert "SPARE" in given()
    bank.run("secret", "unassign", "SPARE", "andy")
    assert "SPARE" not in given()
    key, sealed = bank.home.master_key.read_bytes(), bank.query("SELECT id, sealed FROM secrets ORDER BY id")
    bank.run("secret", "rotate", "--yes")
    assert bank.home.master_key.read_bytes() != key
    fresh = bank.query("SELECT id, sealed FROM secrets ORDER BY id")
    assert [one[0] for one in fresh] == [one[0] for one in sealed]
    assert not {one[1] for one in fresh} & {one[1] for one in sealed}
    assert {one["readable"] for one in bank.json("secret", "list")} == {True}
    bank.run("secret", "remove", "SPARE", "--yes")
    assert bank.run("secret", "remove", "SPARE", "--yes", check=False).returncode == 3


# ---- another key; last, since it stops the host


def test_a_host_does_not_start_with_another_key_and_nothing_is_lost(bank: Exchange) -> None:
    """C139."""
    assert bank.stop() == 0
    right = bank.home.master_key.read_bytes()
    before = bank.query("SELECT id, sealed FROM secrets ORDER BY id")
    bank.home.master_key.write_bytes(os.urandom(32))
    refused = bank.run("up", check=False)
    assert refused.returncode == 1
    assert "is not the key that the stored secrets need" in refused.stderr and "fix:" in refused.stderr
    assert bank.run("secret", "set", "D", stdin="value-of-d", check=False).returncode == 1
    assert {one["readable"] for one in bank.json("secret", "list")} == {False}
    assert bank.query("SELECT id, sealed FROM secrets ORDER BY id") == before
    bank.run("secret", "accept-key", "--yes")
    bank.run("secret", "set", "D", stdin="value-of-d")
    bank.home.master_key.write_bytes(right)
    assert bank.run("up", check=False).returncode == 1
    told = bank.json("secret", "accept-key", "--yes")
    assert told == {"readable": len(before), "unreadable": 1}
    state = {one["name"]: one["readable"] for one in bank.json("secret", "list")}
    assert state.pop("D") is False and set(state.values()) == {True}
    bank.start()
    assert ask(bank, "use", tool("spend", name="CANARY")) == digest(CANARY)
    everywhere_clean(bank)
