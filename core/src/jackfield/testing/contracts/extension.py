"""The contract of extensions: services that live and end with the host."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from jackfield.api import Extension, ExtensionType, RawRequest, RawResponse
from jackfield.clock import UnixMs
from jackfield.errors import JackfieldError
from jackfield.ids import AgentGroupId, SessionId
from jackfield.models import AgentGroup
from jackfield.plugins.kinds import Kind
from jackfield.plugins.registry import PluginRegistry
from jackfield.testing.contracts.checks import check, nothing_left, open_descriptors, skip
from jackfield.testing.contracts.plugin import PluginContract
from jackfield.testing.host_recorder import HostRecorder
from jackfield.testing.waiting import soon

__all__ = ["ExtensionContract"]

_GROUP = AgentGroup(id=AgentGroupId("ag_00000000000000000000"), name="Ada", folder="home", created_at=UnixMs(0))
_SESSION = SessionId("ses_00000000000000000000")


class ExtensionContract(PluginContract):
    """For a host service.

    class TestGateway(ExtensionContract):
        plugin = "gateway"
        settings = {"budget": 5}
    """

    kind: ClassVar[Kind] = Kind.EXTENSION
    stop_bound: ClassVar[float] = 10.0
    """Seconds in which `stop` must come back."""

    def make(self, settings: Mapping[str, Any] | None = None) -> Extension:
        item = self.item()
        assert isinstance(item, ExtensionType), f"register_extensions gave {item!r}"
        made = item.create(self.validated(settings))
        assert isinstance(made, Extension), f"create gave {made!r}, which has no start and stop"
        return made

    def host(self) -> HostRecorder:
        """A host with one group and one session."""
        return HostRecorder(groups=[_GROUP], sessions={_SESSION: _GROUP.id})

    async def _once(self) -> None:
        extension = self.make()
        await soon(extension.start(self.host()), "start")
        await soon(extension.stop(), "stop", self.stop_bound)

    @check("EXT-01")
    def test_ext_01_it_is_named_and_can_be_made(self) -> None:
        """It has the entry point's name and a title, and `create` takes the settings without starting anything."""
        item = self.item()
        assert isinstance(item, ExtensionType), f"register_extensions gave {item!r}"
        assert (item.name, bool(item.title.strip())) == (self.plugin, True)
        self.make()

    @check("EXT-02")
    async def test_ext_02_it_leaves_nothing_behind(self) -> None:
        """After `stop` no task, thread, process or open file of it is left."""
        await self._once()
        before = open_descriptors()
        async with nothing_left("stop"):
            await self._once()
        left = [target for number, target in open_descriptors().items() if number not in before]
        assert not left, f"stop leaves open: {left}"

    @check("EXT-03")
    async def test_ext_03_stopping_is_always_fine(self) -> None:
        """`stop` may be called twice, and without `start`."""
        extension = self.make()
        await soon(extension.stop(), "stop without start", self.stop_bound)
        await soon(extension.start(self.host()), "start")
        await soon(extension.stop(), "stop", self.stop_bound)
        await soon(extension.stop(), "a second stop", self.stop_bound)

    @check("EXT-04")
    def test_ext_04_it_starts_again_in_another_event_loop(self) -> None:
        """Nothing of it is bound to the event loop in which it was imported or first started."""
        asyncio.run(self._once())
        asyncio.run(self._once())

    @check("EXT-05")
    async def test_ext_05_it_starts_again_after_stop(self) -> None:
        """The same object can be started again, as a reload does."""
        extension = self.make()
        for _ in range(2):
            await soon(extension.start(self.host()), "start")
            await soon(extension.stop(), "stop", self.stop_bound)

    @check("EXT-06")
    async def test_ext_06_a_host_that_refuses_is_no_accident(self) -> None:
        """When every service of the host fails, `start` works or raises a `JackfieldError`, and `stop` still works."""
        host = self.host()
        host.error = JackfieldError("the store is full")
        extension = self.make()
        try:
            await soon(extension.start(host), "start")
        except JackfieldError:
            pass  # it says so, and nothing else
        finally:
            await soon(extension.stop(), "stop", self.stop_bound)

    @check("EXT-07")
    async def test_ext_07_cancelling_start_is_fine(self) -> None:
        """A `start` that is cancelled at once leaves nothing behind after `stop`."""
        async with nothing_left("a cancelled start and stop"):
            extension = self.make()
            starting = asyncio.create_task(extension.start(self.host()))
            await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait({starting})
            await soon(extension.stop(), "stop", self.stop_bound)

    @check("EXT-08")
    async def test_ext_08_routes_answer_strangers(self) -> None:
        """A request without credentials or with garbage gets a 4xx from each route, never an exception."""
        loaded = PluginRegistry(state_file=self.state_file, strict=True).load(self.kind, self.plugin)
        sets = loaded.offers.routes
        if not sets:
            skip("it has no routes")
        for routes in sets:
            for route in routes.routes:
                assert route.path.startswith("/") and ".." not in route.path, f"{route.path!r} is no path"
                for method in route.methods:
                    await stranger(route.handle, method, route.path)


async def stranger(handle: Any, method: str, path: str) -> None:
    """Call a route as somebody would who knows nothing but its path."""
    request = RawRequest(method=method, path=path, query="", headers=(), body=b"\xff\x00{", peer="203.0.113.1")
    try:
        response = await soon(handle(request), f"{method} {path}")
    except Exception as problem:  # noqa: BLE001 - whatever it raises is what is refused here
        pytest.fail(f"{method} {path} raises {problem!r} for a stranger's request; answer with a 4xx")
    assert isinstance(response, RawResponse), f"{method} {path} answers {response!r}"
    assert 400 <= response.status < 500, f"{method} {path} answers {response.status} to a stranger's request"
