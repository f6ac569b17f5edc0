"""The `jackfield` program itself: how it starts, and every way in which it ends."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import jackfield
import pytest
from jackfield.cli import app, streams
from jackfield.cli.main import main
from jackfield.cli.state import State
from jackfield.errors import EXIT_CODES, ConfigError, NotAllowed, NotFound
from jackfield.plugins import ManifestCommand

BOUND = 60


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "home"
    monkeypatch.setenv("JACKFIELD_HOME", str(root))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return root


@pytest.fixture
def extra(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ManifestCommand]]:
    """Commands that plugins bring."""
    commands: list[ManifestCommand] = []
    monkeypatch.setattr(app, "_plugin_commands", lambda context: commands)
    yield commands


def program(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "jackfield.cli", *words],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=BOUND,
        **more,
    )


def test_the_version_is_printed_without_importing_anything_of_weight() -> None:
    code = "import sys; from jackfield.cli.main import main; main(['--version']); print(len(sys.modules), *sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=True)
    version, modules = out.stdout.splitlines()
    assert version == f"jackfield {jackfield.__version__}"
    assert not {"click", "pydantic", "asyncio", "importlib_metadata"} & set(modules.split())


def test_help_names_every_command_and_imports_none(capsys: pytest.CaptureFixture[str]) -> None:
    code = (
        "import sys; from jackfield.cli.main import main; main(['--help']);"
        "print([name for name in sys.modules if name.startswith('jackfield.')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=True)
    assert all(f"\n  {name} " in out.stdout for name in app.ENTRIES)
    assert "jackfield.cli.group" not in out.stdout
    assert "jackfield.host" not in out.stdout


@pytest.mark.parametrize("name", sorted(app.ENTRIES))
def test_every_command_can_be_imported_and_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert "Usage: jackfield" in capsys.readouterr().out
    assert main(["help", name]) == 0
    rows = [row for row in capsys.readouterr().out.splitlines() if row.startswith("  ")]
    assert not [row for row in rows if row.endswith("...")], "what a list says of a command is not cut off"
    assert main(["help", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["help"].startswith("Usage: jackfield")


@pytest.mark.parametrize("alias", [alias for entry in app.ENTRIES.values() for alias in entry.aliases])
def test_plural_spellings_work_and_are_hidden(alias: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([alias, "--help"]) == 0
    capsys.readouterr()
    main(["--help"])
    assert f"\n  {alias} " not in capsys.readouterr().out


def test_a_slip_in_a_command_is_answered_with_the_likely_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gruop"]) == 2
    said = capsys.readouterr().err
    assert "error: no such command: 'gruop'; did you mean 'group'?" in said
    assert "fix: " in said
    assert main(["group", "lst"]) == 2
    assert "did you mean 'list'?" in capsys.readouterr().err
    assert main(["group"]) == 2
    assert capsys.readouterr().err.startswith("Usage: jackfield group")
    assert main(["help", "sesion"]) == 3
    assert "did you mean 'session'?" in capsys.readouterr().err
    assert main(["completion"]) == 2
    assert "Choose from: bash, zsh, fish\n" in capsys.readouterr().err


def test_the_table_of_exit_codes_is_that_of_the_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "exit-codes", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert {code: table[str(code)] for code in EXIT_CODES} == EXIT_CODES
    assert main(["help", "exit-codes"]) == 0
    assert "not allowed" in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell: str) -> None:
    done = program("completion", shell)
    assert done.returncode == 0, done.stderr
    assert "_JACKFIELD_COMPLETE" in done.stdout


def test_completion_completes_commands_sub_commands_and_options() -> None:
    def completed(words: str, position: int) -> str:
        environment = {"_JACKFIELD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(position)}
        return program(env={**os.environ, **environment}).stdout

    assert "plain,session" in completed("jackfield ses", 1)
    assert "plain,tail" in completed("jackfield session ta", 2)
    assert "plain,--follow" in completed("jackfield session tail --fo", 3)


@pytest.mark.parametrize("error", [NotFound("x", fix="y"), ConfigError("x"), NotAllowed("x", fix="y")])
def test_known_errors_end_with_message_fix_and_their_exit_code(
    error: Any, capsys: pytest.CaptureFixture[str], extra: list[ManifestCommand], monkeypatch: pytest.MonkeyPatch
) -> None:
    _provide(monkeypatch, extra, error)
    assert main(["try"]) == error.exit_code
    said = capsys.readouterr()
    assert "error: x" in said.err
    assert ("fix: y" in said.err) == (error.fix == "y")
    assert main(["try", "--json"]) == error.exit_code
    assert json.loads(capsys.readouterr().out) == {
        "error": {"code": type(error).__name__, "message": "x", "fix": error.fix}
    }


def test_a_plugins_command_that_fails_is_named_with_its_plugin_and_without_a_traceback(
    capsys: pytest.CaptureFixture[str], extra: list[ManifestCommand], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C183."""
    _provide(monkeypatch, extra, ZeroDivisionError("oh"))
    assert main(["try"]) == 1
    said = capsys.readouterr().err
    assert "plugin some-plugin" in said
    assert "ZeroDivisionError: oh" in said
    assert "Traceback" not in said
    assert main(["-v", "try"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "body", ["raise SystemExit(7)", "import nowhere_to_be_found", "x = (", "raise ValueError('v')", "command = 5", ""]
)
def test_a_plugins_command_that_can_not_be_imported_breaks_only_itself(
    body: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    extra: list[ManifestCommand],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """C183."""
    module = f"broken_{abs(hash(body))}"
    (tmp_path / f"{module}.py").write_text(body, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    extra.append(ManifestCommand(name="bad", help="Does it.", target=f"{module}:command", distribution="bad-plugin"))
    assert main(["bad"]) == 1
    assert "plugin bad-plugin: import failed" in capsys.readouterr().err
    assert main(["--help"]) == 0
    assert "bad " in capsys.readouterr().out
    assert main(["help", "exit-codes"]) == 0


def test_a_plugins_command_is_not_imported_before_it_runs(extra: list[ManifestCommand]) -> None:
    extra.append(ManifestCommand(name="bad", help="x", target="module_that_is_not_there:command", distribution="p"))
    assert main(["--help"]) == 0
    assert main(["help", "exit-codes"]) == 0


def test_a_plugin_can_not_take_a_command_of_ours(
    extra: list[ManifestCommand], capsys: pytest.CaptureFixture[str]
) -> None:
    extra.append(ManifestCommand(name="group", help="mine now", target="nowhere:x", distribution="p"))
    assert main(["group", "--help"]) == 0
    assert main(["--help"]) == 0
    assert "mine now" not in capsys.readouterr().out


def test_chat_without_the_terminal_channel_says_how_to_get_it(
    extra: list[ManifestCommand], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chat", "andy"]) == 3
    assert "install jackfield-channel-terminal" in capsys.readouterr().err


def test_an_unforeseen_error_is_one_line_and_written_down(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "logs").mkdir(parents=True)
    monkeypatch.setattr("jackfield.cli.helping._exit_codes", _fail)
    assert main(["help", "exit-codes"]) == 1
    said = capsys.readouterr().err
    assert "Traceback" not in said
    (written,) = (home / "logs").glob("crash-*.log")
    assert str(written) in said
    assert "RuntimeError: unforeseen" in written.read_text(encoding="utf-8")
    assert written.stat().st_mode & 0o777 == 0o600
    assert main(["-v", "help", "exit-codes"]) == 1
    assert "Traceback" in capsys.readouterr().err


def _fail() -> None:
    raise RuntimeError("unforeseen")


def _provide(monkeypatch: pytest.MonkeyPatch, extra: list[ManifestCommand], error: Exception) -> None:
    @click.command()
    @click.option("--json", "as_json", is_flag=True)
    def command(as_json: bool) -> None:
        raise error

    module = type(sys)("try_plugin")
    module.command = command  # type: ignore[attr-defined]  # a module made by hand
    monkeypatch.setitem(sys.modules, "try_plugin", module)
    extra.append(ManifestCommand(name="try", help="Try.", target="try_plugin:command", distribution="some-plugin"))


def test_a_reader_that_goes_away_is_no_error() -> None:
    done = subprocess.run(
        f"'{sys.executable}' -m jackfield.cli --help | true; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=BOUND,
    )
    assert done.stderr == ""
    assert done.stdout.strip() in ("141", "0")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
@pytest.mark.parametrize(
    "words",
    [
        ["--version"], ["--help"], ["plugin", "list"], ["plugin", "list", "--json"], ["config", "show"],
        ["status", "--json"], ["nonsense", "--json"],
    ],
)  # fmt: skip
def test_output_that_finds_no_room_is_told_in_one_line(home: Path, words: list[str]) -> None:
    home.mkdir()
    (home / "jackfield.toml").write_text("[host]\nmax_runners = 9\n", encoding="utf-8")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "jackfield.cli", *words],
            stdout=full, stderr=subprocess.PIPE, text=True, encoding="utf-8", timeout=BOUND,
        )  # fmt: skip
    assert done.returncode == 1
    first, fix = done.stderr.splitlines()
    assert first == f"error: the output can't be written: {os.strerror(errno.ENOSPC)}"
    assert fix.startswith("fix: ")


def test_a_full_disk_elsewhere_is_not_taken_for_the_output(
    capsys: pytest.CaptureFixture[str], extra: list[ManifestCommand], monkeypatch: pytest.MonkeyPatch
) -> None:
    _provide(monkeypatch, extra, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert main(["try"]) == 1
    said = capsys.readouterr().err
    assert "some-plugin" in said
    assert "output" not in said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EROFS, "Read-only file system", "/h/host.lock"), "/h/host.lock: Read-only file system"),
        (PermissionError(errno.EACCES, "Permission denied", "/h/x"), "/h/x: Permission denied"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "/h/" + "n" * 300), "File name too long"),
        (OSError(errno.EMFILE, "Too many open files", "/h/y"), "Too many open files"),
    ],
)
@pytest.mark.parametrize("of_a_plugin", [False, True])
def test_a_failure_of_the_machine_is_told_with_its_fix_and_as_nobodys_mistake(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    home: Path,
    error: OSError,
    said: str,
    of_a_plugin: bool,
) -> None:
    def fail(arguments: object, state: State) -> int:
        state.plugin = ("jackfield-tools-some", "some") if of_a_plugin else None
        raise error

    monkeypatch.setattr(app, "_invoke", fail)
    assert main(["group", "list", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)["error"]
    assert said in told["message"] and told["fix"]
    assert "should not have happened" not in told["message"] and "plugin" not in told["message"]


def test_a_folder_that_is_gone_under_a_command_is_told(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = (
        "import os, sys; os.chdir(sys.argv[1]); os.rmdir(sys.argv[1]);"
        "from jackfield.cli.main import main; sys.exit(main(['status', '--home', 'here', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(gone)], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 1
    assert "the folder that this command was started in is gone" in json.loads(done.stdout)["error"]["message"]


def test_ctrl_c_ends_a_command_quietly(home: Path) -> None:
    code = textwrap.dedent(
        """
        import os, signal, sys
        from jackfield.cli import helping
        from jackfield.cli.main import main
        def wait():
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()
        helping._exit_codes = wait
        sys.exit(main(["help", "exit-codes"]))
        """
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", timeout=BOUND)
    assert (done.returncode, done.stderr.strip()) == (130, "stopped")


def test_options_may_stand_before_and_after_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "jackfield.toml").write_text("[host]\nmax_runners = 9\n", encoding="utf-8")
    for words in (["--home", str(other), "config", "show", "--json"], ["config", "show", f"--home={other}", "--json"]):
        assert main(words) == 0
        assert json.loads(capsys.readouterr().out)["host"]["max_runners"] == 9


def test_a_command_without_a_home_says_how_to_make_one(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["status"], ["group", "list"], ["config", "check"], ["up"], ["down"], ["reload"]):
        assert main(words) == 3
        said = capsys.readouterr().err
        assert str(home) in said
        assert "init" in said
    assert not home.exists()


def test_the_program_works_in_a_locale_that_is_not_utf_8(home: Path) -> None:
    """C247."""
    home.mkdir()
    (home / "jackfield.toml").write_text('[channels.x]\ntitle = "naïve – 你好"\n', encoding="utf-8")
    environment = {
        **os.environ,
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONWARNDEFAULTENCODING": "1",
    }
    done = program("config", "show", env=environment)
    assert done.returncode == 0, done.stderr
    assert "EncodingWarning" not in done.stderr


@pytest.mark.parametrize("printed_in", [None, "latin-1"])
def test_a_home_with_any_letters_works_in_a_locale_that_is_not_utf_8(tmp_path: Path, printed_in: str | None) -> None:
    """C247: file names are UTF-8 for runners, so they are for the program."""
    home = tmp_path / "hömé 你好"
    home.mkdir()
    (home / "jackfield.toml").touch()
    environment = {
        **os.environ,
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "JACKFIELD_HOME": str(home),
    }
    if printed_in is not None:
        environment["PYTHONIOENCODING"] = printed_in
    done = program("status", "--json", env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["home"] == str(home)
    assert (home / "state.db").exists()


def test_management_works_with_a_plugin_that_kills_the_interpreter(tmp_path: Path, home: Path) -> None:
    """C183."""
    site = tmp_path / "site"
    info = site / "jackfield_deadly-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: jackfield-deadly\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[jackfield.channels]\ndeadly = jackfield_deadly.plugin\n", encoding="utf-8")
    package = site / "jackfield_deadly"
    package.mkdir()
    (package / "__init__.py").write_text("import os\nos._exit(1)\n", encoding="utf-8")
    (package / "plugin.py").write_text("", encoding="utf-8")
    home.mkdir()
    (home / "jackfield.toml").write_text("[channels.deadly]\n[channels.fine]\nenabled = false\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(site)}
    for words, code in [
        (["--version"], 0),
        (["--help"], 0),
        (["plugin", "list"], 0),
        (["config", "show"], 0),
        (["config", "check", "--json"], 2),
        (["channel", "remove", "deadly"], 0),
        (["config", "check"], 0),
    ]:
        done = program(*words, env=environment)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr


def test_exit_codes_reach_the_shell(home: Path) -> None:
    assert program("nonsense").returncode == 2
    assert program("group", "list").returncode == 3
    assert program("help", "exit-codes").returncode == 0


def test_signals_are_the_shells_own_numbers() -> None:
    assert 128 + signal.SIGINT == 130
    assert streams.BROKEN_PIPE == 128 + signal.SIGPIPE


def test_standard_streams_that_are_closed_are_held_by_nothing(home: Path) -> None:
    """Otherwise their numbers go to the next files that are opened: locks, sockets, databases."""
    code = (
        "import os, sys; from jackfield.cli.main import main; code = main(['status']);"
        "nothing = os.stat(os.devnull);"
        "held = all(os.path.samestat(os.fstat(number), nothing) for number in (0, 1, 2));"
        "sys.exit(code if held and sys.stdin.read() == '' else 99)"
    )
    done = subprocess.run(["/bin/sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, code], timeout=BOUND)
    assert done.returncode == 3  # there is no home
