"""The sample plugins keep their contracts, without being installed: the suites read their project folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from jackfield.clock import UnixMs
from jackfield.ids import AgentGroupId, SessionId
from jackfield.models import AgentGroup
from jackfield.testing import ExtensionContract, HostRecorder, ManualClock, PackContract, ToolsContract

FIXTURES = Path(__file__).parent / "fixtures" / "plugins"


class TestSamplePack(PackContract):
    plugin = "sample"
    project = FIXTURES / "sample-pack"


class TestReminder(ExtensionContract):
    plugin = "reminder"
    project = FIXTURES / "sample-extension"
    settings: ClassVar[Mapping[str, Any]] = {"text": "Drink some water.", "every": 60}

    async def test_it_reminds_every_session_at_its_interval(self) -> None:
        group = AgentGroup(id=AgentGroupId("ag_00000000000000000001"), name="A", folder="a", created_at=UnixMs(0))
        clock = ManualClock()
        host = HostRecorder(groups=[group], sessions={SessionId("ses_00000000000000000001"): group.id}, clock=clock)
        reminder = self.make()
        await reminder.start(host)
        await clock.until_sleeping()
        await clock.advance(59)
        assert host.notices == []
        await clock.advance(121)
        assert [notice.text for notice in host.notices] == ["Drink some water."] * 3
        await reminder.stop()
        assert clock.sleepers == ()


class TestWell(ToolsContract):
    plugin = "well"
    project = FIXTURES / "well"
