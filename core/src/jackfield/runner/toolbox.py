"""All tools of a session as they are at this moment: those of its tool sets, and those of the group's MCP servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, overload

from jackfield.api import BoundTool
from jackfield.clock import Clock
from jackfield.models import RunnerSpec
from jackfield.runner.board import Board
from jackfield.runner.secrets import Secrets

if TYPE_CHECKING:
    from jackfield.runner.servers import Servers

__all__ = ["Toolbox"]


class Toolbox(Sequence[BoundTool]):
    """A tool set's tool goes before a server's of the same name."""

    def __init__(self, own: Sequence[BoundTool], servers: Servers | None) -> None:
        self._own = own
        self._names = {tool.name for tool in own}
        self._servers = servers
        self._offered = 0
        """The version of the servers' tools that the open conversation was given."""

    @classmethod
    def of(
        cls,
        own: Sequence[BoundTool],
        spec: RunnerSpec,
        secrets: Secrets,
        board: Board,
        clock: Clock,
        on_call: Callable[[], None],
    ) -> Toolbox:
        """The toolbox of a session; what servers need is imported only for one that has some."""
        if not spec.servers:
            return cls(own, None)
        from jackfield.runner.servers import Servers

        return cls(own, Servers(spec, secrets, board, clock, on_call=on_call))

    @property
    def changed(self) -> bool:
        """Whether other tools are there than when it was made `ready`."""
        return self._servers is not None and self._servers.version != self._offered

    @property
    def has_news(self) -> bool:
        return self._servers is not None and self._servers.has_news

    def take_news(self) -> list[str]:
        """What the agent should know about its tools, each thing once."""
        return [] if self._servers is None else self._servers.take_news()

    async def ready(self) -> None:
        """A conversation is about to be opened: start the servers, if that was not done, and wait a moment for them."""
        if self._servers is not None:
            await self._servers.begin()
        self.accept()

    def accept(self) -> None:
        """What is there now is what the conversation has."""
        if self._servers is not None:
            self._offered = self._servers.version

    def owns(self, name: str) -> bool:
        """Whether a tool that an engine names is one of these, under whatever prefix."""
        return any(name == tool.name or name.endswith(f"__{tool.name}") for tool in self)

    async def close(self) -> None:
        if self._servers is not None:
            await self._servers.close()

    def _now(self) -> Sequence[BoundTool]:
        if self._servers is None:
            return self._own
        return [*self._own, *(tool for tool in self._servers.tools if tool.name not in self._names)]

    @overload
    def __getitem__(self, index: int) -> BoundTool: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[BoundTool]: ...

    def __getitem__(self, index: int | slice) -> BoundTool | Sequence[BoundTool]:
        return self._now()[index]

    def __len__(self) -> int:
        return len(self._now())

    def __iter__(self) -> Iterator[BoundTool]:
        return iter(self._now())
