"""`doctor`, `channel setup` and `channel doctor`, with real homes, hosts and sandboxes."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.exchange import BOUND, Exchange

MakeExchange = Callable[..., Exchange]


@pytest.fixture
def keyed(make_exchange: MakeExchange) -> Exchange:
    """An exchange beside a platform `p` that takes the key `right`."""
    exchange = make_exchange(plugins=("keyed",))
    platform(exchange).mkdir()
    (platform(exchange) / "key").write_text("right", encoding="utf-8")
    return exchange


def platform(exchange: Exchange) -> Path:
    return exchange.root / "p"


def setup(exchange: Exchange, *words: str, key: str = "right", code: int = 0, **more: str) -> Any:
    done = exchange.run("channel", "setup", "keyed", "work", *words, "--json", check=False, stdin=key, **more)
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def set_up(exchange: Exchange, *words: str) -> Any:
    return setup(exchange, "--set", f"server={platform(exchange)}", "--secret", "key=-", *words)


def doctor(exchange: Exchange, *words: str, code: int = 0) -> dict[str, list[dict[str, Any]]]:
    """The findings by check."""
    done = exchange.run("doctor", *words, "--json", check=False)
    assert done.returncode == code, (done.stdout, done.stderr)
    found: dict[str, list[dict[str, Any]]] = {}
    for one in json.loads(done.stdout)["findings"]:
        assert one["level"] == "ok" or (one["fix"] and "\n" not in one["fix"]), one
        found.setdefault(one["check"], []).append(one)
    return found


def levels(findings: dict[str, list[dict[str, Any]]]) -> dict[str, set[str]]:
    return {check: {one["level"] for one in found} for check, found in findings.items()}


def files_of(exchange: Exchange) -> set[str]:
    root = exchange.home.root
    return {str(path.relative_to(root)) for path in root.rglob("*") if "plugins" not in path.parts}


# ---- doctor


def test_a_healthy_home_is_proved_healthy_with_a_host_and_without_and_nothing_is_left(exchange: Exchange) -> None:
    checks = {
        "home", "disk", "configuration", "store", "clock", "host", "plugins", "messages", "mailboxes", "ingress",
        "secrets", "people", "approvals", "tasks", "channel:terminal", "channel:box", "agent:andy", "runtime:process",
        "reach:andy", "models",
    }  # fmt: skip
    offline = doctor(exchange)
    assert set(offline) == checks
    assert "error" not in set().union(*levels(offline).values())
    assert "no host runs" in offline["host"][0]["text"]
    exchange.start()
    exchange.join("ann")
    exchange.say("ann", "hello")
    exchange.wait_sent("ann", 1)
    online = doctor(exchange)
    assert set(online) == checks
    assert "it runs" in online["host"][0]["text"]
    assert not [path for path in files_of(exchange) if "reach-" in path]
    exchange.say("ann", "still there?")
    exchange.wait_sent("ann", 2)


def test_everything_that_is_wrong_is_told_in_one_go_with_its_fix(keyed: Exchange) -> None:
    """C198, C200, C202."""
    set_up(keyed)
    home = keyed.home
    home.master_key.chmod(0o644)
    with home.jackfield_toml.open("a", encoding="utf-8") as file:
        file.write('\n[chanels.x]\n[channels.gone]\ntype = "telegrammy"\n')
    keyed.run("group", "add", "Bob", "--folder", "bob")
    (home.groups / "bob" / "agent.toml").write_text('provider = "nobody"\n', encoding="utf-8")
    found = doctor(keyed, code=1)
    assert "chmod 600" in found["home"][0]["fix"]
    said = json.dumps(found["configuration"])
    assert "chanels" in said and "telegrammy" in said and "nobody" in said
    assert levels(found)["plugins"] == {"error"}
    assert "chmod 600" in json.dumps(found["channel:work"])
    assert levels(found)["channel:gone"] == {"error"}
    assert "group accept bob" in json.dumps(found["agent:bob"])
    assert levels(found)["reach:bob"] == {"error"}, "a provider that is not installed can't work"
    assert levels(found)["reach:andy"] == {"ok"}
    hints = keyed.run("doctor", "--fix-hints", check=False)
    assert hints.returncode == 1
    assert all(": " in line for line in hints.stdout.splitlines())


def test_a_store_of_a_newer_version_is_told_and_not_touched(exchange: Exchange) -> None:
    """C202."""
    state = exchange.home.state_db
    db = sqlite3.connect(state)
    db.execute("INSERT INTO schema_version VALUES (9999, 'later', 'x', 0)")
    db.commit()
    db.close()
    before = state.read_bytes()
    found = doctor(exchange, code=1)
    assert "newer" in found["host"][0]["text"]
    assert levels(found)["home"] == {"ok"}
    assert state.read_bytes() == before


def test_a_home_that_another_program_holds_without_answering_is_told(exchange: Exchange) -> None:
    holder = subprocess.Popen(
        [
            sys.executable, "-c",
            "import sys; from jackfield.config import Home; from jackfield.host.ownership import own\n"
            "with own(Home.find()): print('held', flush=True); sys.stdin.read()",
        ],
        env=exchange.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        found = doctor(exchange, code=1)
        assert str(holder.pid) in found["host"][0]["text"]
    finally:
        holder.communicate(b"", timeout=BOUND)


def test_a_corrupt_page_is_found(exchange: Exchange) -> None:
    exchange.run("status")
    state = exchange.home.state_db
    data = bytearray(state.read_bytes())
    data[4096 * 2 : 4096 * 4] = b"\xff" * 8192
    state.write_bytes(data)
    found = doctor(exchange, code=1)
    assert "error" in levels(found).get("store", set()) | levels(found).get("host", set())


def test_an_agent_without_isolation_is_a_warning_and_its_trial_still_runs(exchange: Exchange) -> None:
    with exchange.home.jackfield_toml.open("a", encoding="utf-8") as file:
        file.write('\n[runtimes.process]\nisolation = "none"\n')
    found = levels(doctor(exchange))
    assert found["runtime:process"] == {"warning"}
    assert found["reach:andy"] <= {"warning", "ok"}


def test_a_home_that_is_none_is_told_as_by_every_command(exchange: Exchange, tmp_path: Path) -> None:
    done = exchange.run("--home", str(tmp_path / "none"), "doctor", check=False)
    assert done.returncode == 3
    assert not (tmp_path / "none").exists()


# ---- channel setup


def test_nothing_is_written_before_the_platform_takes_the_credentials(keyed: Exchange) -> None:
    before = keyed.home.jackfield_toml.read_bytes()
    refused = setup(keyed, "--set", f"server={platform(keyed)}", "--secret", "key=-", key="sesame", code=1)
    assert "not taken" in refused["error"]["message"]
    assert "sesame" not in json.dumps(refused)
    assert keyed.home.jackfield_toml.read_bytes() == before
    assert keyed.op("secret.list") == []
    done = set_up(keyed)
    assert (done["created"], done["secrets"], done["check"]["ok"]) == (True, {"work-key": "stored"}, True)
    (kept,) = keyed.op("secret.list")
    assert (kept["name"], kept["kind"], kept["readable"]) == ("work-key", "channel-token", True)
    assert keyed.home.master_key.stat().st_mode & 0o777 == 0o600
    assert "right" not in keyed.home.jackfield_toml.read_text(encoding="utf-8")
    assert not (platform(keyed) / "started-work").exists(), "no set-up starts a channel"
    keyed.run("config", "check", "--strict")


def test_a_second_time_changes_nothing_and_another_value_only_that_one(keyed: Exchange) -> None:
    set_up(keyed)
    toml = keyed.home.jackfield_toml
    toml.write_text(toml.read_text(encoding="utf-8") + "# a remark\n", encoding="utf-8")
    before = toml.read_bytes(), keyed.op("secret.list")
    again = set_up(keyed)
    assert (again["created"], again["changed"], again["secrets"]) == (False, [], {"work-key": "unchanged"})
    assert (toml.read_bytes(), keyed.op("secret.list")) == before
    changed = setup(keyed, "--set", "greeting=good day")
    assert (changed["created"], changed["changed"], changed["secrets"]) == (False, ["greeting"], {})
    after = toml.read_text(encoding="utf-8")
    assert after.replace('greeting = "good day"\n', "") == before[0].decode()


REFUSED: dict[tuple[str, ...], str] = {
    ("--secret", "key=plain"): "can be seen by others",
    ("--secret", "nokey=-"): "there is: key",
    ("--secret-env", "key=NO_SUCH_VARIABLE"): "NO_SUCH_VARIABLE",
    ("--set", "server"): "KEY=VALUE",
    ("--set", "sever=/x"): "server",
    ("--set", "type=other"): "type",
    (): "server: it is needed",
    ("--secret", "key=-", "--secret", "other=-"): "of 2 secrets 1 came from standard input",
    ("--set", "server=/x", "--set", "key=nowhere"): "nowhere",
}


def test_what_can_not_be_used_is_refused_with_the_fix_and_changes_nothing(keyed: Exchange) -> None:
    before = keyed.home.jackfield_toml.read_bytes()
    for words, said in REFUSED.items():
        refused = setup(keyed, *words, code=2)
        assert said in json.dumps(refused)
        assert refused["error"]["fix"]
        assert "plain" not in refused["error"]["message"]
    done = keyed.run("channel", "setup", "keyed", "box", "--json", check=False)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (4, "Conflict")
    assert keyed.home.jackfield_toml.read_bytes() == before


def test_a_secret_from_the_environment_needs_no_file_and_a_variable_can_be_stored(keyed: Exchange) -> None:
    words = ("--set", f"server={platform(keyed)}")
    done = setup(keyed, *words, "--set", "key=mine", JACKFIELD_SECRET_MINE="right")
    assert done["check"]["ok"]
    assert keyed.op("secret.list") == []
    stored = setup(keyed, "--secret-env", "key=SOMEWHERE", SOMEWHERE="right")
    assert stored["secrets"] == {"mine": "stored"}


def test_a_failing_check_can_be_kept_when_the_operator_says_so(keyed: Exchange) -> None:
    done = setup(keyed, "--set", f"server={platform(keyed)}", "--secret", "key=-", "--keep", key="later")
    assert (done["created"], done["check"]["ok"]) == (True, False)


def test_a_person_is_shown_the_consoles_steps_and_asked_for_what_is_needed(keyed: Exchange) -> None:
    """The secret is never shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "jackfield.cli", "channel", "setup", "keyed"],
        env=keyed.env(TERM="dumb"), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    heard = b""

    def until(*words: bytes) -> None:
        nonlocal heard
        while not all(word in heard for word in words):
            try:
                data = os.read(ours, 4096)
            except OSError:
                data = b""
            assert data, heard
            heard += data

    try:
        until(
            b"console.invalid",
            b"1. Make an app.",
            b"name: keyed-app",
            b"The folder that is the platform.",
            b"server: ",
        )
        os.write(ours, f"{platform(keyed)}\n".encode())
        until(b"The key of the app.", b"key, the secret itself: ")
        os.write(ours, b"right\n")
        until(b"signed in as keyed-bot", b"jackfield reload")
        assert process.wait(BOUND) == 0
    finally:
        process.kill()
        process.wait(BOUND)
        os.close(ours)
    assert b"right" not in heard
    assert [one["name"] for one in keyed.op("secret.list")] == ["keyed-key"]


