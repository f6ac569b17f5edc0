"""The `[agents]` table, and the name that no channel may have."""

from __future__ import annotations

from pathlib import Path

import pytest
from jackfield.config import Home
from jackfield.config.load import Configuration, load
from jackfield.config.settings import AgentsSettings
from jackfield.plugins import PluginRegistry
from jackfield.testing.distributions import Site


def read(tmp_path: Path, text: str) -> Configuration:
    home = Home(tmp_path / "home")
    home.create()
    home.jackfield_toml.write_text(text, encoding="utf-8")
    return load(home)


def test_the_budgets_of_agents_among_themselves_can_be_set(tmp_path: Path) -> None:
    found = read(tmp_path, "[agents]\nmax_hops = 8\nmax_messages = 40\nto_itself_per_minute = 0\n")
    assert found.problems == ()
    assert found.agents == AgentsSettings(max_hops=8, max_messages=40, to_itself_per_minute=0)


def test_a_wrong_budget_is_told_and_the_default_stands(tmp_path: Path) -> None:
    """C198: a mistake never takes a limit away."""
    found = read(tmp_path, "[agents]\nmax_hops = 0\n")
    assert "agents.max_hops" in str(found.problems[0])
    assert found.agents == AgentsSettings()


@pytest.mark.parametrize("table", ["[channels.agent]", '[channels.x]\ntype = "agent"'])
def test_no_channel_may_be_called_as_agents_among_themselves_are(tmp_path: Path, table: str) -> None:
    """Its events would come from addresses that only the host may give."""
    found = read(tmp_path, f"{table}\n")
    assert found.errors and "agents write to each other there" in str(found.errors[0])
    assert [section.enabled for section in found.channels.values()] == [False]


def test_a_plugin_that_brings_such_a_channel_is_broken_and_says_why(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        files = {"forger_module/__init__.py": ""}
        site.add(
            "jackfield-channel-forger", entry_points={"jackfield.channels": {"agent": "forger_module"}}, files=files
        )
        found = next(info for info in PluginRegistry(state_file=None).listing() if info.name == "agent")
    assert found.broken is not None
    assert "agents write to each other there" in found.broken.reason
