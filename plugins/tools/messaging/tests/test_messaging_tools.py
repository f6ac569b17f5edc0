"""The messaging tools against a context that only takes notes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield.api import Sent, Tool, ToolFailed
from jackfield.models import Address, Card, CardField, CardLink, Choice, Destination, Prompt
from jackfield_tools_messaging import plugin, tools
from jackfield_tools_messaging.reading import read_choices


@dataclass
class Notes:
    """A `ToolContext` that writes down what it is asked for."""

    workspace: Path
    agent_name: str = "Ada"
    origin: Address | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    sent: list[dict[str, Any]] = field(default_factory=list)
    edits: list[tuple[int, str]] = field(default_factory=list)
    reactions: list[tuple[int, str]] = field(default_factory=list)
    asked: list[tuple[Prompt, str | None, float]] = field(default_factory=list)

    async def destinations(self) -> Sequence[Destination]:
        return ()

    async def send(
        self, *, text: str = "", to: str | None = None, files: Sequence[Path] = (), card: Card | None = None
    ) -> Sent:
        if to == "nobody":
            raise ToolFailed("unknown destination 'nobody'; you can write to: home")
        contents = [(path.name, path.read_bytes()) for path in files]
        self.sent.append({"text": text, "to": to, "files": contents, "card": card})
        return Sent(seq=2 * len(self.sent) + 1, name=to or "(current conversation)")

    async def edit(self, seq: int, text: str) -> None:
        self.edits.append((seq, text))

    async def react(self, seq: int, emoji: str, *, added: bool = True) -> None:
        self.reactions.append((seq, emoji))

    async def ask(self, prompt: Prompt, *, to: str | None = None, timeout: float) -> str:
        self.asked.append((prompt, to, timeout))
        return prompt.choices[0].value if prompt.choices else "in my own words"

    async def act(self, name: str, arguments: dict[str, Any], *, timeout: float = 30.0) -> Any:
        raise AssertionError("these tools ask the host for nothing")


@pytest.fixture
def context(tmp_path: Path) -> Notes:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return Notes(folder)


@pytest.fixture
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The tests' own files lie below /tmp; the tools must not take those for the agent's."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder


async def use(which: Tool, context: Notes, **arguments: Any) -> str:
    answer = await which.function(context, **arguments)
    assert isinstance(answer, str)
    return answer


async def test_a_message_is_sent_and_its_number_told(context: Notes) -> None:
    assert await use(tools.send_message, context, text="hi", to="home") == "Message sent to home (id: 3)"
    assert await use(tools.send_message, context, text="hi") == "Message sent to (current conversation) (id: 5)"
    assert [item["to"] for item in context.sent] == ["home", None]


@pytest.mark.parametrize("text", ["", "  \n"])
async def test_an_empty_message_is_refused_by_the_parameter_s_name(context: Notes, text: str) -> None:
    with pytest.raises(ToolFailed, match="text is required"):
        await use(tools.send_message, context, text=text)


async def test_an_unknown_destination_reaches_the_model_with_the_known_ones(context: Notes) -> None:
    """C005."""
    with pytest.raises(ToolFailed, match="home"):
        await use(tools.send_message, context, text="hi", to="nobody")


async def test_a_file_of_the_workspace_is_sent(context: Notes, own_temporary_folder: Path) -> None:
    (context.workspace / "out").mkdir()
    (context.workspace / "out" / "a.txt").write_text("A")
    answer = await use(tools.send_file, context, path="out/a.txt", to="home", text="here")
    assert answer == "File sent to home (id: 3, filename: a.txt)"
    assert context.sent == [{"text": "here", "to": "home", "files": [("a.txt", b"A")], "card": None}]


async def test_a_file_may_have_another_name(context: Notes, own_temporary_folder: Path) -> None:
    (context.workspace / "a.txt").write_text("A")
    answer = await use(tools.send_file, context, path=str(context.workspace / "a.txt"), filename="Bericht.txt")
    assert answer.endswith("filename: Bericht.txt)")
    assert context.sent[0]["files"] == [("Bericht.txt", b"A")]
    assert list(own_temporary_folder.iterdir()) == []


async def test_a_file_of_the_temporary_folder_is_sent(context: Notes, own_temporary_folder: Path) -> None:
    (own_temporary_folder / "b").write_text("B")
    await use(tools.send_file, context, path=str(own_temporary_folder / "b"))
    assert context.sent[0]["files"] == [("b", b"B")]


async def test_files_elsewhere_are_refused_also_through_links(
    context: Notes, own_temporary_folder: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    (context.workspace / "link").symlink_to(secret)
    (context.workspace / "folder").symlink_to(tmp_path)
    for path in (str(secret), "../secret", "link", "folder/secret", "/etc/hostname"):
        with pytest.raises(ToolFailed, match=r"path: .* outside of the workspace"):
            await use(tools.send_file, context, path=path)
    assert context.sent == []


async def test_what_is_no_file_is_refused(context: Notes, own_temporary_folder: Path) -> None:
    os.mkfifo(context.workspace / "pipe")
    (context.workspace / "loop").symlink_to("loop")
    for path, reason in [
        ("none", "File not found: none"),
        (".", "a folder"),
        ("pipe", "no regular file"),
        ("loop", "loop"),
        ("a\0b", "NUL"),
        ("", "path is required"),
    ]:
        with pytest.raises(ToolFailed, match=reason):
            await use(tools.send_file, context, path=path)


async def test_a_file_over_the_limit_is_refused_with_both_sizes(context: Notes) -> None:
    context.settings["file_limit"] = 10
    (context.workspace / "big").write_bytes(b"x" * 11)
    with pytest.raises(ToolFailed, match="11 bytes; a file may have at most 10"):
        await use(tools.send_file, context, path="big")


@pytest.mark.parametrize("name", ["../x", "a/b", "..", "a\\b", "a\nb", "x" * 256])
async def test_a_file_s_other_name_must_be_plain(context: Notes, name: str) -> None:
    (context.workspace / "a").write_text("A")
    with pytest.raises(ToolFailed, match="filename must be a plain file name"):
        await use(tools.send_file, context, path="a", filename=name)


async def test_messages_are_edited_and_reacted_to_by_number(context: Notes) -> None:
    assert await use(tools.edit_message, context, message_id=3, text="new") == "Message edit queued for #3"
    assert await use(tools.add_reaction, context, message_id=2, emoji=":thumbs_up:") == "Reaction queued for #2"
    assert (context.edits, context.reactions) == ([(3, "new")], [(2, "thumbs_up")])


@pytest.mark.parametrize("number", [0, -1, True])
async def test_a_wrong_number_names_the_parameter(context: Notes, number: int) -> None:
    with pytest.raises(ToolFailed, match="message_id"):
        await use(tools.edit_message, context, message_id=number, text="x")


@pytest.mark.parametrize("emoji", ["", "::", "two words", "x" * 65])
async def test_what_is_no_emoji_is_refused(context: Notes, emoji: str) -> None:
    with pytest.raises(ToolFailed, match="emoji"):
        await use(tools.add_reaction, context, message_id=1, emoji=emoji)


async def test_a_card_is_sent_with_a_fallback(context: Notes) -> None:
    answer = await use(
        tools.send_card,
        context,
        title="Build 7",
        fields=[{"name": "State", "value": "green", "inline": True}],
        links=[{"label": "Log", "url": "https://example.org/7"}],
    )
    assert answer == "Card sent (id: 3)"
    assert context.sent[0]["card"] == Card(
        title="Build 7",
        fields=(CardField("State", "green", inline=True),),
        links=(CardLink("Log", "https://example.org/7"),),
        fallback_text="**Build 7**\n\n- State: green\n\n- [Log](https://example.org/7)",
    )


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({}, "empty"),
        ({"title": " "}, "empty"),
        ({"fields": [{"name": "x"}]}, r"fields\[1\].value"),
        ({"fields": ["x"]}, r"fields\[1\]"),
        ({"links": [{"label": "x", "url": "javascript:alert(1)"}]}, r"links\[1\].url"),
        ({"image_url": "file:///etc/passwd"}, "image_url"),
        ({"links": [{"url": "http://["}]}, r"links\[1\].url"),
    ],
)
async def test_a_wrong_card_names_the_parameter(context: Notes, arguments: dict[str, Any], names: str) -> None:
    with pytest.raises(ToolFailed, match=names):
        await use(tools.send_card, context, **arguments)


async def test_a_question_waits_for_the_chosen_value(context: Notes) -> None:
    answer = await use(
        tools.ask_user_question,
        context,
        title="Drink",
        question="What?",
        options=["Tea", {"label": "Coffee", "value": "c", "selectedLabel": "Coffee it is"}],
        timeout=10,
        to="home",
    )
    assert answer == "Tea"
    prompt, to, timeout = context.asked[0]
    assert (to, timeout) == ("home", 10)
    assert prompt.choices == (Choice("Tea", "Tea", "Tea"), Choice("c", "Coffee", "Coffee it is"))
    assert prompt.id.startswith("qst_")


async def test_a_question_may_take_any_text(context: Notes) -> None:
    answer = await use(tools.ask_user_question, context, title="Name", question="Whose?", options=[], allow_text=True)
    assert answer == "in my own words"


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"title": ""}, "title"),
        ({"question": " "}, "question"),
        ({"options": []}, "options is required"),
        ({"options": ["a", "a"]}, "options: two of them"),
        ({"options": [{"value": "x"}]}, r"options\[1\].label"),
        ({"options": ["a", 5]}, r"options\[2\]"),
        ({"options": [str(n) for n in range(26)]}, "options: 26 are too many"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": 1e9}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
    ],
)
async def test_a_wrong_question_names_the_parameter(context: Notes, arguments: dict[str, Any], names: str) -> None:
    good: dict[str, Any] = {"title": "T", "question": "Q", "options": ["a"]}
    with pytest.raises(ToolFailed, match=names):
        await use(tools.ask_user_question, context, **(good | arguments))
    assert context.asked == []


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["label", "value", "x"]), inner),
    max_leaves=6,
)


@given(st.lists(_JSON, max_size=4))
def test_any_options_are_read_or_refused(options: list[Any]) -> None:
    try:
        choices = read_choices(options)
    except ToolFailed as refusal:
        assert "options" in str(refusal)
    else:
        assert len({choice.value for choice in choices}) == len(options)
        assert all(choice.label and choice.selected_label for choice in choices)


def test_the_set_has_the_six_tools_and_their_annotations_resolve() -> None:
    (found,) = plugin.register_tools()
    assert found.name == "messaging"
    assert [each.name for each in found.tools] == [
        "send_message",
        "send_file",
        "edit_message",
        "add_reaction",
        "send_card",
        "ask_user_question",
    ]
    for each in found.tools:
        assert f"`{each.name}`" in found.instructions
        assert get_type_hints(each.function, include_extras=True)["return"] is str
    question = found.tools[-1]
    assert question.timeout is not None and question.timeout > tools.MAX_WAIT
    json.dumps(found.instructions)
