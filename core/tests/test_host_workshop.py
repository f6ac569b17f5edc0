"""The workshop's parts: sources, records, checks, and the sandbox in which package managers run."""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from jackfield.api import GroupPlace, Isolation, Limits
from jackfield.clock import UnixMs
from jackfield.config.load import check_agent_text
from jackfield.errors import ConfigError, MalformedData, RolledBack, VerificationFailed
from jackfield.host.workshop import installing
from jackfield.host.workshop.indexes import npm_arguments, pip_sources, proxies
from jackfield.host.workshop.installing import Bench, bench_for, build
from jackfield.host.workshop.requests import checked_server, refuse_plain_secrets
from jackfield.host.workshop.scripts import named_files, verify_files
from jackfield.host.workshop.shelf import (
    Installed,
    Shelf,
    build_of,
    folders_seen,
    forget_builds,
    missing,
    read_installed,
    write_installed,
)
from jackfield.ids import AgentGroupId
from jackfield.models import AgentGroup
from jackfield.models.packages import Packages, requested
from jackfield.models.secret_references import NoSecret, resolved, secrets_named
from jackfield.process import ownership
from jackfield.process.runtime import ProcessRuntime
from jackfield.process.settings import ProcessSettings
from jackfield.testing.runtimes import BenchContext

# ---- from where packages come


def test_pip_uses_the_sources_that_its_own_configuration_names(tmp_path: Path) -> None:
    low, high = tmp_path / "low.conf", tmp_path / "high.conf"
    low.write_text("[global]\nindex-url = https://one.example/simple\ntrusted-host = one.example\n")
    high.write_text("[install]\nindex-url = https://two.example/simple\nfind-links =\n  /a\n  /b\n[broken\n")
    assert pip_sources({}, [low, high]) == [
        ("index-url", "https://one.example/simple"), ("trusted-host", "one.example"),
    ]  # fmt: skip
    high.write_text("[install]\nindex-url = https://two.example/simple\nfind-links =\n  /a\n  /b\n")
    environment = {"PIP_TRUSTED_HOST": "two.example", "PIP_TARGET": "/evil"}
    assert pip_sources(environment, [low, high, tmp_path / "none.conf"]) == [
        ("index-url", "https://two.example/simple"), ("trusted-host", "two.example"), ("find-links", "/a"),
        ("find-links", "/b"),
    ]  # fmt: skip


def test_npm_uses_the_registries_that_its_own_configuration_names_and_no_token(tmp_path: Path) -> None:
    file = tmp_path / "npmrc"
    file.write_text(
        'registry = "https://npm.example/"\n//npm.example/:_authToken=hunter2\n@mine:registry=https://mine.example\n'
        "prefix=/evil\nscript-shell=/evil\n"
    )
    found = npm_arguments({}, [file])
    assert found == ["--registry=https://npm.example/", "--@mine:registry=https://mine.example"]
    assert (
        npm_arguments({"npm_config_registry": "https://other.example"}, [file])[0] == "--registry=https://other.example"
    )


@pytest.mark.parametrize("source", ["pip", "npm", "proxy"])
def test_an_address_with_a_password_is_refused_and_not_repeated(source: str) -> None:
    address = "https://ann:hunter2@index.example/simple"
    with pytest.raises(ConfigError) as refused:
        match source:
            case "pip":
                pip_sources({"PIP_EXTRA_INDEX_URL": address}, [])
            case "npm":
                npm_arguments({"npm_config_registry": address}, [])
            case _:
                proxies({"HTTPS_PROXY": address})
    assert "hunter2" not in str(refused.value) + str(refused.value.fix)


# ---- what is there


def test_what_is_recorded_and_not_there_is_missing() -> None:
    """C178"""
    recorded = Packages(pip=("Six", "attrs==1.0"), npm=("a", "@b/c"), apt=("no-such-package-here",))
    there = Installed(
        {
            "pip": Shelf(build="1", base="x", packages=("six", "attrs==2.0")),
            "npm": Shelf(build="1", base="x", packages=("a", "@b/c")),
        }
    )
    gone = missing(recorded, there, "x")
    assert gone == Packages(pip=("attrs==1.0",), apt=("no-such-package-here",))
    assert missing(recorded, there, "y") == recorded == missing(recorded, Installed(), "x")
    assert str(gone) == "apt: no-such-package-here; pip: attrs==1.0"


def test_builds_are_named_all_at_once_and_old_ones_removed(tmp_path: Path) -> None:
    for number in ("1", "2", "3"):
        build_of(tmp_path, "pip", number).mkdir(parents=True)
    one, two = (Installed({"pip": Shelf(build=number, base="x", packages=("six",))}) for number in ("1", "2"))
    write_installed(tmp_path, one)
    write_installed(tmp_path, two)
    assert read_installed(tmp_path) == two
    assert folders_seen(tmp_path, "/group") == {"pip": "/group/packages/pip/2"}
    forget_builds(tmp_path, (one, two))
    assert sorted(path.name for path in (tmp_path / "packages" / "pip").iterdir()) == ["1", "2"]


