"""The messaging tools through the whole path (messaging.md 7, appendix D.10 to D.14)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness.exchange import Exchange


@pytest.fixture
def exchange(exchange_hall: Exchange) -> Exchange:
    return exchange_hall


def tool(name: str, **arguments: Any) -> str:
    return f"mock: tool {name} {json.dumps(arguments)}"


def test_a_tool_sends_before_the_answer_and_says_the_number_of_the_message(exchange: Exchange) -> None:
    exchange.join("send")
    exchange.say("send", tool("send_message", text="at once") + " mock: say the tool said {result}")
    first, second = exchange.wait_sent("send", 2)
    assert first["text"] == "at once"
    assert second["text"].startswith("the tool said Message sent to ")
    assert "(id: " in second["text"]


def test_the_same_words_are_shown_once_in_a_turn_and_again_in_the_next(exchange: Exchange) -> None:
    """C010."""
    exchange.join("kettle")
    exchange.say("kettle", tool("send_message", text="Kettle is on") + " mock: say Kettle  is on")
    exchange.wait_for(lambda: exchange.state_of("kettle") == [("completed", None)], "the end of the first turn")
    exchange.say("kettle", "mock: say Kettle is on")
    exchange.wait_for(lambda: exchange.state_of("kettle") == [("completed", None)] * 2, "the end of the second turn")
    exchange.wait_sent("kettle", 2)
    assert exchange.texts("kettle") == ["Kettle is on"] * 2


def test_words_to_several_destinations_go_where_they_are_addressed(exchange: Exchange) -> None:
    """Appendix D.10."""
    exchange.join("desk")
    exchange.join("family")
    name = next(
        item["name"] for item in exchange.op("group.show", name="andy")["destinations"] if "family" in item["target"]
    )
    exchange.say("desk", f'mock: say <message to="{name}">dinner</message> note')
    exchange.wait_text("family", "dinner")
    assert exchange.texts("family") == ["dinner"]
    exchange.wait_text("desk", "note")
    exchange.say("desk", tool("send_message", text="by name", to=name))
    exchange.wait_text("family", "by name")


def test_a_label_that_the_system_printed_is_accepted_as_a_destination(exchange: Exchange) -> None:
    """C005."""
    exchange.join("label")
    for label in ("(current conversation)", "(Current Conversation)", "current conversation "):
        exchange.say("label", f'mock: say <message to="{label}">to {label.strip()}.</message>')
    for label in ("(current conversation)", "(Current Conversation)", "current conversation"):
        exchange.wait_text("label", f"to {label}.")


def test_an_unknown_destination_is_told_to_the_agent_in_the_same_turn(exchange: Exchange) -> None:
    """C005, appendix D.12."""
    exchange.join("nowhere")
    exchange.say("nowhere", 'mock: say <message to="team-lounge">Booked for 09:30</message>')
    exchange.wait_for(lambda: exchange.state_of("nowhere") == [("completed", None)], "the turn's end")
    said = " ".join(item["text"] for item in exchange.wait_sent("nowhere", 1))
    assert "team-lounge" in said or "does not exist" in said
    exchange.say("nowhere", tool("send_message", text="x", to="team-lounge") + " mock: say it said {result}")
    answer = exchange.wait_text("nowhere", "it said")
    assert "team-lounge" in answer
    names = [item["name"] for item in exchange.op("group.show", name="andy")["destinations"]]
    assert all(f'"{name}"' in answer for name in names[:3]), "the known names are listed"


def test_an_agent_may_not_write_to_a_chat_that_is_no_destination_of_its_group(exchange: Exchange) -> None:
    exchange.add_agent("eve")
    exchange.join("eves", "eve")
    exchange.join("private")
    exchange.say("eves", tool("send_message", text="intrusion", to="private") + " mock: say it said {result}")
    assert "private" in exchange.wait_text("eves", "it said")
    assert exchange.sent("private") == []


def test_a_file_from_the_workspace_arrives_with_its_bytes_and_the_outbox_is_emptied(exchange: Exchange) -> None:
    """Appendix D.13."""
    exchange.join("file")
    exchange.say("file", "mock: write report.txt all is well " + tool("send_file", path="report.txt", text="see"))
    sent = next(item for item in exchange.wait_sent("file", 1) if item["files"])
    assert (sent["files"], sent["text"]) == (["report.txt"], "see")
    assert bytes.fromhex(sent["bytes"][0]).decode().startswith("all is well")
    outbox = Path(exchange.session_of("file")["folder"]) / "outbox"
    exchange.wait_for(lambda: not any(outbox.iterdir()), "an empty outbox")


def test_files_that_may_not_be_sent_are_refused_with_a_reason(exchange: Exchange) -> None:
    """Appendix D.25."""
    space = exchange.home.groups / "andy" / "workspace"
    exchange.join("refused")
    cases = {
        "/etc/passwd": "outside",
        "../../../../../../../../../etc/passwd": "outside",
        link(space, "innocent.txt", "/etc/passwd"): "outside",
        folder(space, "things"): "folder",
        "missing.txt": "not found",
        large(space, "large.bin"): "at most",
    }
    for number, (path, told) in enumerate(cases.items()):
        exchange.say("refused", tool("send_file", path=path) + f" mock: say it said {number} {{result}}")
        assert told in exchange.wait_text("refused", f"it said {number}").lower(), path
    assert [item["files"] for item in exchange.sent("refused")] == [[]] * len(cases)


def link(space: Path, name: str, target: str) -> str:
    (space / name).symlink_to(target)
    return name


def folder(space: Path, name: str) -> str:
    (space / name).mkdir()
    return name


def large(space: Path, name: str) -> str:
    with (space / name).open("wb") as file:
        file.truncate(60 * 1024 * 1024)
    return name


def test_a_file_that_somebody_sends_can_be_read_by_the_agent(exchange: Exchange, tmp_path: Path) -> None:
    given = tmp_path / "given.txt"
    given.write_bytes(b"caf\xe9 \xff\xfe is no UTF-8")
    exchange.join("given")
    exchange.say("given", "mock: show prompt", files=[{"name": "given.txt", "path": str(given)}])
    prompt = exchange.wait_sent("given", 1)[0]["text"]
    assert 'name="given.txt"' in prompt
    kept = list((Path(exchange.session_of("given")["folder"]) / "inbox").rglob("given.txt"))
    assert [path.read_bytes() for path in kept] == [given.read_bytes()]


def test_a_received_name_that_is_a_path_stays_below_the_inbox(exchange: Exchange, tmp_path: Path) -> None:
    """C065; messaging.md 2.7, appendix D.25.  Alone and together; files of equal names don't overwrite each other."""
    given = tmp_path / "given.txt"
    given.write_bytes(b"harmless")
    exchange.join("names")
    names = ["../../../evil", "/etc/cron.d/evil", "..", "a\\..\\evil", "evil\x00.txt", "e" * 400 + "evil"]
    names += ["CON", ".", "", "rep\u202egnp.exe", "a.txt", "a.txt", "A.TXT"]
    for number, some in enumerate([*([name] for name in names[:6]), names], 1):
        exchange.say("names", "look", files=[{"name": name, "path": str(given)} for name in some])
        exchange.wait_sent("names", number)
    kept = [path for path in (Path(exchange.session_of("names")["folder"]) / "inbox").rglob("*") if path.is_file()]
    assert [path.read_bytes() for path in kept] == [b"harmless"] * (6 + len(names))
    assert not [path.name for path in kept if set(path.name) & set("/\\\0\u202e") or path.stem.upper() == "CON"]
    assert not (exchange.home.root.parent / "evil").exists()
    assert [path for path in exchange.home.root.rglob("*evil*") if "inbox" not in path.parts] == []


