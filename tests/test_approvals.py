"""Approvals in a whole exchange: asked by an agent, decided by a person, done once (architecture 8)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, cast

import pytest
from jackfield.host.control import Client

from tests.conftest import MakeExchange
from tests.harness.exchange import BOUND, Exchange, prepared
from tests.harness.lines import TelegramLine
from tests.harness.town import Town

DESK = "desk"
"""Where the owner sits alone with the bot."""


def settle(exchange: Exchange) -> Exchange:
    """An owner who can be reached, and an agent with something risky to do."""
    exchange.op("owner.add", user="postbox:olga", name="Olga")
    exchange.op("member.add", user="postbox:mia", group="andy")
    agent = exchange.home.groups / "andy" / "agent.toml"
    text = agent.read_text(encoding="utf-8")
    assert 'tools = ["messaging"]' in text
    agent.write_text(text.replace('tools = ["messaging"]', 'tools = ["messaging", "gated"]'), encoding="utf-8")
    exchange.op("group.accept", name="andy")
    exchange.join(DESK, policy="strict")
    exchange.join("work")
    exchange.say(DESK, "here I am", sender="olga")
    return exchange


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    with prepared(tmp_path_factory.mktemp("approvals"), plugins=("gated",)) as made:
        settle(made).start()
        made.wait_text(DESK, "here I am")
        yield made


def ask(exchange: Exchange, what: str, sender: str = "mia", **more: Any) -> str:
    """Have the agent ask; the approval's id."""
    arguments = json.dumps({"what": what, **more})
    exchange.say("work", f"mock: tool deploy {arguments} mock: say {what} {{result}}", sender=sender)
    said = exchange.wait_text("work", f"{what} ")
    return said.split()[-1]


def shown(exchange: Exchange, id: str) -> dict[str, Any]:
    found: dict[str, Any] = exchange.op("approval.show", id=id)
    return found


def until_finished(exchange: Exchange, id: str) -> dict[str, Any]:
    query = f"SELECT 1 FROM approvals WHERE id = '{id}' AND finished_at IS NOT NULL"
    exchange.wait_for(lambda: exchange.query(query), f"the end of {id}")
    return shown(exchange, id)


def until_card(exchange: Exchange, id: str) -> dict[str, Any]:
    exchange.wait_for(lambda: any(one.get("prompt") == id for one in exchange.sent(DESK)), f"the card of {id}")
    return next(one for one in exchange.sent(DESK) if one.get("prompt") == id)


def deeds(exchange: Exchange) -> list[str]:
    path = exchange.home.root / "deeds.txt"
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def test_what_a_member_asks_for_is_done_once_the_owner_has_clicked(exchange: Exchange) -> None:
    """C143, C149, C153."""
    id = ask(exchange, "alpha")
    card = until_card(exchange, id)
    assert "**what:** `alpha`" in card["question"]
    for sender, chat in (("mia", DESK), ("mia", "work"), ("olga", "work")):
        click = exchange.click(chat, id, "approve", sender=sender)
        exchange.wait_for(lambda click=click: any(one.get("answer") == click for one in exchange.sent()), "a reply")  # type: ignore[misc]  # mypy infers no lambda with a default
    assert shown(exchange, id)["state"] == "pending"
    exchange.say("work", f"mock: say approve {id}", sender="mia")
    exchange.say(DESK, f"APPROVE {id}", sender="olga")
    exchange.wait_text(DESK, f"APPROVE {id}")
    assert (shown(exchange, id)["state"], "alpha" in deeds(exchange)) == ("pending", False)
    for _ in range(2):
        exchange.click(DESK, id, "approve", sender="olga")
    assert until_finished(exchange, id)["outcome"] == "done"
    assert deeds(exchange).count("alpha") == 1
    assert "was approved by postbox:olga, and it is done: alpha is deployed." in exchange.wait_text(
        "work", id + ") was"
    )
    exchange.wait_for(
        lambda: any("alpha is deployed" in one["text"] for one in exchange.sent(DESK) if "edit" in one),
        "the card's edit",
    )


