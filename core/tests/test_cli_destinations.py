"""`jackfield destination`: who may write to whom, on a home without a host."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from jackfield.cli.main import main
from jackfield.cli.setup import group_files
from jackfield.config import template
from jackfield.config.home import Home
from jackfield.errors import Conflict, NotFound, UsageError
from jackfield.host.control import perform

Out = pytest.CaptureFixture[str]


class Operator:
    def __init__(self, home: Home) -> None:
        self.home = home

    def __call__(self, operation: str, **arguments: Any) -> Any:
        return asyncio.run(perform(self.home, operation, arguments))

    def places(self, group: str) -> dict[str, str]:
        return {one["name"]: one["target"] for one in self("destination.list", group=group) if one["kind"] == "agent"}


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """Three agents in a home."""
    home = Home.find(str(tmp_path / "home"))
    home.create()
    home.jackfield_toml.write_text(template.jackfield_toml(), encoding="utf-8")
    monkeypatch.setenv("JACKFIELD_HOME", str(home.root))
    made = Operator(home)
    for folder in ("anna", "bert", "carl"):
        group_files(home.groups / folder, name=folder.title(), provider="mock", runtime="process")
        made("group.add", name=folder.title(), folder=folder)
    return made


def test_two_agents_are_joined_and_parted_again(operator: Operator, capsys: Out) -> None:
    """`destination add`, `destination list`, `destination remove`."""
    assert main(["destination", "add", "anna", "bert", "--both"]) == 0
    assert "bert may write to anna, and calls it anna" in capsys.readouterr().out
    assert operator.places("anna") == {"bert": "bert"} and operator.places("bert") == {"anna": "anna"}
    assert main(["destination", "list", "anna", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"group": "anna", "name": "bert", "kind": "agent", "display_name": "Bert", "target": "bert"} in listed
    shown = {one["name"]: one["target"] for one in operator("group.show", name="anna")["destinations"]}
    assert shown["bert"] == "bert"
    assert main(["destination", "list"]) == 0
    assert "bert" in capsys.readouterr().out
    assert main(["destination", "remove", "anna", "bert", "--both"]) == 0
    assert "bert may no longer write to anna" in capsys.readouterr().out
    assert operator.places("anna") == operator.places("bert") == {}
    assert main(["destination", "remove", "anna", "bert"]) == 3


def test_what_is_there_stays_unless_another_name_is_asked_for(operator: Operator) -> None:
    operator("destination.add", group="anna", target="bert")
    operator("destination.add", group="anna", target="bert")
    assert operator.places("anna") == {"bert": "bert"}
    operator("destination.add", group="anna", target="bert", name="The Helper")
    assert operator.places("anna") == {"bert": "bert", "the-helper": "bert"}
    with pytest.raises(Conflict):
        operator("destination.add", group="anna", target="carl", name="bert")


def test_a_chat_is_a_destination_too_once_it_was_seen(operator: Operator) -> None:
    operator("destination.add", group="anna", target="terminal:terminal:bert")
    found = {one["target"]: one["kind"] for one in operator("destination.list", group="anna")}
    assert found["terminal:terminal:bert"] == "channel"
    with pytest.raises(NotFound):
        operator("destination.add", group="anna", target="telegram:bot:7")
    with pytest.raises(UsageError, match="two agents"):
        operator("destination.add", group="anna", target="terminal:terminal:carl", both=True)
    with pytest.raises(UsageError, match="is a chat"):
        operator("destination.remove", group="anna", name="anna", both=True)


def test_an_agents_address_is_no_chat_that_could_be_wired(operator: Operator) -> None:
    with pytest.raises(UsageError, match="another agent"):
        operator("wire.add", chat="agent:agent:ag_00000000000000000001", group="anna")


def test_a_group_that_goes_takes_the_ways_to_it_along(operator: Operator) -> None:
    operator("destination.add", group="anna", target="bert", both=True)
    operator("group.remove", name="bert")
    assert operator.places("anna") == {}