@pytest.mark.parametrize(
    "record",
    [
        "", "[]", "nothing", '{"pip": 1}', '{"pip": {"build": "../../etc", "base": "x", "packages": []}}',
        '{"pip": {"build": "gone", "base": "x", "packages": []}}', '{"pip": {"build": "b", "packages": 5}}', "[" * 9999,
    ],
)  # fmt: skip
def test_a_record_that_is_none_counts_as_nothing_installed(record: str, tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "installed.json").write_text(record, encoding="utf-8")
    assert read_installed(tmp_path) == Installed()


def test_lists_of_packages_are_sets() -> None:
    first = requested(pip=["Foo_Bar", "b", "foo-bar==2"])
    assert first.pip == ("foo-bar==2", "b")
    assert first.with_more(requested(pip=["FOO.bar"], npm=["x"])) == Packages(pip=("FOO.bar", "b"), npm=("x",))
    assert first.without(requested(pip=["foo_bar"])).pip == ("b",)


# ---- what may be asked for


def test_a_servers_settings_are_taken_as_the_file_has_them() -> None:
    settings = {"command": "npx", "args": ["-y"], "env": {"A": "b"}, "timeout": 60.0, "enabled": True}
    assert checked_server("files", settings) == {"command": "npx", "args": ["-y"], "env": {"A": "b"}}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("", {"command": "x"}), ("a__b", {"command": "x"}), ("A", {"command": "x"}), ("-a", {"command": "x"}),
        ("a" * 33, {"command": "x"}), (None, {"command": "x"}), ("a\n", {"command": "x"}),
        ("a", {}), ("a", {"command": "x", "url": "https://e.example"}), ("a", {"url": "file:///etc/passwd"}),
        ("a", {"command": ["x"]}), ("a", {"command": "x", "args": "y"}), ("a", {"command": "x", "env": {"A B": "c"}}),
        ("a", {"command": "x", "env": {"A": 1}}), ("a", {"command": "x\0"}), ("a", {"command": "x", "more": 1}),
        ("a", {"url": "https://e.example", "headers": {"A": "b\r\nC: d"}}), ("a", {"command": "x", "timeout": 0}),
    ],
)  # fmt: skip
def test_settings_that_are_none_of_a_server_are_refused(name: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(MalformedData):
        checked_server(name, settings)


def test_secrets_are_named_and_not_said() -> None:
    refuse_plain_secrets({"env": {"API_KEY": "secret:KEY", "MODE": "x", "USE_TOKENS": "true"}})
    refuse_plain_secrets({"headers": {"Authorization": "Bearer secret:KEY"}})
    for settings in ({"env": {"API_KEY": "sk-1234567"}}, {"headers": {"authorization": "Bearer abcdefgh"}}):
        with pytest.raises(MalformedData, match="looks like a secret"):
            refuse_plain_secrets(settings)
    assert secrets_named(["secret:A", "Bearer secret:B", "secret: C", "x secret:D y", "secret:A"]) == ("A", "B")
    assert resolved("Bearer secret:B", {"B": "v"}) == "Bearer v"
    with pytest.raises(NoSecret, match="'B'"):
        resolved("secret:B", {})


def test_a_file_of_settings_may_have_an_unknown_key_in_a_server() -> None:
    found = check_agent_text(Path("/x"), '[mcp.files]\ncommand = "npx"\nargz = ["-y"]\n')
    assert found.settings is not None and "files" in found.settings.mcp
    (problem,) = found.problems
    assert "Did you mean 'args'?" in str(problem) and problem.line == 3


def test_a_server_is_made_of_the_files_that_it_names(tmp_path: Path) -> None:
    """C151"""
    workspace, copies, bench = tmp_path / "workspace", tmp_path / "copies", tmp_path / "bench"
    (workspace / "sub").mkdir(parents=True)
    copies.mkdir()
    for name in ("serve.py", "sub/more.py"):
        (workspace / name).write_text("print('A')")
    (copies / "serve.py").write_text("print('A')")
    (copies / "more.py").write_text("print('A')")
    settings = {"command": "python3", "args": ["serve.py", "/seen/sub/more.py", "../x", "-y", "/etc/passwd", "sub"]}
    files = named_files(settings, "/seen", workspace)
    assert files == [workspace / "serve.py", workspace / "sub" / "more.py"]
    assert named_files({"command": "./more.py", "cwd": "sub"}, "/seen", workspace) == [workspace / "sub" / "more.py"]
    approved = [copies / "serve.py", copies / "more.py"]
    verify_files(files, approved, workspace, bench, 1000)
    (workspace / "serve.py").write_text("print('B')")
    with pytest.raises(VerificationFailed, match="was changed since"):
        verify_files(files, approved, workspace, bench, 1000)
    (workspace / "serve.py").unlink()
    (workspace / "serve.py").symlink_to("/etc/passwd")
    with pytest.raises(VerificationFailed):
        verify_files(files, approved, workspace, bench, 1000)
    assert not bench.exists()


# ---- in the sandbox


@pytest.fixture(params=["auto", "none"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    runtime = ProcessRuntime(BenchContext(tmp_path), ProcessSettings(isolation=request.param))
    health = await runtime.check()
    if not health.ok:
        pytest.skip(f"no {request.param} here: {health.detail}")
    group = AgentGroup(id=AgentGroupId("ag_0123456789abcdefghjk"), name="Andy", folder="andy", created_at=UnixMs(0))
    async with bench_for(group, tmp_path / "workshop", runtime, Limits(), "install-one") as made:
        yield made
    assert list((tmp_path / "workshop").iterdir()) == []


async def test_a_package_manager_gets_nothing_of_the_hosts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JACKFIELD_SECRET_BOT", "hunter2")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter3")
    code = "import os; print(os.getuid(), os.getcwd(), sorted(os.environ))"
    done = await bench.run(["python3", "-c", code], {}, 30.0)
    uid, cwd, names = done.stdout.decode().split(" ", 2)
    assert "SECRET" not in names
    assert cwd == str(bench.place.group.workspace)
    isolated = (await bench.runtime.check()).isolation is not Isolation.NONE
    assert not isolated or int(uid) != 0, "as the group, not as the host"


@pytest.mark.parametrize("tool", ["uv", pytest.param("pip", marks=pytest.mark.slow)])
async def test_wheels_are_installed_by_either_tool(tool: str, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = bench.place.group.workspace / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "tiny-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("tiny.py", "def main(): print('tiny')\n")
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/entry_points.txt", "[console_scripts]\ntiny = tiny:main\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    for path in (wheels, *wheels.iterdir()):
        path.chmod(0o755)
    monkeypatch.setattr(installing, "pip_sources", lambda _: [("find-links", str(wheels))])
    commands = installing._commands

    def only(*given: Any) -> list[list[str]]:
        (argv,) = [argv for argv in commands(*given) if tool in argv[:3] and (argv[0] == "uv") == (tool == "uv")]
        return [[*argv[: argv.index("install") + 1], "--no-index", *argv[argv.index("install") + 1 :]]]

    monkeypatch.setattr(installing, "_commands", only)
    built = await build(bench, "pip", ["tiny==1.0"], 120.0)
    assert (built / "tiny.py").exists() and (built / "bin" / "tiny").exists()
    used = await bench.run([str(built / "bin" / "tiny")], {"PYTHONPATH": str(built)}, 30.0)
    assert (used.exit_code, used.stdout) == (0, b"tiny\n"), used.stderr


async def test_an_installation_ends_in_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installing, "_commands", lambda *_: [["sleep", "60"]])
    with pytest.raises(RolledBack, match=r"did not end within 0\.3 s"):
        await build(bench, "npm", ["x"], 0.3)


async def test_what_is_no_folder_is_not_moved(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    link = ["ln", "-s", "/etc", f"{bench.runner.paths.workspace}/npm"]
    monkeypatch.setattr(installing, "_commands", lambda *_: [link])
    with pytest.raises(RolledBack, match="something else than a folder"):
        await build(bench, "npm", ["x"], 30.0)
    monkeypatch.setattr(installing, "_commands", lambda *_: [["true"]])
    (bench.place.group.workspace / "npm").unlink()
    with pytest.raises(RolledBack, match="left nothing behind"):
        await build(bench, "npm", ["x"], 30.0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_is_installed_can_be_read_by_the_group_and_written_by_nobody_else(tmp_path: Path) -> None:
    uid = 273_001
    build = tmp_path / "packages" / "pip" / "bld_1"
    (build / "sub").mkdir(parents=True)
    program = build / "sub" / "program"
    program.write_text("x")
    program.chmod(0o755)
    (tmp_path / "packages" / "installed.json").write_text("{}")
    for path in (build, build / "sub", program):
        os.chown(path, uid, uid)  # as the sandbox left it
    (build / "link").symlink_to("/etc/passwd")
    place = GroupPlace(agent_group_id=AgentGroupId("ag_0123456789abcdefghjk"), folder=tmp_path)
    before = Path("/etc/passwd").stat()
    ownership.give_group(place, uid)
    for path, mode in (
        (build, 0o2750),
        (build / "sub", 0o2750),
        (program, 0o750),
        (build.parents[1] / "installed.json", 0o640),
    ):
        found = path.stat()
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, uid, mode), path
    assert Path("/etc/passwd").stat() == before
    late = build / "sub" / "late"
    late.write_text("x")
    late.chmod(0o600)
    ownership.give_group(place, uid)
    assert stat.S_IMODE(late.stat().st_mode) == 0o600, "a build that was given is not looked through again"