def test_a_file_that_is_too_large_or_cannot_be_had_stays_in_the_message_with_its_reason(exchange: Exchange) -> None:
    exchange.join("toolarge")
    files = [
        {"name": "huge.bin", "path": "/dev/null", "size": 10**12},
        {"name": "gone.bin", "path": "/nowhere/at/all"},
    ]
    exchange.say("toolarge", "mock: show prompt", files=files)
    prompt = exchange.wait_sent("toolarge", 1)[0]["text"]
    assert "larger than" in prompt
    assert prompt.count("problem=") == 2


def test_a_file_whose_size_nobody_says_is_taken_up_to_the_limit(exchange: Exchange, tmp_path: Path) -> None:
    """C071: without a size it is fetched; one that never ends stops at the limit and leaves nothing."""
    given = tmp_path / "sound.ogg"
    given.write_bytes(b"x" * 3000)
    exchange.join("unsaid")
    files = [
        {"name": "sound.ogg", "path": str(given)},
        {"name": "endless.bin", "path": "/dev/zero", "size": 10_000},
        {"name": "untold.bin", "path": "/dev/zero"},
    ]
    exchange.say("unsaid", "mock: show prompt", files=files)
    prompt = exchange.wait_sent("unsaid", 1)[0]["text"]
    assert prompt.count("problem=") == 2 and prompt.count("larger than") == 2
    kept = [path for path in (Path(exchange.session_of("unsaid")["folder"]) / "inbox").rglob("*") if path.is_file()]
    assert [(path.name, path.stat().st_size) for path in kept] == [("sound.ogg", 3000)]


def test_an_edit_changes_the_sent_message_and_a_reaction_reaches_the_received_one(exchange: Exchange) -> None:
    """Appendix D.14."""
    exchange.join("edit")
    received = exchange.say("edit", tool("send_message", text="draft one") + " mock: quiet")
    sent = exchange.wait_sent("edit", 1)[0]
    exchange.say("edit", tool("edit_message", message_id=3, text="final one") + " mock: quiet")
    edited = exchange.wait_sent("edit", 2)[1]
    assert (edited["edit"], edited["text"]) == ([sent["id"]], "final one")
    exchange.say("edit", tool("add_reaction", message_id=2, emoji="thumbs_up") + " mock: quiet")
    reacted = exchange.wait_sent("edit", 3)[2]
    assert (reacted["react"], reacted["on"]) == ([received], True)
    assert reacted["emoji"] in ("thumbs_up", "\N{THUMBS UP SIGN}")


def test_an_edit_right_after_the_send_waits_until_the_platforms_id_is_known(exchange: Exchange) -> None:
    """Appendix D.14."""
    exchange.join("quick-edit")
    exchange.order("quick-edit", {"delay": 0.3})
    exchange.say(
        "quick-edit",
        tool("send_message", text="old") + " " + tool("edit_message", message_id=3, text="new") + " mock: quiet",
    )
    sent, edited = exchange.wait_sent("quick-edit", 2)
    assert (sent["text"], edited["edit"], edited["text"]) == ("old", [sent["id"]], "new")


def test_a_card_is_sent_and_an_empty_one_refused(exchange: Exchange) -> None:
    exchange.join("card")
    exchange.say(
        "card",
        tool("send_card", title="Trip", fields=[{"name": "Train", "value": "07:42"}])
        + " " + tool("send_card") + " mock: say it said {result}",
    )  # fmt: skip
    assert exchange.wait_sent("card", 1)[0]["card"] == "Trip"
    assert "empty" in exchange.wait_text("card", "it said")