def test_a_webhook_needs_no_word_and_the_secret_that_was_made_for_it_is_shown_once(exchange: Exchange) -> None:
    done = exchange.json("channel", "setup", "webhook", "door")
    ((name, secret),) = done["made"].items()
    assert (name, done["secrets"], done["check"]["ok"]) == ("door-secrets", {name: "stored"}, True)
    assert secret.startswith("whsec_")
    exchange.run("config", "check", "--strict")
    again = exchange.json("channel", "setup", "webhook", "door")
    assert (again["made"], again["changed"], again["secrets"]) == ({}, [], {})
    given = exchange.run(
        "channel", "setup", "webhook", "other", "--set", "verify=bearer", "--secret", "secrets=-", "--json",
        stdin="open-sesame-but-longer",
    )  # fmt: skip
    assert json.loads(given.stdout)["made"] == {}
    local = exchange.json("channel", "setup", "webhook", "local", "--set", "verify=none", "--set", "insecure=true")
    assert (local["made"], local["secrets"]) == ({}, {})
    exchange.run("channel", "setup", "webhook", "local", "--set", "map.user=$.user", "--set", "map.id=$.id", "--yes")
    exchange.run("channel", "setup", "webhook", "local", "--set", "map.id=$.number", "--yes")
    written = tomllib.loads(exchange.home.jackfield_toml.read_text(encoding="utf-8"))["channels"]["local"]
    assert written["map"] == {"user": "$.user", "id": "$.number"}, "a part of a table leaves the rest as it is"
    wrong = exchange.run("channel", "setup", "webhook", "local", "--set", "map.who=$.user", "--yes", check=False)
    assert wrong.returncode == 2 and "map.who" in wrong.stderr


