"""How to make a provider do what a check needs, as its author knows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jackfield.errors import ProviderErrorKind
from jackfield.testing.contracts.checks import skip

__all__ = ["Stage"]


class Stage:
    """Each method returns the text of a prompt, and may prepare a fake model server for it.

    Override what you can bring about.  A check that needs something else is skipped, and says so; a plain `Stage`
    takes whatever the provider says to any prompt.
    """

    @property
    def settings(self) -> Mapping[str, Any]:
        """Added to the suite's settings, for example the address of a fake server."""
        return {}

    @property
    def model(self) -> str | None:
        return None

    @property
    def gateway_url(self) -> str | None:
        return None

    async def open(self) -> None:
        """Before the first session of a check."""

    async def close(self) -> None:
        """After its last one has been closed."""

    def anything(self) -> str:
        """It answers with some text."""
        return "Please answer with one short sentence."

    def say(self, text: str) -> str:
        """It answers with exactly this text."""
        skip("this stage can't make it say a given text")

    def call(self, *calls: tuple[str, Mapping[str, Any]]) -> str:
        """It calls these tools in one turn, and then ends the turn."""
        skip("this stage can't make it call a tool")

    def go_on(self) -> str:
        """It says something and is not done before somebody interrupts it."""
        skip("this stage can't keep it busy")

    def fail(self, kind: ProviderErrorKind) -> str:
        """The turn fails like that."""
        skip(f"this stage can't make it fail with {kind}")

    def fail_after(self, kind: ProviderErrorKind, call: tuple[str, Mapping[str, Any]]) -> str:
        """It calls a tool, and then the turn fails."""
        skip("this stage can't make it fail after a tool call")

    def retry(self) -> str:
        """It meets a passing failure, tries again by itself, and answers."""
        skip("this stage can't make it retry")

    def recall(self) -> str:
        """It answers with what was said in this conversation before; used to see that a conversation goes on."""
        skip("this stage can't make it recall")

    def known_failures(self) -> Sequence[ProviderErrorKind]:
        """What `fail` can play."""
        return ()
