"""The channel suite: a good channel passes all of it, each bad habit is refused by the check that is meant for it."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any, ClassVar

import pytest
from jackfield.api import ChannelInfo, ChannelType
from jackfield.testing import ChannelContract, Peer
from jackfield.testing.contracts import checks_of

from tests.contracts.parrot import PARROT, ParrotPeer, Platform, parrot_type
from tests.contracts.refusing import refusal


class Suite(ChannelContract):
    """The contract for an object that is not installed."""

    plugin = "parrot"
    faults: ClassVar[frozenset[str]] = frozenset()
    info: ClassVar[ChannelInfo] = PARROT

    def __init__(self) -> None:
        self._platforms: dict[str, Platform] = {}

    def item(self) -> ChannelType:
        return parrot_type(self.info)

    def make_peer(self, instance: str) -> Peer:
        return ParrotPeer(instance, self.faults, self._platforms)


GOOD = [one for one in checks_of(Suite) if one.id.startswith("CHAN-") and one.id != "CHAN-45"]


@pytest.mark.parametrize("check", GOOD, ids=[one.id for one in GOOD])
async def test_a_good_channel_passes(check: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is skipped: the parrot can do everything."""
    method = getattr(Suite(), check.name)
    fixtures = {"tmp_path": tmp_path, "caplog": caplog}
    given = {name: fixtures[name] for name in inspect.signature(method).parameters}
    try:
        if inspect.iscoroutinefunction(method):
            await method(**given)
        else:
            await asyncio.to_thread(method, **given)
    except pytest.skip.Exception as skipped:
        raise AssertionError(f"{check.id} was skipped: {skipped}") from None


@pytest.mark.parametrize(
    ("fault", "id", "says"),
    [
        ("silent_check", "CHAN-03", "does not say why"),
        ("stops_slowly", "CHAN-05", "vain for stop"),
        ("leaves_task", "CHAN-05", "leaves behind: the task"),
        ("module_loop", "CHAN-06", "different event loop"),
        ("shares", "CHAN-07", ""),
        ("tells_secret", "CHAN-09", "token"),
        ("claims_operator", "CHAN-10", "OPERATOR"),
        ("acknowledges_early", "CHAN-11", "not stored yet"),
        ("acknowledges_anyway", "CHAN-12", "could not be stored"),
        ("delivery_key", "CHAN-14", "2 events"),
        ("text_key", "CHAN-15", "1 events"),
        ("own_unmarked", "CHAN-16", "answer itself"),
        ("bot_unmarked", "CHAN-17", "bot"),
        ("ignores_dm", "CHAN-18", "addresses the bot"),
        ("guesses_mention", "CHAN-19", "nobody addressed"),
        ("loses_thread", "CHAN-20", "is not the thread"),
        ("leaves_thread", "CHAN-20", "the answer went to"),
        ("cuts_files", "CHAN-21", "bytes came"),
        ("edit_key", "CHAN-22", "vain for the edit"),
        ("dies_of_controls", "CHAN-23", ""),
        ("starts_over", "CHAN-24", "from the beginning"),
        ("trusts_strangers", "CHAN-25", "200 to a stranger"),
        ("route_accident", "CHAN-25", "raises UnicodeDecodeError"),
        ("lies_about_ids", "CHAN-30", "the platform has"),
        ("doubles", "CHAN-32", "arrived too"),
        ("edits_another", "CHAN-33", "was edited instead"),
        ("only_adds", "CHAN-34", "people see"),
        ("drops_files", "CHAN-37", "files are"),
        ("wrong_value", "CHAN-38", "the click became"),
        ("history_unbounded", "CHAN-40", ""),
        ("hides_delete", "CHAN-41", "declares no delete"),
        ("cuts_text", "CHAN-42", "vain for a message"),
        ("long_parts", "CHAN-43", "a part has"),
    ],
)
async def test_a_bad_habit_is_refused(
    fault: str, id: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("jackfield.testing.waiting.BOUND", 3.0)
    bad = type("Bad", (Suite,), {"faults": frozenset({fault})})
    assert says in await refusal(bad, id, tmp_path, caplog=caplog)


@pytest.mark.parametrize(("fault", "says"), [("one_error", "became Transient"), ("raw_errors", "")])
async def test_an_error_of_the_wrong_class_is_refused(fault: str, says: str, tmp_path: Path) -> None:
    bad = type("Bad", (Suite,), {"faults": frozenset({fault})})
    try:
        assert says in await refusal(bad, "CHAN-45", tmp_path, failure="auth")
    except OSError as raised:  # what the adapter let through fails the check as it is
        assert fault == "raw_errors" and "reset" in str(raised)


async def test_an_accident_with_an_unknown_message_fails_the_check(tmp_path: Path) -> None:
    bad = type("Bad", (Suite,), {"faults": frozenset({"accident_on_unknown"})})
    with pytest.raises(KeyError):
        await refusal(bad, "CHAN-46", tmp_path)


async def test_another_name_is_refused(tmp_path: Path) -> None:
    bad = type("Bad", (Suite,), {"info": ChannelInfo(type="parrots", title="Parrot")})
    assert "parrot" in await refusal(bad, "CHAN-01", tmp_path)