def test_what_the_owner_asks_for_alone_goes_through_unless_the_kind_always_asks(exchange: Exchange) -> None:
    """C143."""
    id = ask(exchange, "beta", sender="olga")
    found = until_finished(exchange, id)
    assert (found["via"], found["decided_by"], found["outcome"]) == ("policy", "postbox:olga", "done")
    assert not any(one.get("prompt") == id for one in exchange.sent(DESK))
    always = ask(exchange, "gamma", sender="olga", always=True)
    until_card(exchange, always)
    assert shown(exchange, always)["state"] == "pending"
    assert deeds(exchange).count("gamma") == 0


def test_the_command_line_lists_shows_approves_and_rejects(exchange: Exchange) -> None:
    yes, no, neither = ask(exchange, "delta"), ask(exchange, "epsilon"), ask(exchange, "sigma")
    assert {yes, no, neither} <= {one["id"] for one in exchange.json("approval", "list")}
    assert yes in exchange.run("approvals", "list").stdout
    text = exchange.run("approval", "show", yes).stdout
    assert "delta" in text and f"jackfield approval approve {yes}" in text and "it is ready" in text
    assert exchange.json("approval", "approve", yes)["decided_by"] == "operator"
    assert until_finished(exchange, yes)["outcome"] == "done"
    again = exchange.run("approval", "reject", yes, check=False)
    assert again.returncode == 4 and "approved already by operator" in again.stderr
    exchange.run("approval", "reject", no, "--note", "not on a Friday")
    until_finished(exchange, no)
    assert "not on a Friday" in exchange.wait_text("work", f"{no}) was rejected")
    exchange.run("approval", "cancel", neither)
    assert until_finished(exchange, neither)["state"] == "cancelled"
    assert not {"epsilon", "sigma"} & set(deeds(exchange))
    assert exchange.run("approval", "show", "ap_00000000000000000000", check=False).returncode == 3


def test_what_is_asked_in_the_terminal_is_shown_and_decided_there(exchange: Exchange) -> None:
    """The operator of this machine owns their own chat."""

    async def talk() -> tuple[str, dict[str, Any]]:
        connection = await Client(exchange.home).attach("terminal", {})
        try:
            await connection.send({"type": "hello", "group": "andy", "thread": None})
            arguments = json.dumps({"what": "tau", "always": True})
            text = f"mock: tool deploy {arguments} mock: say tau {{result}}"
            await connection.send({"type": "message", "id": "m1", "text": text, "files": []})
            asked = ""
            while (frame := await connection.receive()) is not None:
                if frame["type"] == "message":
                    await connection.send({"type": "shown", "delivery": frame["key"]})
                    if frame["prompt"] is not None:
                        asked = frame["prompt"]["id"]
                        assert "`tau`" in frame["prompt"]["question"]
                        choice = {"type": "choice", "id": "c1", "prompt_id": asked, "value": "approve"}
                        await connection.send(choice)
                if frame["type"] == "prompt_done":
                    return asked, frame
            raise AssertionError("the host let go")
        finally:
            await connection.close()

    id, done = asyncio.run(asyncio.wait_for(talk(), BOUND))
    assert "✅ Approved by operator" in done["text"]
    found = until_finished(exchange, id)
    assert (found["outcome"], found["decided_by"], found["via"]) == ("done", "operator", "card")
    assert deeds(exchange).count("tau") == 1
    assert not any(one.get("prompt") == id for one in exchange.sent(DESK))


def test_the_doctor_knows_what_permissions_may_name(exchange: Exchange) -> None:
    agent = exchange.home.groups / "andy" / "agent.toml"
    before = agent.read_text(encoding="utf-8")
    try:
        agent.write_text(before + '\n[permissions]\ndeploy = "ask"\ninstal_packages = "never"\n', encoding="utf-8")
        exchange.op("group.accept", name="andy")
        (found,) = exchange.op("doctor.check", name="approvals")
        assert "names instal_packages, of which" in found["text"] and "deploy" in found["fix"]
    finally:
        agent.write_text(before, encoding="utf-8")
        exchange.op("group.accept", name="andy")


def test_without_a_host_a_no_can_be_said_and_a_yes_can_not(exchange: Exchange) -> None:
    id = ask(exchange, "zeta")
    until_card(exchange, id)
    exchange.stop()
    assert exchange.run("approval", "approve", id, check=False).returncode == 1
    exchange.run("approval", "reject", id)
    exchange.start()
    until_finished(exchange, id)
    exchange.wait_text("work", f"{id}) was rejected by operator")
    exchange.wait_for(
        lambda: any("Rejected by operator" in one["text"] for one in exchange.sent(DESK) if "edit" in one),
        "the card's edit",
    )


