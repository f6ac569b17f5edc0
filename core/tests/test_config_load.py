"""Reading `jackfield.toml` and `agent.toml`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jackfield.config import (
    AgentSettings,
    Home,
    HostSettings,
    IngressSettings,
    Severity,
    load_agent,
    read_agent,
    remember_good,
    template,
)
from jackfield.config.load import Configuration, load
from jackfield.errors import ConfigError, NotInitialised
from pydantic import BaseModel, ConfigDict, Field


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create()
    return home


def write(home: Home, text: str | bytes) -> Home:
    home.jackfield_toml.write_bytes(text if isinstance(text, bytes) else text.encode())
    return home


def said(configuration: Configuration) -> list[str]:
    return [str(problem).removeprefix(str(configuration.home.root) + "/") for problem in configuration.problems]


def test_the_files_that_init_writes_are_without_fault_and_say_the_defaults(home: Home) -> None:
    found = load(write(home, template.jackfield_toml()), strict=True)
    assert found.problems == ()
    assert found.host == HostSettings()
    assert list(found.channels) == ["terminal"]
    assert found.channels["terminal"].type == "terminal"


def test_the_commented_values_of_the_template_are_the_defaults_too(home: Home) -> None:
    lines = template.jackfield_toml().split("[channels.terminal]")[0].splitlines()
    text = "\n".join(line.removeprefix("# ") if " = " in line else line for line in lines)
    found = load(write(home, text), strict=True)
    assert found.host == HostSettings()
    assert found.ingress == IngressSettings()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("port = 70000", "port"),
        ('path_prefix = "jackfield/"', "path_prefix"),
        ('path_prefix = "/a/.."', "path_prefix"),
        ('public_url = "ftp://x"', "public_url"),
        ('public_url = "https://user:word@x/?a=b"', "public_url"),
        ("prot = 1", "Did you mean"),
    ],
)
def test_a_wrong_value_of_the_ingress_is_told_and_its_default_stands(home: Home, line: str, says: str) -> None:
    """It never opens more than the default does (C198)."""
    found = load(write(home, f"[ingress]\n{line}\n"))
    assert says in str(found.problems[0])
    assert found.ingress == IngressSettings()


def test_the_ingress_as_it_may_be_written(home: Home) -> None:
    text = (
        '[ingress]\nhost = "::1"\nport = 0\npath_prefix = "/jf/a.b"\npublic_url = "https://x/jf"\nmax_bytes = "1 MiB"\n'
    )
    found = load(write(home, text), strict=True).ingress
    assert (found.host, found.port, found.path_prefix, found.max_bytes) == ("::1", 0, "/jf/a.b", 1_048_576)


@pytest.mark.parametrize("name", ["Andy", 'An"dy\\', "nul\x00 del\x7f", "Zoë 你好", "line\nbreak", "\u202eEve"])
def test_any_name_survives_the_agent_template(home: Home, name: str) -> None:
    folder = home.groups / "x"
    folder.mkdir()
    (folder / "agent.toml").write_text(template.agent_toml(name=name), encoding="utf-8")
    assert load_agent(folder, strict=True) == AgentSettings(name=name)


def test_an_unknown_key_at_start_is_a_named_warning_and_the_host_starts(home: Home) -> None:
    """C198."""
    text = "pairingNeeded = true\n[chanels.x]\na = 1\n[host]\nmax_runers = 3\nmaxRunners = 4\nidle_exit = 30\n"
    found = load(write(home, text))
    assert said(found) == [
        "jackfield.toml:1: pairingNeeded: unknown key; allowed: the tables "
        "[host], [ingress], [approvals], [agents], [channels], [extensions], [runtimes]",
        "jackfield.toml:2: chanels: unknown table. Did you mean 'channels'?",
        "jackfield.toml:5: host.max_runers: unknown key. Did you mean 'max_runners'?",
        "jackfield.toml:6: host.maxRunners: unknown key. Did you mean 'max_runners'?",
    ]
    assert found.errors == ()
    assert found.host == HostSettings(idle_exit=30)


def test_a_setting_of_the_host_outside_its_table_is_pointed_to_its_place(home: Home) -> None:
    assert "Did you mean 'host.max_runners'?" in said(load(write(home, "max_runners = 3\n")))[0]


def test_a_wrong_host_value_falls_back_to_its_default_and_the_others_stand(home: Home) -> None:
    """C198."""
    text = (
        '[host]\ntimezone = "Europe/Berln"\non_stop = "stopp"\nmax_runners = "many"\nidle_exit = inf\n'
        'text_limit = "5 TB"\nsticky_hours = 12\nquestion_timeout = -1\nstuck_claim = true\n'
    )
    found = load(write(home, text))
    assert found.host == HostSettings(sticky_hours=12)
    assert said(found) == [
        'jackfield.toml:2: host.timezone: "Europe/Berln" can\'t be used: it is no time zone; allowed: IANA names like '
        "'Europe/Berlin' or 'UTC'. Did you mean 'Europe/Berlin'?",
        "jackfield.toml:3: host.on_stop: \"stopp\" is none of the possible values; allowed: 'stop', 'leave'. "
        "Did you mean 'stop'?",
        'jackfield.toml:4: host.max_runners: "many" can\'t be used; allowed: a whole number',
        "jackfield.toml:5: host.idle_exit: Infinity can't be used; allowed: a finite number",
        'jackfield.toml:6: host.text_limit: "5 TB" can\'t be used: it is no size; allowed: a number of bytes, or a '
        "text like '512 MiB'",
        "jackfield.toml:8: host.question_timeout: -1 can't be used; allowed: 5 or more",
        "jackfield.toml:9: host.stuck_claim: true can't be used; allowed: a number",
    ]
    assert all(problem.severity is Severity.ERROR for problem in found.problems)


def test_a_wrong_channel_table_disables_that_channel_only(home: Home) -> None:
    """C198."""
    text = (
        '[channels]\nfive = 5\n[channels.one]\ntype = 7\n[channels.two]\nenabled = "no"\n[channels."a b"]\n'
        '[channels.ok]\ntype = "terminal"\ncolour = true\n'
    )
    found = load(write(home, text))
    assert [name for name, section in found.channels.items() if section.enabled] == ["ok"]
    assert found.channels["ok"].settings == {"colour": True}
    assert [(problem.line, problem.key) for problem in found.errors] == [
        (2, "channels.five"),
        (4, "channels.one.type"),
        (6, "channels.two.enabled"),
        (7, "channels.a b"),
    ]


def test_a_channel_says_which_bots_it_hears_and_a_wrong_word_means_none(home: Home) -> None:
    """C228."""
    text = '[channels.a]\nbots = "all"\n[channels.b]\nbots = "some"\n[channels.c]\n'
    found = load(write(home, text))
    assert [(section.bots, section.enabled) for section in found.channels.values()] == [
        ("all", True), ("none", True), ("none", True),
    ]  # fmt: skip
    assert [(problem.line, problem.key) for problem in found.errors] == [(4, "channels.b.bots")]
    assert found.channels["a"].settings == {}


@pytest.mark.parametrize("text", ["", "# only\n\t# comments\n", "\ufeff", "\ufeff[host]\r\n\tmax_runners = 3\r\n\r\n"])
def test_empty_files_comments_byte_order_marks_tabs_and_windows_line_ends_are_fine(home: Home, text: str) -> None:
    """C198, C247."""
    assert load(write(home, text), strict=True).problems == ()


def test_lines_are_right_with_a_byte_order_mark_and_windows_line_ends(home: Home) -> None:
    """C198."""
    assert load(write(home, "\ufeff# x\r\n[host]\r\nx = 1\r\n")).problems[0].line == 3


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (b"a = 1\na = 2\n", 2, '"a" is there twice'),
        (b"[a]\n[b]\n[a]\n", 3, "the table is there twice"),
        (b"[host]\n\non_stop = stop\n", 3, "a text needs quotes"),
        (b"[host]\nx = '\xff'\n", 2, "byte 0xff is not UTF-8"),
        ("[host]\n".encode("utf-16"), 1, "UTF-16"),
        (b"x = \x00\n", 1, "not valid TOML"),
    ],
)
def test_what_is_no_toml_is_refused_with_file_and_line_unless_there_is_a_good_copy(
    home: Home, text: bytes, line: int, reason: str
) -> None:
    """C198, C181."""
    good = load(write(home, "[host]\nmax_runners = 5\n"))
    write(home, text)
    with pytest.raises(ConfigError) as refused:
        load(home)
    assert str(refused.value).startswith(f"{home.jackfield_toml}:{line}: ")
    assert reason in str(refused.value)
    assert refused.value.fix

    write(home, "[host]\nmax_runners = 5\n")
    remember_good(good)
    write(home, text)
    found = load(home)
    assert found.host.max_runners == 5
    assert found.source == home.last_good
    assert [problem.line for problem in found.errors] == [line]
    assert "last good copy" in str(found.errors[0])
    assert home.jackfield_toml.read_bytes() == text
    with pytest.raises(ConfigError):
        load(home, fall_back=False)
    with pytest.raises(ConfigError):
        load(home, strict=True)


@pytest.mark.parametrize("text", ["x = " + "9" * 5000, "x = " + "[" * 5000 + "]" * 5000, "[" + "a." * 5000 + "a]"])
def test_a_text_that_exhausts_the_parser_is_refused_like_any_other_fault(home: Home, text: str) -> None:
    try:
        load(write(home, text))
    except ConfigError as error:
        assert str(home.jackfield_toml) in str(error)


def test_a_file_with_errors_is_never_remembered_as_good(home: Home) -> None:
    remember_good(load(write(home, "[host]\nmax_runners = 5\n")))
    kept = home.last_good.read_bytes()
    remember_good(load(write(home, '[host]\nmax_runners = "x"\n')))
    assert home.last_good.read_bytes() == kept
    assert home.last_good.stat().st_mode & 0o777 == 0o600


def test_a_home_without_a_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(NotInitialised) as refused:
        load(Home(tmp_path))
    assert "jackfield" in (refused.value.fix or "")


def test_a_pipe_or_a_folder_in_the_place_of_the_file_is_refused_and_not_waited_for(home: Home) -> None:
    folder = home.groups / "x"
    folder.mkdir()
    os.mkfifo(folder / "agent.toml")
    # A pipe is no regular file, so it counts as no agent.toml at all.
    assert load_agent(folder) == AgentSettings(name="x")
    (folder / "agent.toml").unlink()
    (folder / "agent.toml").symlink_to("/etc/hostname")
    assert read_agent(folder).settings is None


FIELDS = ["host", "channels", "extensions", "runtimes", "host.max_runners", "host.timezone", "channels.a.type"]
VALUES = ["", '""', "0", "-1", "true", "[]", "{}", '"x"', "1.5", "nan", "2024-01-01", '["a"]', "{ a = 1 }", "null", "="]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    changes=st.lists(st.tuples(st.sampled_from(FIELDS), st.sampled_from(VALUES)), max_size=4, unique_by=lambda x: x[0]),
    extra=st.sampled_from(["", "extra = 1\n", "[host]\nextra = 1\n", "[channels.b]\nextra = 1\n", "[[channels]]\n"]),
)
def test_what_the_check_accepts_is_what_a_start_accepts(home: Home, changes: list[tuple[str, str]], extra: str) -> None:
    """C200."""
    write(home, "".join(f"{key} = {value}\n" for key, value in changes) + extra)
    try:
        checked = load(home, fall_back=False)
    except ConfigError:
        # The check refuses the whole file: so does a start, forgiving or strict.
        for strict in (False, True):
            with pytest.raises(ConfigError):
                load(home, strict=strict)
        return
    started = load(home)
    assert started == checked
    if checked.problems:
        with pytest.raises(ConfigError) as refused:
            load(home, strict=True)
        # All problems are listed in one go.
        assert all(str(problem) in str(refused.value) for problem in checked.problems)
    else:
        assert load(home, strict=True) == checked
    # No error means that nothing has been put out of use.
    whole = all(section.enabled for section in started.channels.values())
    assert checked.errors or whole


class _Deep(BaseModel):
    port: int = 1
    way: str | int = "x"


class _ChannelModel(BaseModel):
    model_config = ConfigDict(strict=True)
    token: str = Field(description="The bot's token.")
    port: int = 80
    deep: _Deep = _Deep()
    many: list[_Deep] = []


def test_a_plugins_settings_are_checked_by_its_model_with_file_line_and_guess(home: Home) -> None:
    """C198."""
    text = (
        '[channels.work]\ntype = "telegram"\ntokn = "abc"\nport = "80"\n[channels.work.deep]\nportt = 1\nport = "x"\n'
    )
    found = load(write(home, text))
    checked = found.settings_of("channels.work", found.channels["work"].settings, _ChannelModel)
    assert checked.settings is None
    assert sorted((problem.line, problem.key, problem.suggestion) for problem in checked.problems) == [
        (1, "channels.work.token", None),
        (3, "channels.work.tokn", "token"),
        (4, "channels.work.port", None),
        (6, "channels.work.deep.portt", "port"),
        (7, "channels.work.deep.port", None),
    ]
    assert "The bot's token." in " ".join(map(str, checked.problems))


def test_a_value_that_may_be_a_secret_is_not_shown(home: Home) -> None:
    found = load(write(home, "[channels.work]\ntoken = 12345678\n"))
    checked = found.settings_of("channels.work", found.channels["work"].settings, _ChannelModel)
    assert "12345678" not in " ".join(map(str, checked.problems))


@given(
    st.recursive(
        st.one_of(st.none(), st.integers(), st.text(max_size=5), st.booleans(), st.floats()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(["token", "port", "deep", "many", "way", "x"]), inner, max_size=4),
        ),
    ).filter(lambda value: isinstance(value, dict))
)
def test_any_table_has_settings_or_an_error(table: dict[str, Any]) -> None:
    checked = Configuration(Home(Path("/nowhere"))).settings_of("channels.x", table, _ChannelModel)
    errors = [problem for problem in checked.problems if problem.severity is Severity.ERROR]
    assert (checked.settings is None) == bool(errors)


def test_a_group_with_a_wrong_value_is_out_of_use_and_an_unknown_key_is_not(home: Home) -> None:
    """C198."""
    folder = home.groups / "andy"
    folder.mkdir()
    (folder / "agent.toml").write_text('name = "A"\ntoolz = []\n[limits]\nmemory = "512 MiB"\n', encoding="utf-8")
    assert load_agent(folder).limits.memory == 512 * 1024**2
    with pytest.raises(ConfigError, match="Did you mean 'tools'"):
        load_agent(folder, strict=True)
    (folder / "agent.toml").write_text('allow_unisolated = "yes"\ntools = ["a b"]\nruntime = 5\n', encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_agent(folder)
    assert all(
        f"agent.toml:{line}: {key}" in str(refused.value) for line, key in [(1, "allow_"), (2, "tools"), (3, "runtime")]
    )
    assert read_agent(folder).settings is None


def test_a_group_without_a_file_has_the_defaults_and_its_folders_name(home: Home) -> None:
    folder = home.groups / "andy"
    folder.mkdir()
    assert load_agent(folder, strict=True) == AgentSettings(name="andy")


def test_a_groups_limits_reach_runner_and_runtime() -> None:
    agent = AgentSettings.model_validate({"limits": {"turn_seconds": 5, "memory": "1 GiB", "processes": 20}})
    host = HostSettings(idle_exit=77)
    assert (agent.runner_limits(host).turn_seconds, agent.runner_limits(host).idle_exit) == (5.0, 77.0)
    assert (agent.runtime_limits().memory, agent.runtime_limits().processes) == (1024**3, 20)
    assert AgentSettings.model_validate({"limits": {"idle_exit": 9}}).runner_limits(host).idle_exit == 9.0
