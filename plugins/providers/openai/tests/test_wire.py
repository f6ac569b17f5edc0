"""The chat completions wire with the real package, against servers that do what servers in the field do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jackfield.errors import ProviderError
from jackfield_provider_kit.loop import (
    BlockDone,
    Image,
    Message,
    Part,
    ReplyDone,
    Request,
    Text,
    TextPart,
    Thinking,
    ThinkingPart,
    Tokens,
    ToolCall,
    ToolOutput,
    ToolSpec,
)
from jackfield_provider_kit.testing import odd_server, sse
from jackfield_provider_openai.defaults import Defaults
from jackfield_provider_openai.wire import OpenAIWire, body_of

ASK = Request(system="be kind", messages=[Message("user", (Text("hi"),))], max_output=100)


def chunk(*, finish: str | None = None, usage: Any = None, choices: bool = True, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    told: dict[str, Any] = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m-1"}
    return {**told, "choices": [choice] if choices else [], "usage": usage}


async def heard(*answers: tuple[int, str] | str) -> list[Part]:
    async with odd_server(*answers) as server:
        wire = OpenAIWire(Defaults(), model="m", key="k", base_url=f"{server.url}/v1")
        try:
            return [part async for part in wire.stream(ASK)]
        finally:
            await wire.close()


async def test_a_text_and_its_counts() -> None:
    usage = {
        "prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107,
        "prompt_tokens_details": {"cached_tokens": 60}, "completion_tokens_details": {"reasoning_tokens": 3},
    }  # fmt: skip
    parts = await heard(
        sse(
            chunk(role="assistant", content=""),
            chunk(reasoning_content="hm"),
            chunk(content="Hel"),
            chunk(content="lo"),
            chunk(finish="stop"),
            chunk(choices=False, usage=usage),
            "[DONE]",
        )
    )
    tokens = Tokens(input=40, cache_read=60, output=7, reasoning=3)
    assert parts == [
        ThinkingPart("hm"),
        TextPart(0, "Hel"),
        TextPart(0, "lo"),
        BlockDone(0, Text("Hello")),
        ReplyDone("end", tokens, "m-1", ""),
    ]


def piece(index: int | None, key: str | None = None, name: str | None = None, arguments: str = "") -> dict[str, Any]:
    return {"index": index, "id": key, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        (
            [piece(0, "a", "add", '{"a"'), piece(0, None, None, ": 1}"), piece(1, "b", "add", "{}")],
            [ToolCall("a", "add", {"a": 1}), ToolCall("b", "add", {})],
        ),
        ([piece(0, "a", "add", '{"a": 1')], [ToolCall("a", "add", {}, '{"a": 1')]),
        ([piece(0, "a", "add", "[1]")], [ToolCall("a", "add", {}, "[1]")]),
        ([piece(0, "a", "add")], [ToolCall("a", "add", {})]),
        ([piece(0, "a", "x", "{}"), piece(0, "b", "y", "{}")], [ToolCall("a", "x", {}), ToolCall("b", "y", {})]),
        ([piece(0, "", "x", "{}")], [ToolCall("", "x", {})]),
    ],
    ids=["in pieces", "cut", "no object", "none", "all with index 0", "without an id"],
)
@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
async def test_tool_calls_however_they_come(pieces: list[Any], calls: list[ToolCall], finish: str) -> None:
    """Also with finish_reason "stop", which some servers say after a call."""
    parts = await heard(sse(*(chunk(tool_calls=[each]) for each in pieces), chunk(finish=finish), "[DONE]"))
    assert [part.block for part in parts if isinstance(part, BlockDone)] == calls
    assert isinstance(parts[-1], ReplyDone) and parts[-1].tokens is None


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        {"total_tokens": 5},
        {"prompt_tokens": "x"},
    ],
)
async def test_missing_or_half_counts_are_unknown(usage: Any) -> None:
    parts = await heard(sse(chunk(content="ok"), chunk(finish="stop", usage=usage), "[DONE]"))
    assert isinstance(parts[-1], ReplyDone) and parts[-1].tokens is None


@pytest.mark.parametrize(("finish", "stop"), [("length", "max_output"), ("content_filter", "refusal"), ("odd", "end")])
async def test_why_it_ended(finish: str, stop: str) -> None:
    parts = await heard(sse(chunk(content="x"), chunk(finish=finish), "[DONE]"))
    assert isinstance(parts[-1], ReplyDone) and parts[-1].stop == stop


async def test_a_refusal_in_words() -> None:
    parts = await heard(sse(chunk(refusal="I can't"), chunk(finish="stop"), "[DONE]"))
    assert parts == [ReplyDone("refusal", None, "m-1", "I can't")]


@pytest.mark.parametrize(
    ("answer", "kind", "retryable"),
    [
        ((401, {"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}), "auth", False),
        ((429, {"error": {"message": "no money", "type": "insufficient_quota", "code": "insufficient_quota"}}),
         "billing", False),
        ((429, {"error": {"message": "slow", "code": "rate_limit_exceeded"}}), "rate_limited", True),
        ((400, {"error": {"message": "too long", "code": "context_length_exceeded"}}), "context_overflow", False),
        ((404, {"error": {"message": "model 'x' not found"}}), "model_not_found", False),
        ((404, {"error": "model not found"}), "model_not_found", False),
        ((500, {"error": {"message": "oops"}}), "server", True),
        ((503, "not even JSON"), "overloaded", True),
        (sse({"error": {"message": "Overloaded", "code": "server_is_overloaded"}}), "overloaded", True),
        (sse(chunk(content="half")), "network", True),
        (sse("{garbage"), "protocol", True),
    ],
)  # fmt: skip
async def test_failures_are_typed(answer: Any, kind: str, retryable: bool) -> None:
    """429 without money is not tried again, a cut stream is; what isn't JSON breaks nothing."""
    if isinstance(answer, tuple):
        answer = (answer[0], json.dumps(answer[1]))
    with pytest.raises(ProviderError) as caught:
        await heard(answer)
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable), caught.value.message