def test_a_click_on_a_card_of_the_hosts_earlier_life_counts(exchange: Exchange) -> None:
    id = ask(exchange, "kappa")
    until_card(exchange, id)
    exchange.kill()
    exchange.click(DESK, id, "#0", sender="olga")
    exchange.start()
    assert until_finished(exchange, id)["outcome"] == "done"
    assert deeds(exchange).count("kappa") == 1
    assert sum(one.get("prompt") == id for one in exchange.sent(DESK)) == 1


class NoHomeserver:
    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def test_a_card_on_telegram_goes_to_the_owner_and_is_decided_by_its_button(make_exchange: MakeExchange) -> None:
    """A chat that nobody opened, a button of a bot, and the card in its final state."""
    exchange = settle(make_exchange(plugins=("gated",)))
    line = TelegramLine("tg")
    town = Town(exchange, [line], cast(Any, NoHomeserver()))
    exchange.op("owner.remove", user="postbox:olga")
    exchange.op("owner.add", user="telegram:11", name="Olga")
    try:
        town.open()
        exchange.op("wire.add", chat="telegram:tg:12", group="andy", engage="always", policy="public")
        town.start()
        arguments = json.dumps({"what": "omega"})
        town.do(line.fake.say(f"mock: tool deploy {arguments} mock: say omega {{result}}", chat=12, sender=12))

        def buttons() -> list[tuple[int, str, str]]:
            return [
                (number, one["callback_data"], message.get("text", ""))
                for (chat, number), message in line.fake.messages.items()
                if chat == 11
                for row in message.get("reply_markup", {}).get("inline_keyboard", ())
                for one in row
            ]

        exchange.wait_for(buttons, "the card in the owner's chat")
        number, data, text = buttons()[0]
        assert "omega" in text and [one[1][-1] for one in buttons()] == ["0", "1"]
        (waiting,) = exchange.op("approval.list")
        town.do(line.fake.click(11, number, data, by=12))
        town.do(line.fake.say(data, chat=11, sender=11))
        town.do(line.fake.click(11, number, data, by=11))
        found = until_finished(exchange, waiting["id"])
        assert (found["outcome"], found["decided_by"], found["via"]) == ("done", "telegram:11", "card")
        exchange.wait_for(
            lambda: "omega is deployed" in line.fake.messages[11, number].get("text", "") and not buttons(),
            f"the card's end, got {line.fake.messages[11, number]}",
        )
    finally:
        exchange.stop()
        town.close()
    assert deeds(exchange) == ["omega"]


@pytest.mark.parametrize(
    ("point", "outcome", "done"),
    [
        pytest.param("host.approval.after_decide", "done", 1, marks=pytest.mark.slow),
        ("host.approval.before_deed", "interrupted", 0),
        pytest.param("host.approval.after_deed", "interrupted", 1, marks=pytest.mark.slow),
    ],
)
def test_a_host_killed_around_the_deed_does_it_at_most_once_and_says_so(
    make_exchange: MakeExchange, point: str, outcome: str, done: int
) -> None:
    """C153: kill between state change and execution."""
    exchange = settle(make_exchange(plugins=("gated",)))
    exchange.start(JACKFIELD_KILL_AT=point)
    exchange.wait_text(DESK, "here I am")
    id = ask(exchange, "theta")
    until_card(exchange, id)
    exchange.click(DESK, id, "approve", sender="olga")
    exchange.wait_for(exchange.process_ended, f"the host's death at {point}")
    exchange.start()
    assert until_finished(exchange, id)["outcome"] == outcome
    assert deeds(exchange).count("theta") == done
    told = exchange.wait_text("work", f"{id}) was approved")
    assert ("it is done" in told) == (outcome == "done")
    exchange.click(DESK, id, "approve", sender="olga")
    exchange.wait_for(
        lambda: (
            any("Approved by Olga" in one["text"] for one in exchange.sent(DESK) if "edit" in one)
            or any(one.get("accepted") for one in exchange.sent())
        ),
        "the outcome before the approver's eyes",
    )
    assert deeds(exchange).count("theta") == done
