"""The loop of providers that ask a model API directly: no engine process (spec/providers.md 2.2).

A provider implements `Wire` for its API and opens a session by `open_session`; history, tools, follow-ups,
interruption, retries inside the wait budget, compaction, limits and usage are the loop's.
"""

from __future__ import annotations

from jackfield_provider_kit.loop.blocks import Block, Image, Message, Role, Text, Thinking, ToolCall, ToolOutput
from jackfield_provider_kit.loop.session import LoopSession, open_session
from jackfield_provider_kit.loop.setup import Limits, Prices, Setup
from jackfield_provider_kit.loop.wire import (
    BlockDone,
    Part,
    ReplyDone,
    Request,
    Stop,
    TextPart,
    ThinkingPart,
    Tokens,
    ToolSpec,
    Wire,
)

__all__ = [
    "Block", "BlockDone", "Image", "Limits", "LoopSession", "Message", "Part", "Prices", "ReplyDone", "Request", "Role",
    "Setup", "Stop", "Text", "TextPart", "Thinking", "ThinkingPart", "Tokens", "ToolCall", "ToolOutput", "ToolSpec",
    "Wire", "open_session",
]  # fmt: skip
