"""What a button carries, and which buttons were sent."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

__all__ = ["PAYLOAD_BYTES", "PromptBook", "decode", "encode"]

PAYLOAD_BYTES = 64
"""The smallest of the platforms' payloads (Telegram's `callback_data`)."""


def encode(prompt_id: str, index: int) -> str:
    """The payload of a prompt's choice: `p:<id>:<index>`.

    Raises:
        ValueError: it would be longer than `PAYLOAD_BYTES`, or the index is negative.
    """
    payload = f"p:{prompt_id}:{index}"
    if index < 0 or not prompt_id or len(payload.encode()) > PAYLOAD_BYTES:
        raise ValueError(f"no payload of at most {PAYLOAD_BYTES} bytes for choice {index} of prompt {prompt_id!r}")
    return payload


def decode(payload: str) -> tuple[str, int] | None:
    """The prompt's id and the choice's index; None when we did not make the payload."""
    head, _, rest = payload.partition(":")
    prompt_id, _, number = rest.rpartition(":")
    if head != "p" or not prompt_id or not number.isascii() or not number.isdigit():
        return None
    if len(payload.encode("utf-8", "surrogatepass")) > PAYLOAD_BYTES:
        return None
    return prompt_id, int(number)


class PromptBook:
    """The values behind the choices of prompts that were sent, the newest `size` of them.

    A restart empties it: then `#<index>` stands for a choice's value, and the core, which stores every prompt, knows
    both.
    """

    def __init__(self, size: int = 1000) -> None:
        self._size = size
        self._values: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def sent(self, prompt_id: str, values: Sequence[str]) -> None:
        """Remember a prompt; the same id again replaces it."""
        self._values[prompt_id] = tuple(values)
        self._values.move_to_end(prompt_id)
        while len(self._values) > self._size:
            self._values.popitem(last=False)

    def value(self, prompt_id: str, index: int) -> str:
        """The value of a choice; `#<index>` when the prompt is not remembered or has no such choice."""
        values = self._values.get(prompt_id, ())
        return values[index] if 0 <= index < len(values) else f"#{index}"
