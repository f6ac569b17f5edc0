"""The Messages wire with the real package."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jackfield.errors import ProviderError
from jackfield_provider_anthropic.defaults import Defaults
from jackfield_provider_anthropic.prices import list_price
from jackfield_provider_anthropic.wire import AnthropicWire, body_of
from jackfield_provider_kit.loop import (
    BlockDone,
    Message,
    Part,
    ReplyDone,
    Request,
    Text,
    TextPart,
    ThinkingPart,
    Tokens,
    ToolCall,
    ToolOutput,
    ToolSpec,
)
from jackfield_provider_kit.testing import OddServer, odd_server, sse

ASK = Request(system="be kind", messages=[Message("user", (Text("hi"),))], max_output=100)


def begin(**usage: int) -> dict[str, Any]:
    message: dict[str, Any] = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 1, **usage},
    }  # fmt: skip
    return {"type": "message_start", "message": message}


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def end(stop: str = "end_turn", **usage: int) -> list[dict[str, Any]]:
    delta = {"stop_reason": stop, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7, **usage}},
        {"type": "message_stop"},
    ]


def said(*pieces: str, index: int = 0) -> list[dict[str, Any]]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces))


async def heard(answer: tuple[int, str] | str, into: list[OddServer] | None = None) -> list[Part]:
    async with odd_server(answer) as server:
        if into is not None:
            into.append(server)
        wire = AnthropicWire(Defaults(), model="m", key="k", base_url=f"{server.url}/s/key")
        try:
            return [part async for part in wire.stream(ASK)]
        finally:
            await wire.close()


async def test_a_text_and_its_counts() -> None:
    ping = {"type": "ping"}
    usage = {"cache_read_input_tokens": 60, "cache_creation_input_tokens": 5}
    servers: list[OddServer] = []
    parts = await heard(sse(begin(**usage), ping, *said("Hel", "lo"), *end()), servers)
    assert parts == [
        TextPart(0, "Hel"),
        TextPart(0, "lo"),
        BlockDone(0, Text("Hello")),
        ReplyDone("end", Tokens(input=10, cache_read=60, cache_write=5, output=7), "m-1", ""),
    ]
    assert servers[0].headers[0]["authorization"] == "Bearer k"
    assert servers[0].bodies[0]["stream"] is True


async def test_thoughts_go_back_as_they_came_and_to_their_model_only() -> None:
    thought = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": "SIG"},
    )
    hidden = block(1, {"type": "redacted_thinking", "data": "XX"})
    parts = await heard(sse(begin(), *thought, *hidden, *said("ok", index=2), *end()))
    assert parts[0] == ThinkingPart("hm")
    blocks = tuple(part.block for part in parts if isinstance(part, BlockDone))
    request = Request(system="", messages=[Message("user", (Text("hi"),)), Message("assistant", blocks)], max_output=9)
    content = body_of(request, Defaults(), "m")["messages"][1]["content"]
    assert content[0] == {"type": "thinking", "thinking": "hm", "signature": "SIG"}
    assert content[1] == {"type": "redacted_thinking", "data": "XX"}
    assert [each["type"] for each in body_of(request, Defaults(), "other")["messages"][1]["content"]] == ["text"]


@pytest.mark.parametrize(
    ("pieces", "call"),
    [
        (['{"a"', ": 1}"], ToolCall("t1", "add", {"a": 1})),
        ([], ToolCall("t1", "add", {})),
        (['{"a": '], ToolCall("t1", "add", {}, '{"a": ')),
    ],
)
async def test_tool_calls(pieces: list[str], call: ToolCall) -> None:
    start = {"type": "tool_use", "id": "t1", "name": "add", "input": {}}
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    parts = await heard(sse(begin(), *block(0, start, *deltas), *end("tool_use")))
    assert parts[0] == BlockDone(0, call)


@pytest.mark.parametrize(
    ("said_stop", "stop"),
    [
        ("stop_sequence", "end"), ("max_tokens", "max_output"), ("pause_turn", "pause"), ("refusal", "refusal"),
        ("model_context_window_exceeded", "overflow"), ("something_new", "end"),
    ],
)  # fmt: skip
async def test_why_it_ended(said_stop: str, stop: str) -> None:
    parts = await heard(sse(begin(), *said("x"), *end(said_stop)))
    assert isinstance(parts[-1], ReplyDone) and parts[-1].stop == stop


def error(kind: str, message: str = "said the server") -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


@pytest.mark.parametrize(
    ("answer", "kind", "retryable"),
    [
        ((401, error("authentication_error")), "auth", False),
        ((402, error("billing_error")), "billing", False),
        ((400, error("invalid_request_error", "Your credit balance is too low")), "billing", False),
        ((403, error("permission_error")), "permission", False),
        ((404, error("not_found_error", "model: nope")), "model_not_found", False),
        ((413, error("request_too_large")), "invalid_request", False),
        ((429, error("rate_limit_error")), "rate_limited", True),
        ((400, error("invalid_request_error", "prompt is too long: 9 > 8")), "context_overflow", False),
        ((500, error("api_error")), "server", True),
        ((529, error("overloaded_error")), "overloaded", True),
        ((503, "no JSON"), "overloaded", True),
        (sse(begin(), error("overloaded_error")), "overloaded", True),
        (sse(begin(), error("api_error")), "server", True),
        ("event: message_start\ndata: {garbage\n\n", "protocol", True),
    ],
)
async def test_failures_are_typed(answer: Any, kind: str, retryable: bool) -> None:
    """Also an error in the middle of a stream, whose status is 200."""
    if isinstance(answer, tuple):
        answer = (answer[0], json.dumps(answer[1]))
    with pytest.raises(ProviderError) as caught:
        await heard(answer)
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable), caught.value.message


async def test_a_stream_that_just_ends_has_no_reply() -> None:
    """The loop takes that for a cut connection."""
    assert not any(isinstance(part, ReplyDone) for part in await heard(sse(begin(), *said("x"))))


def test_the_prefix_is_the_same_bytes_and_marked() -> None:
    """Four breakpoints at most, and nothing before the last two user messages changes between requests (2.2)."""
    tools = [ToolSpec(name=name, description="d", schema={"type": "object"}) for name in ("a", "b")]
    messages = [
        Message("user", (Text("one"),)),
        Message("assistant", (Text("two"), ToolCall("t", "a", {}))),
        Message("user", (ToolOutput("t", "r"),)),
    ]
    first = body_of(Request(system="s", messages=messages, tools=tools, max_output=9), Defaults(), "m")
    longer = [*messages, Message("assistant", (Text("three"),)), Message("user", (Text("four"),))]
    second = body_of(Request(system="s", messages=longer, tools=tools, max_output=9), Defaults(), "m")
    assert json.dumps(first["tools"]) == json.dumps(second["tools"]) and first["system"] == second["system"]
    assert json.dumps(second).count("cache_control") == 4
    assert "cache_control" not in json.dumps(second["messages"][0])

    def bare(body: dict[str, Any]) -> str:
        for message in body["messages"]:
            for part in message["content"]:
                part.pop("cache_control", None)
        return json.dumps(body["messages"])

    assert bare(second).startswith(bare(first)[:-1])


@pytest.mark.parametrize(
    ("settings", "said_body"),
    [
        (Defaults(), {}),
        (Defaults(effort="high"), {"output_config": {"effort": "high"}}),
        (Defaults(thinking="adaptive"), {"thinking": {"type": "adaptive"}}),
        (Defaults(thinking="off"), {"thinking": {"type": "disabled"}}),
        (Defaults(thinking=2048), {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
    ],
)
def test_what_is_not_set_is_not_sent(settings: Defaults, said_body: dict[str, Any]) -> None:
    body = body_of(ASK, settings, "m")
    assert {name: body[name] for name in body if name in ("output_config", "thinking")} == said_body


def test_prices_are_known_by_name_with_or_without_a_date() -> None:
    assert list_price("claude-opus-4-5-20251101") == list_price("claude-opus-4-5")
    price = list_price("claude-sonnet-5-5")
    assert price is not None
    assert price.of(Tokens(input=1_000_000, cache_read=1_000_000, output=100_000)) == pytest.approx(2 + 0.1 + 1)
    assert list_price("gpt-oss:20b") is None
