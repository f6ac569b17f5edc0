"""What a session of the provider is opened with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from jackfield.api import ProviderSpec
from jackfield.models import Destination, RunnerSpec
from jackfield.models.prompt_layers import joined, prompt_layers
from jackfield.runner.loading import Engine
from jackfield.runner.mailroom import MailRoom
from jackfield.runner.toolbox import Toolbox
from jackfield.runner.words import memory_index

if TYPE_CHECKING:
    from jackfield.runner.endpoint import Endpoint

__all__ = ["Opening"]


class Opening:
    """Makes what a session is opened with, and keeps the endpoint at which engines find our tools."""

    def __init__(
        self, spec: RunnerSpec, engine: Engine, mail: MailRoom, tools: Toolbox, *, in_process: bool, token: str = ""
    ) -> None:
        """`token` is by what the model gateway knows the session."""
        self._spec = spec
        self._gateway = f"{spec.gateway}/s/{token}" if spec.gateway and token else None
        self._engine = engine
        self._mail = mail
        self._tools = tools
        self._in_process_tools = in_process
        self._endpoint: Endpoint | None = None
        self._memory = ""
        self._composed: tuple[tuple[str, tuple[Destination, ...], str], str] | None = None
        """The last system prompt, and what it was made of."""

    async def look_at_memory(self) -> None:
        """Read the memory's index, before a conversation is opened: what the agent writes there while it speaks must
        not make it begin anew."""
        group = Path(self._spec.paths.group)
        self._memory = await self._mail.run(lambda mailbox: memory_index(group))

    def system_prompt(self, words: str, destinations: tuple[Destination, ...]) -> str:
        """The one that the next session should have; made once for what it is made of."""
        made_of = (words, destinations, self._memory)
        if self._composed is None or self._composed[0] != made_of:
            spec = self._spec
            changed = spec.tool_instructions
            layers = prompt_layers(
                agent_name=spec.agent_name,
                destinations=destinations,
                unwrapped=spec.unwrapped,
                channels=spec.channels,
                documents=spec.instructions,
                words=words,
                memory=self._memory,
                tools=[
                    (each.name, each.title, changed.get(each.name, each.instructions))
                    for each, _ in self._engine.tool_sets
                ],
            )
            self._composed = (made_of, joined(layers))
        return self._composed[1]

    async def spec(self, system_prompt: str) -> ProviderSpec:
        """All of it.

        Raises:
            OSError: its folder can't be made.
        """
        paths = self._spec.paths
        state = Path(paths.workspace) / ".jackfield" / self._spec.session_id
        await self._mail.run(lambda mailbox: state.mkdir(parents=True, exist_ok=True))
        endpoints = []
        await self._tools.ready()
        if self._tools and not self._in_process_tools:
            if self._endpoint is None:
                from jackfield.runner.endpoint import Endpoint

                self._endpoint = Endpoint(self._tools)
                await self._endpoint.start()
            endpoints.append(self._endpoint.address)
        return ProviderSpec(
            session_id=self._spec.session_id,
            cwd=paths.workspace,
            state_dir=str(state),
            system_prompt=system_prompt,
            model=self._spec.model,
            settings=self._engine.settings,
            tools=self._tools,
            endpoints=endpoints,
            extra_dirs=(paths.group, paths.session),
            env={name: value for name, value in os.environ.items() if name != "JACKFIELD_KILL_AT"},
            gateway_url=self._gateway,
            wait_budget=self._spec.limits.provider_wait,
        )

    async def close(self) -> None:
        """End the endpoint."""
        if self._endpoint is not None:
            await self._endpoint.close()
