"""The contract suite's stage for providers of the loop, on a played model.

class Staged(PlayedStage, Stage): ...      # `Stage` of `jackfield.testing`, which only tests import
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from jackfield.errors import ProviderErrorKind

from jackfield_provider_kit.played import Asked, PlayedModel, Reply, played

__all__ = ["PlayedStage"]

_FAILURES: dict[ProviderErrorKind, Reply] = {
    "auth": Reply(status=401, type="authentication_error"),
    "billing": Reply(status=402, type="billing_error"),
    "permission": Reply(status=403, type="permission_error"),
    "model_not_found": Reply(status=404, type="not_found_error", message="model: nope"),
    "rate_limited": Reply(status=429, type="rate_limit_error", headers={"retry-after": "3600"}),
    "overloaded": Reply(status=529, type="overloaded_error", headers={"retry-after": "600"}),
    "server": Reply(status=500, type="api_error", headers={"retry-after": "600"}),
    "context_overflow": Reply(status=400, type="invalid_request_error", message="prompt is too long: 9 > 8"),
    "invalid_request": Reply(status=400, type="invalid_request_error"),
    "output_limit": Reply(text="and on ", stop="max_tokens"),
    "refusal": Reply(text="I", stop="refusal"),
}


class PlayedStage:
    """A prompt names a play; `path` is what the provider's `base_url` has after the server's address."""

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._plays: dict[str, list[Reply]] = {}
        self._stack = AsyncExitStack()
        self.model_server: PlayedModel | None = None

    @property
    def settings(self) -> Mapping[str, Any]:
        assert self.model_server is not None
        return {"model": "m-1", "api_key": "k", "base_url": f"{self.model_server.url}{self._path}"}

    async def open(self) -> None:
        self.model_server = await self._stack.enter_async_context(played(self._decide))

    async def close(self) -> None:
        await self._stack.aclose()

    def _decide(self, asked: Asked) -> Reply:
        prompts = json.dumps(asked.body["messages"])
        named = [name for name in self._plays if name in prompts]
        if not named or ("PLAY" not in asked.text and not asked.text.startswith("(")):
            return Reply(text="fine")
        newest = max(named, key=prompts.rfind)
        replies = self._plays[newest]
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        return Reply(text=prompts) if reply.text == "RECALL" else reply

    def _play(self, *replies: Reply) -> str:
        name = f"PLAY-{len(self._plays)}-"
        self._plays[name] = list(replies)
        return f"Please do {name}"

    def say(self, text: str) -> str:
        return self._play(Reply(text=text))

    def call(self, *calls: tuple[str, Mapping[str, Any]]) -> str:
        return self._play(Reply(calls=calls), Reply(text="done"))

    def go_on(self) -> str:
        return self._play(Reply(text="working on it, and on, and on", after="hang"))

    def fail(self, kind: ProviderErrorKind) -> str:
        return self._play(_FAILURES[kind])

    def fail_after(self, kind: ProviderErrorKind, call: tuple[str, Mapping[str, Any]]) -> str:
        return self._play(Reply(calls=[call]), _FAILURES[kind])

    def retry(self) -> str:
        return self._play(Reply(text="half", after="cut"), Reply(text="whole"))

    def recall(self) -> str:
        return self._play(Reply(text="RECALL"))

    def known_failures(self) -> Sequence[ProviderErrorKind]:
        return tuple(_FAILURES)