async def test_a_server_that_is_not_there() -> None:
    wire = OpenAIWire(Defaults(), model="m", key="k", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ProviderError) as caught:
        _ = [part async for part in wire.stream(ASK)]
    await wire.close()
    assert caught.value.kind == "network" and "ConnectError" in caught.value.message


async def test_no_key_of_the_environment_reaches_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    async with odd_server(sse(chunk(content="ok"), chunk(finish="stop"), "[DONE]")) as server:
        wire = OpenAIWire(Defaults(), model="m", key="none", base_url=f"{server.url}/v1")
        _ = [part async for part in wire.stream(ASK)]
        await wire.close()
    assert "sk-real" not in json.dumps(server.headers)


def test_a_request_is_made_of_the_conversation() -> None:
    request = Request(
        system="s",
        messages=[
            Message("user", (Text("a"), Text("b"))),
            Message("assistant", (Thinking("hm", {}), Text("c"), ToolCall("1", "t", {"x": 1}), ToolCall("2", "t", {}))),
            Message(
                "user", (ToolOutput("1", "r"), ToolOutput("2", "", failed=True), Text("d"), Image("image/png", "AA"))
            ),
        ],
        tools=[ToolSpec(name="t", description="d", schema={"type": "object"})],
        max_output=9,
    )
    body = body_of(request, Defaults(effort="low"), "m", own_server=False)
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user"]
    assert body["messages"][1]["content"] == "a\n\nb"
    assert body["messages"][2]["tool_calls"][0]["function"] == {"name": "t", "arguments": '{"x": 1}'}
    assert body["messages"][4]["content"] == "Error: (nothing)"
    assert body["messages"][5]["content"][1]["image_url"]["url"] == "data:image/png;base64,AA"
    assert (body["max_tokens"], body["reasoning_effort"]) == (9, "low")
    assert body["stream_options"] == {"include_usage": True}
    assert body_of(request, Defaults(), "m", own_server=True)["max_completion_tokens"] == 9