# ---- channel doctor


def test_one_channel_is_examined_from_settings_to_a_message_and_back(keyed: Exchange) -> None:
    set_up(keyed)
    cold = keyed.json("channel", "doctor", "work")
    assert (cold["ok"], cold["state"], cold["capabilities"]["history"]) == (True, "stopped", "native")
    refused = keyed.run("channel", "doctor", "work", "--send", "keyed:work:room", "--json", check=False)
    assert refused.returncode == 1
    assert "up" in json.loads(refused.stdout)["findings"][-1]["fix"]
    keyed.start()
    keyed.wait_for(lambda: keyed.json("channel", "doctor", "work")["state"] == "ready", "the channel")
    tried = keyed.json("channel", "doctor", "work", "--send", "keyed:work:room")
    assert (tried["ok"], tried["trial"]["found"], tried["trial"]["removed"]) == (True, True, True)
    assert (platform(keyed) / "chat.jsonl").read_text(encoding="utf-8") == ""
    (platform(keyed) / "blind").touch()
    blind = keyed.run("channel", "doctor", "work", "--send", "keyed:work:room", "--json", check=False)
    assert blind.returncode == 1
    assert json.loads(blind.stdout)["trial"]["found"] is False
    assert keyed.run("channel", "doctor", "nobody", check=False).returncode == 3


