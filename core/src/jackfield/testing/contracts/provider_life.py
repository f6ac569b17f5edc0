"""The contract of providers: opening, taking up again, compacting, closing; and the whole of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from jackfield.api import (
    Compacting,
    Continuation,
    ContinuationChanged,
    ContinuationLost,
    Probe,
    ProviderCapabilities,
    ProviderType,
    SessionClosed,
    SessionReady,
    TextDelta,
    TextDone,
    TurnEnded,
)
from jackfield.errors import ProviderError
from jackfield.testing.contracts.checks import check, nothing_left, open_descriptors, skip
from jackfield.testing.contracts.provider import ProviderBench
from jackfield.testing.contracts.provider_turns import ProviderTurns
from jackfield.testing.waiting import soon

__all__ = ["ProviderContract"]


class ProviderLife(ProviderBench):
    """From `create` to the end of the stream."""

    @check("PROV-01")
    def test_prov_01_it_is_named_and_its_claims_stand(self) -> None:
        """It has the entry point's name and a title; its capabilities are the same whenever they are asked for."""
        item = self.item()
        assert isinstance(item, ProviderType), f"register_providers gave {item!r}"
        assert item.name == self.plugin
        assert item.title.strip(), "title is empty"
        assert isinstance(self.claims(), ProviderCapabilities)
        assert self.claims() == self.claims()

    @check("PROV-02")
    async def test_prov_02_a_probe_tells_what_is_installed(self) -> None:
        """`probe` says whether the engine can be used, or how to mend it, and leaves nothing running."""
        async with self.stage() as stage, nothing_left("probe"):
            found = await soon(self.make(stage.settings).probe(), "probe")
            assert isinstance(found, Probe), f"probe gave {found!r}"
            assert found.ok or found.fix, "it is not ok, and does not say how to mend it"

    @check("PROV-03")
    async def test_prov_03_a_session_says_that_it_is_ready(self, tmp_path: Path) -> None:
        """The first event of a session, before any prompt, is `SessionReady`."""
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            ready = await talk.until(SessionReady)
            assert talk.seen[0] == ready, f"before it came {talk.seen[0]}"
            assert len(talk.of(SessionReady)) == 1

    @check("PROV-04")
    async def test_prov_04_closing_ends_the_stream(self, tmp_path: Path) -> None:
        """`close` ends the one stream with `SessionClosed`; closing again is fine, and later input is rejected."""
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            await talk.ask(stage.anything())
            await self.closed(talk)
            assert len(talk.of(SessionClosed)) == 1
            await soon(talk.session.close(deadline=self.close_deadline), "a second close")
            assert await talk.send(stage.anything()) == "rejected", "a closed session took a prompt"

    @check("PROV-05")
    async def test_prov_05_closing_leaves_nothing_behind(self, tmp_path: Path) -> None:
        """After `close` no task, thread, process or descriptor of the session is left."""
        async with self.stage() as stage:
            async with self.talk(tmp_path, stage, name="before") as talk:  # whatever is made once, is made now
                await talk.ask(stage.anything())
                await self.closed(talk)
            before = open_descriptors()
            async with nothing_left("close"), self.talk(tmp_path, stage) as talk:
                await talk.ask(stage.anything())
                await self.closed(talk)
            left = [target for number, target in open_descriptors().items() if number not in before]
            assert not left, f"close leaves open: {left}"

    @check("PROV-06")
    async def test_prov_06_it_can_be_closed_in_the_middle_of_a_turn(self, tmp_path: Path) -> None:
        """`close` during a turn keeps its deadline, ends the stream, and leaves nothing behind."""
        async with self.stage() as stage, nothing_left("close in a turn"), self.talk(tmp_path, stage) as talk:
            await talk.send(stage.go_on())
            await talk.wait(lambda: bool(talk.of(TextDelta) or talk.of(TextDone)), "a first word")
            await self.closed(talk)

    @check("PROV-07")
    def test_prov_07_it_opens_again_in_another_event_loop(self, tmp_path: Path) -> None:
        """Nothing of it is bound to the event loop in which it was first used."""

        async def once() -> None:
            async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
                assert (await talk.ask(stage.anything())).outcome == "ok"

        asyncio.run(once())
        asyncio.run(once())

    @check("PROV-08")
    async def test_prov_08_two_sessions_do_not_mix(self, tmp_path: Path) -> None:
        """Two sessions at once have conversations, events and continuations of their own."""
        async with (
            self.stage() as stage,
            self.talk(tmp_path, stage, name="one") as one,
            self.talk(tmp_path, stage, name="two") as two,
        ):
            first = await one.ask(stage.anything())
            assert first.outcome == "ok" and not two.of(TurnEnded), "a turn of one session was told by the other"
            assert (await two.ask(stage.anything())).outcome == "ok"
            assert len(one.of(TurnEnded)) == 1
            if self.claims().resume:
                assert one.continuation.token != two.continuation.token, "both sessions have one continuation"

    @check("PROV-30")
    async def test_prov_30_a_conversation_goes_on_in_a_new_session(self, tmp_path: Path) -> None:
        """With its continuation, a new session object of a new provider takes the conversation up; nothing is lost."""
        if not self.claims().resume:
            skip("it declares no resume")
        async with self.stage() as stage:
            async with self.talk(tmp_path, stage) as talk:
                await talk.ask(f"{stage.anything()} (the word is quillwort)")
                continuation = talk.continuation
            assert continuation.provider == self.plugin, f"the continuation names {continuation.provider!r}"
            async with self.talk(tmp_path, stage, continuation) as again:
                assert (await again.ask(stage.anything())).outcome == "ok"
                assert not again.of(ContinuationLost), "it lost a conversation that was just closed"
                assert "quillwort" in ((await again.ask(stage.recall())).reply or ""), "it does not know what was said"

    @check("PROV-31")
    async def test_prov_31_the_continuation_is_told_before_the_turn_ends(self, tmp_path: Path) -> None:
        """A continuation is told the moment it is known, so that a crash after the turn loses nothing."""
        if not self.claims().resume:
            skip("it declares no resume")
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            await talk.ask(stage.anything())
            kinds = [type(event) for event in talk.seen]
            assert ContinuationChanged in kinds, "it declares resume, and tells no continuation"
            assert kinds.index(ContinuationChanged) < kinds.index(TurnEnded)

    @check("PROV-32")
    async def test_prov_32_a_lost_conversation_is_told(self, tmp_path: Path) -> None:
        """An unknown continuation is told by `ContinuationLost` or a `continuation_lost` error (C124)."""
        if not self.claims().resume:
            skip("it declares no resume")
        async with self.stage() as stage:
            async with self.talk(tmp_path, stage) as talk:
                await talk.ask(stage.anything())
                known = talk.continuation
            for lost in (replace(known, token="no-such-token"), Continuation(provider="another", token=known.token)):
                try:
                    async with self.talk(tmp_path, stage, lost, name="two") as again:
                        ended = await again.ask(stage.anything())
                        told = bool(again.of(ContinuationLost)) or (
                            ended.error is not None and ended.error.kind == "continuation_lost"
                        )
                        assert told, f"{lost} is unknown, and it began another conversation without a word"
                        if ended.outcome == "ok":
                            assert again.continuation.token != lost.token
                except ProviderError as problem:
                    assert problem.kind == "continuation_lost", f"open raised {problem.kind}: {problem}"

    @check("PROV-33")
    async def test_prov_33_compaction_has_a_beginning_and_an_end(self, tmp_path: Path) -> None:
        """Declared compaction is told by `Compacting` started and ended, and the conversation goes on."""
        if not self.claims().compaction:
            skip("it declares no compaction")
        async with self.stage() as stage, self.talk(tmp_path, stage) as talk:
            await talk.ask(stage.anything())
            await soon(talk.session.compact("keep names"), "compact")
            await talk.until(Compacting, 2)
            started, ended = talk.of(Compacting)[:2]
            assert (started.phase, ended.phase) == ("started", "ended")
            assert ended.ok, "compaction of a healthy conversation failed"
            assert ended.before is None or ended.after is None or ended.before >= 0 <= ended.after
            assert (await talk.ask(stage.anything())).outcome == "ok"


class ProviderContract(ProviderLife, ProviderTurns):
    """For an agent provider.  The author's `Stage` makes it do what the checks need.

    class TestParrot(ProviderContract):
        plugin = "parrot"

        def make_stage(self) -> Stage:
            return ParrotStage()
    """
