"""Commands against a small host that speaks the control protocol over a real socket."""

from __future__ import annotations

import datetime
import json
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from jackfield.cli.main import main
from jackfield.config import Home, load_agent, template
from jackfield.errors import Conflict, JackfieldError
from jackfield.host.ownership import is_owned, own

Json = Any
NOW = "2026-01-05T21:00:00.000Z"
NASTY = "Eve\u202e\x1b[31m nimda"


class FakeHost:
    """Answers operations from a table and remembers what it was asked."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.answers: dict[str, Json | Callable[[Json], Json]] = {}
        self.asked: list[tuple[str, Json]] = []
        host = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    request = json.loads(line)
                    self.wfile.write(json.dumps({"id": request["id"], **host.answer(request)}).encode() + b"\n")

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        self.server = Server(str(home.host_sock), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    def answer(self, request: Json) -> Json:
        op, args = request["op"], request.get("args", {})
        self.asked.append((op, args))
        try:
            found = self.answers[op]
            return {"ok": True, "result": found(args) if callable(found) else found}
        except KeyError:
            error = JackfieldError(f"no operation {op}")
        except JackfieldError as problem:
            error = problem
        return {"ok": False, "error": {"code": error.code, "message": error.message, "fix": error.fix}}

    def asked_for(self, op: str) -> list[Json]:
        return [args for name, args in self.asked if name == op]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(30)
        self.home.host_sock.unlink(missing_ok=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("JACKFIELD_HOME", str(tmp_path / "h"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = Home(tmp_path / "h")
    home.create()
    home.jackfield_toml.write_text(template.jackfield_toml(), encoding="utf-8")
    return home


@pytest.fixture
def host(home: Home) -> Iterator[FakeHost]:
    host = FakeHost(home)
    host.answers["host.reload"] = {"channels": ["terminal"], "problems": []}
    yield host
    host.close()


Out = pytest.CaptureFixture[str]


def group_json(folder: str = "andy", **more: Json) -> Json:
    return {
        "id": "ag_0",
        "name": folder.title(),
        "folder": folder,
        "created_at": NOW,
        "path": f"/h/groups/{folder}",
        **more,
    }


@pytest.mark.parametrize(
    ("words", "op", "args"),
    [
        (["group", "list"], "group.list", {}),
        (["group", "show", "andy"], "group.show", {"name": "andy"}),
        (["channel", "list"], "channel.list", {}),
        (["channel", "chats"], "channel.chats", {}),
        (["channel", "chats", "--instance", "work"], "channel.chats", {"instance": "work"}),
        (["channel", "drops", "--limit", "7"], "channel.drops", {"limit": 7}),
        (["channel", "set", "mg_1", "--policy", "public"], "chat.set", {"chat": "mg_1", "policy": "public"}),
        (["wire"], "wire.list", {}),
        (["wire", "a:b:c", "andy"], "wire.add", {"chat": "a:b:c", "group": "andy"}),
        (
            [
                "wire",
                "mg_1",
                "andy",
                "--engage",
                "pattern",
                "--pattern",
                "^!",
                "--scope",
                "known",
                "--ignored",
                "accumulate",
                "--session",
                "per-thread",
                "--priority",
                "-3",
                "--policy",
                "strict",
                "--is-group",
            ],
            "wire.add",
            {
                "chat": "mg_1",
                "group": "andy",
                "engage": "pattern",
                "pattern": "^!",
                "scope": "known",
                "ignored": "accumulate",
                "session": "per-thread",
                "priority": -3,
                "policy": "strict",
                "is_group": True,
            },
        ),
        (["unwire", "mg_1", "andy"], "wire.remove", {"chat": "mg_1", "group": "andy"}),
        (["session", "list"], "session.list", {"limit": 50}),
        (
            ["session", "list", "--group", "andy", "--status", "active", "--limit", "5"],
            "session.list",
            {"group": "andy", "status": "active", "limit": 5},
        ),
        (["session", "show", "ses_1"], "session.show", {"id": "ses_1"}),
        (["session", "tail", "ses_1"], "session.tail", {"id": "ses_1", "limit": 20}),
        (["session", "stop", "ses_1"], "session.stop", {"id": "ses_1"}),
        (["session", "clear", "ses_1", "--yes"], "session.clear", {"id": "ses_1"}),
        (["session", "send", "ses_1", "hi"], "session.send", {"id": "ses_1", "text": "hi"}),
        (["message", "list"], "message.list", {"limit": 50}),
        (
            ["message", "list", "--session", "ses_1", "--state", "failed", "--direction", "out", "--limit", "3"],
            "message.list",
            {"session": "ses_1", "state": "failed", "direction": "out", "limit": 3},
        ),
        (["message", "show", "in_1"], "message.show", {"id": "in_1"}),
        (["message", "retry", "in_1"], "message.retry", {"id": "in_1"}),
        (["message", "drop", "in_1", "-y"], "message.drop", {"id": "in_1"}),
        (["owner", "list"], "owner.list", {}),
        (["owner", "add", "telegram:1", "--name", "Ann"], "owner.add", {"user": "telegram:1", "name": "Ann"}),
        (["owner", "remove", "telegram:1"], "owner.remove", {"user": "telegram:1"}),
        (["member", "list"], "member.list", {}),
        (["member", "list", "andy"], "member.list", {"group": "andy"}),
        (["member", "add", "telegram:1", "andy"], "member.add", {"user": "telegram:1", "group": "andy"}),
        (["member", "remove", "telegram:1", "andy"], "member.remove", {"user": "telegram:1", "group": "andy"}),
        (["user", "list"], "user.list", {}),
        (["user", "show", "telegram:@ann"], "user.show", {"user": "telegram:@ann"}),
        (["user", "timezone", "a:b", "UTC"], "user.timezone", {"user": "a:b", "timezone": "UTC"}),
        (["user", "timezone", "a:b", "-"], "user.timezone", {"user": "a:b"}),
        (["user", "denied"], "user.denied", {}),
        (["user", "forgive", "x:y:z"], "user.forgive", {"chat": "x:y:z"}),
        (["user", "forgive", "x:y:z", "x:1"], "user.forgive", {"chat": "x:y:z", "user": "x:1"}),
        (["owner", "claim"], "owner.claim", {}),
        (["status"], "status", {}),
        (["reload"], "host.reload", {}),
    ],
)
def test_a_command_asks_the_host_and_prints_its_answer_as_json(
    host: FakeHost, capsys: Out, words: list[str], op: str, args: Json
) -> None:
    host.answers[op] = {"answer": NASTY} if op != "session.tail" else [{"answer": NASTY}]
    assert main([*words, "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out) == host.answers[op]
    assert "\u202e" not in out
    assert host.asked == [(op, args)]


def test_the_hosts_errors_become_the_commands(host: FakeHost, capsys: Out) -> None:
    def refuse(args: Json) -> Json:
        raise Conflict("it is there", fix="choose another")

    host.answers["owner.add"] = refuse
    assert main(["owner", "add", "a:b"]) == 4
    assert capsys.readouterr().err == "error: it is there\nfix: choose another\n"
    assert main(["owner", "add", "a:b", "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["error"] == {
        "code": "Conflict",
        "message": "it is there",
        "fix": "choose another",
    }


@pytest.mark.parametrize(
    "command",
    [
        ("task", "list", "--group", ""),
        ("session", "list", "--group", "  "),
        ("activity", "--session", ""),
        ("logs", "--group", ""),
        ("channel", "chats", "--instance", ""),
        ("group", "packages", "add", "andy", "--pip", ""),
        ("group", "list", "--home", ""),
    ],
)
def test_an_option_with_nothing_in_it_is_refused(host: FakeHost, capsys: Out, command: tuple[str, ...]) -> None:
    """`--group "$GROUP"` with no such variable must not mean all groups."""
    assert main(list(command)) == 2
    said = capsys.readouterr().err
    assert "it is empty" in said and next(word for word in command if word.startswith("--")) in said
    assert host.asked == []


def test_an_empty_option_that_means_something_is_passed_on(host: FakeHost) -> None:
    host.answers["task.update"] = {"id": "tsk_1", "state": "active", "next_local": None, "begun": False}
    assert main(["task", "update", "tsk_1", "--cron", ""]) == 0
    assert host.asked_for("task.update") == [{"id": "tsk_1", "cron": ""}]


def test_lists_are_tables_and_names_are_harmless(host: FakeHost, capsys: Out) -> None:
    """C215."""
    host.answers["group.list"] = [group_json(), group_json("b", name=NASTY)]
    host.answers["user.list"] = [{"id": "x:1", "name": NASTY, "roles": [{"role": "owner"}], "created_at": NOW}]
    host.answers["channel.chats"] = [
        {
            "id": "mg_1",
            "address": "a:b:c",
            "name": "אבג",
            "is_group": True,
            "policy": "strict",
            "wired_to": ["andy", "b"],
        }
    ]
    for words in (["groups", "list"], ["users", "list"], ["channels", "chats"]):
        assert main(words) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert "\u202e" not in out
    assert "\u2068אבג\u2069" in out
    assert "andy, b" in out


def test_people_are_named_as_other_commands_want_them_and_members_as_such(host: FakeHost, capsys: Out) -> None:
    host.answers["channel.drops"] = [
        {"chat": "webhook:door:x", "sender": "bob@door", "reason": "no_agent_wired", "count": 1, "last_at": NOW}
    ]
    host.answers["user.list"] = [{"id": "x:1", "name": "Ann", "roles": [], "member_of": ["andy"], "created_at": NOW}]
    assert main(["channel", "drops"]) == 0
    assert "webhook:bob@door" in capsys.readouterr().out
    assert main(["user", "list"]) == 0
    assert "MEMBER OF" in (out := capsys.readouterr().out) and "andy" in out


def test_tables_are_aligned_whatever_the_scripts(host: FakeHost, capsys: Out) -> None:
    host.answers["group.list"] = [group_json("a", name="你好"), group_json("bbb", name="x")]
    main(["group", "list"])
    from jackfield.cli.printable import width

    rows = capsys.readouterr().out.splitlines()
    assert len({width(row[: row.index("ag_0")]) for row in rows[1:]}) == 1


def test_an_empty_list_says_what_to_do(host: FakeHost, capsys: Out) -> None:
    host.answers["group.list"] = []
    assert main(["group", "list"]) == 0
    assert "jackfield group add" in capsys.readouterr().out


def test_a_group_is_shown_with_its_effective_settings(host: FakeHost, home: Home, capsys: Out) -> None:
    folder = home.groups / "andy"
    folder.mkdir()
    (folder / "agent.toml").write_text('model = "m"\n[limits]\nmemory = "1 GiB"\n', encoding="utf-8")
    settings = load_agent(folder).model_dump(mode="json")
    host.answers["group.show"] = group_json(
        path=str(folder), settings=settings, sessions=2, wirings=[], members=["a:b"]
    )
    assert main(["group", "show", "andy"]) == 0
    out = capsys.readouterr().out
    assert "* model" in out
    assert "* limits.memory" in out
    assert "  limits.turn_seconds" in out


def test_adding_a_group_makes_its_folder_and_accepts_its_settings(host: FakeHost, home: Home, capsys: Out) -> None:
    host.answers["group.add"] = lambda args: group_json(args["folder"])
    host.answers["group.accept"] = {"group": "helpful-bot", "changed": True}
    assert main(["group", "add", "Helpful Bot!"]) == 0
    folder = home.groups / "helpful-bot"
    assert load_agent(folder, strict=True).name == "Helpful Bot!"
    assert "Helpful Bot!" in (folder / "AGENTS.md").read_text(encoding="utf-8")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [op for op, _ in host.asked] == ["group.add", "group.accept"]


def test_a_group_with_an_impossible_name_or_plugin_is_refused_before_anything_is_made(
    host: FakeHost, home: Home, capsys: Out
) -> None:
    assert main(["group", "add", "!!!"]) == 2
    assert main(["group", "add", "a", "--folder", "../x"]) == 2
    assert main(["group", "add", "a", "--provider", "mok"]) == 3
    assert "'mock'" in capsys.readouterr().err
    assert main(["group", "add", "a", "--runtime", "proces"]) == 3
    assert host.asked == []
    assert list(home.groups.iterdir()) == []


def test_a_groups_setting_is_changed_in_its_file_then_accepted_then_reloaded(
    host: FakeHost, home: Home, capsys: Out
) -> None:
    folder = home.groups / "andy"
    folder.mkdir()
    host.answers["group.show"] = group_json()
    host.answers["group.accept"] = {"group": "andy", "changed": True}
    assert main(["group", "set", "andy", "limits.turn_seconds", "90"]) == 0
    assert load_agent(folder).limits.turn_seconds == 90
    assert [op for op, _ in host.asked] == ["group.show", "group.accept", "host.reload"]
    assert main(["group", "set", "andy", "limits.turn_seconds", "--unset"]) == 0
    assert load_agent(folder).limits.turn_seconds == 1800
    assert main(["group", "set", "andy", "limits.turn_secs", "9"]) == 2
    assert "turn_seconds" in capsys.readouterr().err
    assert main(["group", "set", "andy", "name"]) == 2


def test_a_tool_set_that_is_not_installed_is_refused_as_a_provider_is(host: FakeHost, home: Home, capsys: Out) -> None:
    (home.groups / "andy").mkdir()
    host.answers["group.show"] = group_json()
    assert main(["group", "set", "andy", "tools", "messaging,dize"]) == 3
    assert "'dize'" in capsys.readouterr().err
    assert [op for op, _ in host.asked] == ["group.show"]


def test_a_file_that_somebody_else_changed_is_not_accepted_by_the_way(host: FakeHost, home: Home, capsys: Out) -> None:
    (home.groups / "andy").mkdir()
    host.answers["group.show"] = group_json(accepted=False)
    assert main(["group", "set", "andy", "model", "m"]) == 4
    assert "jackfield group accept andy" in capsys.readouterr().err
    assert [op for op, _ in host.asked] == ["group.show"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('provider = "mok"', "no provider 'mok' is installed; did you mean 'mock'?"),
        ('runtime = "dokcer"', "no runtime 'dokcer' is installed"),
        ('tools = ["messaging", "dize"]', "no tools 'dize' is installed"),
        ('packs = ["nowhere"]', "no pack 'nowhere' is installed"),
    ],
)
def test_settings_that_name_what_is_not_installed_are_not_accepted(
    host: FakeHost, home: Home, capsys: Out, text: str, said: str
) -> None:
    folder = home.groups / "andy"
    folder.mkdir()
    host.answers["group.show"] = group_json()
    (folder / "agent.toml").write_text(text + "\n", encoding="utf-8")
    assert main(["group", "accept", "andy"]) == 3
    shown = capsys.readouterr().err
    assert said in shown
    assert "fix: " in shown
    assert host.asked_for("group.accept") == []


def test_settings_are_accepted_by_the_host_who_also_judges_a_broken_file(
    host: FakeHost, home: Home, capsys: Out
) -> None:
    folder = home.groups / "andy"
    folder.mkdir()
    host.answers["group.show"] = group_json()
    host.answers["group.accept"] = {"group": "andy", "changed": True}
    for text in ('provider = "mock"\n', "provider = \n"):
        (folder / "agent.toml").write_text(text, encoding="utf-8")
        assert main(["group", "accept", "andy"]) == 0
    assert "andy: agent.toml is accepted" in capsys.readouterr().out
    assert host.asked_for("group.accept") == [{"name": "andy"}, {"name": "andy"}]


@pytest.mark.parametrize(
    ("state", "minutes", "said"),
    [("retrying", -3, "next try  now"), ("parked", 3.5, "next try  in 3 min"), ("failed", -3, ""), ("claimed", -3, "")],
)
def test_a_next_try_is_told_only_while_it_is_to_come(
    host: FakeHost, capsys: Out, state: str, minutes: float, said: str
) -> None:
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=minutes)
    reason = "refusal: it would rather not"
    host.answers["message.show"] = {"id": "in_1", "state": state, "next_try_at": at.isoformat(), "reason": reason}
    assert main(["message", "show", "in_1"]) == 0
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if line.startswith("next try")] == ([said] if said else [])
    assert "refusal: it would rather not" in shown


def test_what_can_not_be_taken_back_is_asked_for_or_needs_yes(host: FakeHost, capsys: Out) -> None:
    host.answers["group.show"] = group_json(sessions=3)
    host.answers["group.remove"] = {"removed": "andy", "folder": "/h/groups/andy"}
    for words in (["group", "remove", "andy"], ["session", "clear", "ses_1"], ["message", "drop", "in_1"]):
        assert main(words) == 2
        assert "--yes" in capsys.readouterr().err
    assert main(["group", "remove", "andy", "--yes", "--force"]) == 0
    assert host.asked_for("group.remove") == [{"name": "ag_0", "force": True}]


def test_warnings_about_a_wiring_are_said(host: FakeHost, capsys: Out) -> None:
    host.answers["wire.add"] = {
        "wiring": {"group": "andy", "chat": "a:b:c", "engage": "always", "session": "shared"},
        "warnings": ["andy and bob will both answer every message there"],
    }
    assert main(["wire", "a:b:c", "andy"]) == 0
    said = capsys.readouterr()
    assert "both answer" in said.err
    assert "andy answers in a:b:c" in said.out
    assert main(["wire", "a:b:c"]) == 2
    assert main(["wire", "a:b:c", "andy", "--engage", "loudly"]) == 2


def tail_item(number: int, direction: str, text: str, state: str = "sent") -> Json:
    return {
        "id": f"x_{number}",
        "direction": direction,
        "text": text,
        "state": state,
        "at": f"2026-01-05T21:00:0{number}.000Z",
    }


def test_a_conversation_is_read_with_its_text_harmless(host: FakeHost, capsys: Out) -> None:
    """C215."""
    host.answers["session.tail"] = [tail_item(1, "in", "שלום\x1b[2J"), tail_item(2, "out", "a\nb", "failed")]
    assert main(["session", "tail", "ses_1"]) == 0
    out = capsys.readouterr().out
    assert "  שלום\\x1b[2J\n" in out
    assert "  a\n  b\n" in out
    assert "[failed]" in out


def test_following_shows_each_item_once_and_asks_only_for_newer_ones(
    host: FakeHost, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(
        [[tail_item(1, "in", "a"), tail_item(2, "in", "b")], [tail_item(2, "in", "b"), tail_item(3, "out", "c")]]
    )

    def more(args: Json) -> Json:
        return next(answers)

    waits = iter(range(2))

    def wait(seconds: float) -> None:
        if next(waits) == 1:
            raise KeyboardInterrupt

    host.answers["session.tail"] = more
    monkeypatch.setattr("jackfield.cli.session.time.sleep", wait)
    assert main(["session", "tail", "ses_1", "-f", "--json"]) == 130
    assert [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()] == ["a", "b", "c"]
    assert host.asked_for("session.tail")[1]["after"] == "2026-01-05T21:00:02.000Z"


def test_text_for_a_session_can_be_piped_in(host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    host.answers["session.send"] = {"id": "ses_1", "message": "in_1"}
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO("naïve\nsecond\xff\n".encode("latin-1")), encoding="utf-8"))
    assert main(["session", "send", "ses_1"]) == 0
    assert host.asked_for("session.send") == [{"id": "ses_1", "text": "na\ufffdve\nsecond\ufffd"}]
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(b"\xef\xbb\xbfmarked\n"), encoding="utf-8"))
    assert main(["session", "send", "ses_1"]) == 0
    assert host.asked_for("session.send")[-1]["text"] == "marked"


def test_down_waits_until_the_home_is_let_go(
    host: FakeHost, home: Home, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    """Its socket is gone some time before the process is."""
    host.answers["host.stop"] = {}
    (home.root / "host.json").write_text('{"pid": 7}')
    held = [True, True, False]
    monkeypatch.setattr("jackfield.host.ownership.is_owned", lambda home: held.pop(0))
    assert main(["down"]) == 0
    assert held == [] and "has stopped" in capsys.readouterr().out

    monkeypatch.setattr("jackfield.host.ownership.is_owned", lambda home: True)
    host.answers["host.stop"] = lambda args: (home.root / "host.json").write_text('{"pid": 8}')
    assert main(["down"]) == 0, "another one, which somebody started meanwhile, is not waited for"

    host.answers["host.stop"] = {}
    assert main(["down", "--wait", "0.2"]) == 1
    assert "still runs" in capsys.readouterr().err


def test_the_homes_lock_tells_whether_somebody_has_it(home: Home) -> None:
    assert not is_owned(home)
    with own(home):
        assert is_owned(home)
    assert not is_owned(home)


def test_a_channel_that_blocks_is_a_finding_with_its_fix(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    ended, codes = threading.Event(), list[int]()

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    def diagnose(args: Json) -> Json:
        assert ended.wait(30)
        raise JackfieldError("the process would be gone by now")

    monkeypatch.setattr("jackfield.cli.channel_doctor.LONGEST", 0.1)
    monkeypatch.setattr("jackfield.cli.watchdog.os._exit", end)
    host.answers["channel.diagnose"] = diagnose
    main(["channel", "doctor", "work", "--json"])
    told, _ = json.JSONDecoder().raw_decode(capsys.readouterr().out)
    assert codes == [1] and told["ok"] is False
    (finding,) = told["findings"]
    assert (finding["check"], finding["level"]) == ("channel:work", "error") and "author" in finding["fix"]


def test_a_groups_servers_are_listed_with_how_they_did_last(host: FakeHost, capsys: Out) -> None:
    last = {"state": "off", "detail": "there is no program 'x'", "at": NOW}
    host.answers["group.mcp.list"] = [
        {"name": "a", "command": "x", "last": last},
        {"name": "b", "url": "u", "last": None},
    ]
    assert main(["group", "mcp", "list", "andy"]) == 0
    first, second = capsys.readouterr().out.splitlines()[1:]
    assert "off" in first and "there is no program 'x'" in first and "off" not in second


def test_status_shows_what_is_wrong(host: FakeHost, capsys: Out) -> None:
    host.answers["status"] = {
        "running": True, "pid": 7, "version": "1", "home": "/h", "install": "i",
        "channels": [{"name": "work", "type": "telegram", "state": "auth_failed", "detail": NASTY}],
        "runners": {"ses_1": "working"}, "runner_cap": 4, "runners_waiting": 0, "runtimes": {"process": None},
        "ledger": {"messages": {"queued": 2}, "deliveries": {}},
        "problems": ["jackfield.toml:3: host.x: unknown key"],
        "plugins": [{"name": "p", "kind": "tools", "state": "broken", "reason": "no"}], "troubles": {"sweep": 2},
    }  # fmt: skip
    assert main(["status"]) == 0
    out = capsys.readouterr().out
    for word in ("auth_failed", "ses_1", "queued", "jackfield.toml:3", "broken", "sweep"):
        assert word in out
    assert "\x1b" not in out


def test_a_change_that_the_running_host_refuses_is_a_warning(host: FakeHost, home: Home, capsys: Out) -> None:
    def refuse(args: Json) -> Json:
        raise Conflict("not now")

    host.answers["host.reload"] = refuse
    assert main(["config", "set", "max_runners", "3"]) == 0
    assert "not now" in capsys.readouterr().err


def test_down_without_a_host_has_nothing_to_do(home: Home, capsys: Out) -> None:
    assert main(["down"]) == 0
    assert "no host runs" in capsys.readouterr().out
    assert main(["down", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"stopped": False, "running": False}
    assert main(["reload"]) == 1


def test_init_twice_says_what_is_there_and_changes_nothing(host: FakeHost, home: Home, capsys: Out) -> None:
    host.answers["group.list"] = [group_json()]
    before = home.jackfield_toml.read_bytes()
    assert main(["init", "--name", "Other"]) == 0
    assert "already" in capsys.readouterr().out
    assert home.jackfield_toml.read_bytes() == before
    assert list(home.groups.iterdir()) == []
    assert [op for op, _ in host.asked] == ["group.list"]


def test_an_init_that_was_cut_short_is_finished(host: FakeHost, home: Home, capsys: Out) -> None:
    host.answers["group.list"] = []
    host.answers["home.setup"] = lambda args: {
        "group": group_json(args["folder"]),
        "created": True,
        "owner": "terminal:x",
    }
    assert main(["init", "--name", "Zoë", "--folder", "zoe", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["group"]["folder"] == "zoe"
    (asked,) = host.asked_for("home.setup")
    assert asked.keys() == {"name", "folder", "user"}
    assert load_agent(home.groups / "zoe", strict=True).name == "Zoë"


def test_init_refuses_a_folder_that_holds_other_things_and_leaves_it_alone(tmp_path: Path, capsys: Out) -> None:
    place = tmp_path / "mine"
    place.mkdir(mode=0o755)
    (place / "thesis.txt").write_text("x", encoding="utf-8")
    assert main(["init", "--home", str(place)]) == 4
    assert "thesis.txt" in capsys.readouterr().err
    assert place.stat().st_mode & 0o777 == 0o755
    assert [entry.name for entry in place.iterdir()] == ["thesis.txt"]
    assert main(["init", "--home", str(place), "--provider", "mok"]) == 3
