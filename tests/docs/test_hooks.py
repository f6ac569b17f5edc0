"""Every hook and every event, through a real host: what a plugin's author is promised happens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jackfield.api import HOOKS, HookKind
from jackfield.clock import UnixMs
from jackfield.models import (
    ActionInvoked,
    Address,
    Addressed,
    ConversationChange,
    ConversationChanged,
    DeliveryReport,
    Event,
    MessageDeleted,
    MessageEdited,
    MessageReceived,
    MessageRef,
    Person,
    ReactionChanged,
    ReportState,
    dumps,
)
from jackfield.plugins import Kind, PluginRegistry
from jackfield.testing.distributions import Site

from tests.conftest import MakeExchange
from tests.docs.pages import ROOT, script
from tests.harness.exchange import Exchange

CHAT = Address("recorder", "rec", "c1")
ANN = Person("ann", "Ann")
CALLED = {
    "resolve_sender", "decide_access", "decide_engage", "intercept_inbound", "intercept_outbound",
    "event_accepted", "message_enqueued", "turn_ended", "message_delivered", "message_failed", "activity_recorded",
    "compose_outbound", "compose_prompt", "tool_instructions",
}  # fmt: skip


@dataclass
class Recorded:
    """A host whose one channel takes any event, and notes every hook."""

    exchange: Exchange
    folder: Path
    _count: int = 0

    def give(self, event: Event) -> None:
        with (self.folder / "in.jsonl").open("a", encoding="utf-8") as file:
            file.write(dumps(event) + "\n")

    def say(self, text: str) -> None:
        self._count += 1
        name = f"m{self._count}"
        self.give(
            MessageReceived(
                address=CHAT, dedupe_key=name, occurred_at=UnixMs(self._count), ref=MessageRef(CHAT, (name,)),
                sender=ANN, text=text, addressed=Addressed.DM, conversation_name="Town",
            )
        )  # fmt: skip

    def lines(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    def calls(self, hook: str) -> list[dict[str, Any]]:
        return [line for line in self.lines("hooks") if line["hook"] == hook]

    def wait_call(self, hook: str, **facts: Any) -> None:
        def happened() -> bool:
            return any(facts.items() <= call.items() for call in self.calls(hook))

        self.exchange.wait_for(happened, f"{hook} with {facts}; there were {self.calls(hook)}")

    def wait_text(self, text: str) -> None:
        self.exchange.wait_for(
            lambda: any(line["text"] == text for line in self.lines("out")),
            f"{text!r} to be sent; there was {self.lines('out')}",
        )


@pytest.fixture
def recorded(make_exchange: MakeExchange, tmp_path: Path) -> Recorded:
    folder = tmp_path / "recorder"
    folder.mkdir()
    (folder / "in.jsonl").touch()
    exchange = make_exchange(plugins=("recorder",), environment={"JACKFIELD_TEST_RECORDER": str(folder)})
    exchange.run("channel", "add", "recorder", "rec", f"folder={folder}")
    exchange.op("wire.add", chat=str(CHAT), group="andy", engage="always", policy="strict")
    return Recorded(exchange.start(), folder)


def test_every_hook_on_the_path_of_a_message_is_called_and_heeded(recorded: Recorded) -> None:
    """C187, C189."""
    recorded.say("hello")
    recorded.wait_text("You said: hello (recorded)")
    recorded.wait_call("event_accepted", type="MessageReceived")
    recorded.wait_call("intercept_inbound", text="hello")
    recorded.wait_call("resolve_sender", handle="ann")
    recorded.wait_call("decide_access", user="recorder:resolved", group="andy")
    recorded.wait_call("decide_engage", text="hello")
    recorded.wait_call("message_enqueued", trigger=True)
    recorded.wait_call("turn_ended", messages=1)
    recorded.wait_call("intercept_outbound", text="You said: hello", path="answer")
    recorded.wait_call("compose_outbound", text="You said: hello")
    recorded.wait_call("message_delivered")
    recorded.say("mock: say an unwanted thing")
    recorded.wait_call("message_failed", reason="ChatNotFound")
    recorded.say('mock: tool send_message {"text": "by the way"}')
    recorded.wait_call("activity_recorded", kind="mcp_call", target="send_message")
    recorded.wait_call("intercept_outbound", text="by the way")
    recorded.say("spam")
    recorded.say("hush")
    recorded.say("mock: say a secret")
    recorded.wait_call("intercept_outbound", text="a secret")  # else both may come into one turn
    recorded.say("mock: say the end")
    recorded.wait_text("the end (recorded)")
    texts = [line["text"] for line in recorded.lines("out")]
    assert not any("secret" in text or "spam" in text or "hush" in text for text in texts)
    called = {line["hook"] for line in recorded.lines("hooks")}
    assert called == CALLED
    assert {name for name, kind in HOOKS.items() if kind is not HookKind.REGISTRATION} == CALLED
    assert not script("docs").unused_hooks() & CALLED


def test_every_kind_of_event_is_taken_and_only_some_change_anything(recorded: Recorded) -> None:
    """C012; messages reach the agent, a moved or renamed chat is followed, the rest goes no further."""
    moved = Address("recorder", "rec", "c2")
    ref = MessageRef(CHAT, ("m1",))
    recorded.say("hello")
    recorded.wait_text("You said: hello (recorded)")
    at = UnixMs(5)
    others: list[Event] = [
        MessageEdited(address=CHAT, dedupe_key="e1", occurred_at=at, ref=ref, sender=ANN, text="hallo"),
        MessageDeleted(address=CHAT, dedupe_key="d1", occurred_at=at, ref=ref, by=ANN),
        ReactionChanged(address=CHAT, dedupe_key="r1", occurred_at=at, ref=ref, user=ANN, emoji="+1"),
        ActionInvoked(address=CHAT, dedupe_key="a1", occurred_at=at, prompt_id="qst_none", value="yes", user=ANN),
        DeliveryReport(address=CHAT, dedupe_key="p1", occurred_at=at, ref=ref, state=ReportState.READ),
        ConversationChanged(
            address=CHAT, dedupe_key="c1", occurred_at=at, change=ConversationChange.RENAMED, name="City"
        ),
        ConversationChanged(
            address=CHAT, dedupe_key="c2", occurred_at=at, change=ConversationChange.MIGRATED, new_address=moved
        ),
    ]
    for event in others:
        recorded.give(event)
        recorded.wait_call("event_accepted", type=type(event).__name__)

    def chat() -> dict[str, Any]:
        (found,) = [one for one in recorded.exchange.op("channel.chats") if one["address"].startswith("recorder:")]
        return dict(found)

    recorded.exchange.wait_for(lambda: chat()["address"] == str(moved), f"the chat to move, it is {chat()}")
    assert chat()["name"] == "City"
    recorded.exchange.wait_for(
        lambda: not recorded.exchange.query("SELECT 1 FROM events WHERE state = 'received'"),
        "all events to have an end",
    )
    assert [line["text"] for line in recorded.lines("out")] == ["You said: hello (recorded)"]


def test_a_plugin_with_every_hook_is_well(recorded: Recorded) -> None:
    done = recorded.exchange.run("plugin", "retry", "recorder")
    assert "ready" in done.stdout


def test_what_is_registered_is_known_also_where_nothing_asks_for_it_yet(tmp_path: Path) -> None:
    """register_actions, register_routes, register_kinds, register_object_types, register_approvals, register_commands;
    C190."""
    with Site(tmp_path) as site:
        site.install(ROOT / "tests" / "fixtures" / "plugins" / "recorder")
        registry = PluginRegistry(state_file=site.state_file)
        registry.load(Kind.CHANNEL, "recorder")
        assert list(registry.actions()) == ["recorder.echo"]
        assert [one.name for one in registry.routes()] == ["recorder"]
        assert [one.name for one in registry.document_kinds()] == ["recording"]
        assert [one.name for one in registry.object_types()] == ["tape"]
        assert [one.name for one in registry.approval_kinds()] == ["record"]
        assert list(registry.chat_commands()) == ["/rewind"]


def test_what_plugins_compose_stands_in_the_system_prompt(recorded: Recorded) -> None:
    """Architecture 4: compose_prompt adds to it, tool_instructions changes what it says of a tool set."""
    recorded.say("mock: show system")
    recorded.wait_call("compose_prompt", group="andy")
    recorded.wait_call("tool_instructions", tool_set="messaging")
    recorded.exchange.wait_for(lambda: recorded.lines("out"), "the system prompt to be shown")
    shown = "\n".join(line["text"] for line in recorded.lines("out"))
    assert "You are recorded." in shown
    assert "Every message is recorded." in shown


def test_a_folder_of_documents_is_a_pack_like_one_that_register_packs_returns(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        folder = site.home / "plugins" / "notes"
        folder.mkdir(parents=True)
        (folder / "jackfield-plugin.toml").write_text('title = "Notes"\nkinds = ["pack"]\napi = ">=1.0,<2"\n')
        packaged = (
            "from jackfield.api import DocumentPack, hookimpl\n\n\n@hookimpl\ndef register_packs():\n"
            '    return [DocumentPack(name="tips", title="Tips", package="jackfield_pack_tips")]\n'
        )
        site.add(
            "jackfield-pack-tips",
            entry_points={"jackfield.packs": {"tips": "jackfield_pack_tips.plugin"}},
            files={"jackfield_pack_tips/__init__.py": "", "jackfield_pack_tips/plugin.py": packaged},
        )
        registry = PluginRegistry(state_file=site.state_file)
        assert registry.pack("notes").folder == str(folder)
        assert registry.pack("tips").package == "jackfield_pack_tips"
