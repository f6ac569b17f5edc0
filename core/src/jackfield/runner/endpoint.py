"""placeholder"""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.api import McpEndpoint
from jackfield.runner.tools import Bound


class Endpoint:
    def __init__(self, tools: Sequence[Bound]) -> None: ...
    async def start(self) -> None: ...
    async def close(self) -> None: ...
    @property
    def address(self) -> McpEndpoint:
        return McpEndpoint(name="jackfield")