def test_a_revoked_key_is_found_while_the_channel_still_looks_well(keyed: Exchange) -> None:
    """C234: the host runs on, and says what to do."""
    set_up(keyed)
    keyed.start()
    keyed.wait_for(lambda: keyed.json("channel", "doctor", "work")["state"] == "ready", "the channel")
    (platform(keyed) / "key").write_text("new", encoding="utf-8")
    found = doctor(keyed, code=1)["channel:work"]
    assert [(one["level"], one["fix"]) for one in found] == [("error", "copy it again")]
    assert keyed.stop() == 0
    keyed.start()
    failed = keyed.run("channel", "doctor", "work", "--json", check=False)
    assert failed.returncode == 1
    assert "auth_failed" in failed.stdout


def test_a_plugin_that_fails_or_hangs_where_none_should_is_a_finding_and_the_others_are_made(keyed: Exchange) -> None:
    """C179, C183, C185: with a host and without one."""
    set_up(keyed)
    for start in (False, True):
        if start:
            keyed.start()
        (platform(keyed) / "unmade").touch()
        found = doctor(keyed, code=1)
        assert "nobody made it" in found["channel:work"][0]["text"]
        assert levels(found)["reach:andy"] == {"ok"}
        (platform(keyed) / "unmade").unlink()
        (platform(keyed) / "mute").touch()
        assert keyed.json("channel", "doctor", "box")["capabilities"]
        shown = keyed.run("channel", "doctor", "work", "--json", check=False)
        assert json.loads(shown.stdout)["capabilities"] == {}
        (platform(keyed) / "mute").unlink()
    (platform(keyed) / "hang").touch()
    found = doctor(keyed, code=1)
    assert "did not answer" in found["channel:work"][0]["text"]
    assert levels(found)["reach:andy"] == {"ok"}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["deaf", "block"])
def test_a_plugin_that_can_not_be_ended_does_not_keep_the_command_from_ending(keyed: Exchange, how: str) -> None:
    """It goes on when it is cancelled, or blocks the whole process; what was found until then is shown."""
    set_up(keyed)
    (platform(keyed) / how).touch()
    found = doctor(keyed, "--wait", "10", code=1)
    assert {"home", "disk"} <= found.keys()
    assert found["doctor"][0]["level"] == "error"


def test_a_person_sees_what_is_looked_at_and_a_bound_on_all_of_it_holds(exchange: Exchange) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "jackfield.cli", "doctor", "--wait", "0.01"],
        env=exchange.env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs,
    ) as process:  # fmt: skip
        os.close(theirs)
        said, _ = process.communicate(timeout=BOUND)
    assert process.returncode == 1
    assert b"longer --wait" in said
    assert b"looking at home" in os.read(ours, 4096)
    os.close(ours)


def test_the_last_errors_and_what_waits_are_shown(exchange: Exchange) -> None:
    exchange.join("ann")
    exchange.order("ann", {"fail": "permanent"})
    exchange.start()
    exchange.say("ann", "hello")
    exchange.wait_for(lambda: exchange.op("channel.diagnose", name="box")["errors"], "the failed delivery")
    shown = exchange.json("channel", "doctor", "box")
    assert shown["errors"][0]["reason"] == "ChatNotFound"
    assert levels(doctor(exchange))["messages"] == {"warning"}


def test_routes_are_asked_for_where_the_outside_would_call(keyed: Exchange) -> None:
    text = keyed.home.jackfield_toml.read_text(encoding="utf-8")
    keyed.home.jackfield_toml.write_text(
        f"{text}\n[ingress]\nport = 0\n".replace("[ingress]    ", "#"), encoding="utf-8"
    )
    set_up(keyed, "--set", "hook=true")
    assert "is free" in doctor(keyed)["ingress"][0]["text"]
    keyed.start()
    keyed.wait_for(lambda: keyed.json("channel", "doctor", "work")["state"] == "ready", "the channel")
    shown = keyed.json("channel", "doctor", "work")
    assert shown["routes"][0].endswith("/channels/work/in")
    assert [one["level"] for one in shown["findings"]] == ["ok", "ok"]
