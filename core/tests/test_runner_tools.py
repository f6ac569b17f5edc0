"""Tools: schema, limits, and what they may do, in the process and over the endpoint."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

sys.path.insert(0, str(Path(__file__).parent))

import httpx2
import pytest
from jackfield.api import BoundTool, Tool, ToolResult, tool
from jackfield.clock import SystemClock
from jackfield.ids import RequestId
from jackfield.models import (
    ActionRequest,
    ActivityKind,
    EditContent,
    MessageContent,
    ReactionContent,
    Response,
    ResponseStatus,
)
from jackfield.runner.endpoint import Endpoint
from jackfield.runner.parameters import model_of, schema_of
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from runner_kit import FAMILY, HERE, Place, chat, place


def ask(here: Place, *lines: str, sender: str = "ann") -> Any:
    row = chat("\n".join(lines), sender=sender)
    here.put(row)
    return row


async def told(here: Place, *lines: str) -> str:
    """What the provider says after it has done the lines."""
    before = len(here.rows())
    ask(here, *lines)
    await here.until(lambda: len(here.rows()) > before)
    await here.until(lambda: all(ack.status == "completed" for ack in here.acks().values()))
    return [row.content.text for row in here.rows() if isinstance(row.content, MessageContent)][-1]


# ---- schema


def bound(function: Any) -> dict[str, Any]:
    made: Tool = function
    return schema_of(model_of(made))


def test_a_schema_is_flat_and_described() -> None:
    """Providers.md 6."""

    @tool
    async def find(
        context: Any,
        what: Annotated[str, "what to look for"],
        kind: Literal["a", "b"] = "a",
        limit: int | None = None,
        tags: list[str] = [],  # noqa: B006
    ) -> str:
        """Find it."""
        return what

    assert bound(find) == {
        "type": "object",
        "additionalProperties": False,
        "required": ["what"],
        "properties": {
            "what": {"type": "string", "description": "what to look for"},
            "kind": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "limit": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
        },
    }


def test_a_tool_without_parameters_has_an_empty_object() -> None:
    @tool
    async def nothing(context: Any) -> str:
        """Nothing."""
        return ""

    assert bound(nothing) == {"type": "object", "additionalProperties": False, "properties": {}}


# ---- what tools may do


async def test_sending_goes_where_it_should_and_says_the_number(tmp_path: Path) -> None:
    """Messaging 7."""
    async with place(tmp_path, tools=("scripted",)) as here:
        await here.start()
        text = await told(here, 'call send_message {"text": "hi", "to": "Family"}')
        first = here.rows()[0]
        assert (first.content.text, first.address, first.destination) == ("hi", FAMILY.address, "family")
        assert text == f"Message sent to family (id: {first.seq})"
        assert await told(here, 'call send_message {"text": "hi", "to": "mars"}') == (
            'Error: there is no destination \'mars\'; known are: "family", "home", "(current conversation)"'
        )
        assert await told(here, 'call send_message {"text": "  "}') == "Error: text is required"


async def test_bad_arguments_are_explained_to_the_model(tmp_path: Path) -> None:
    async with place(tmp_path, tools=("scripted",)) as here:
        await here.start()
        text = await told(here, 'call add {"a": "x", "c": 1}')
        assert text.startswith("Error: ") and "a: " in text and "'x'" in text and "c: " in text
        assert await told(here, 'call add {"a": 40}') == "42"


async def test_a_tool_that_takes_too_long_is_stopped_and_the_turn_goes_on(tmp_path: Path) -> None:
    """C093."""
    async with place(tmp_path, tools=("scripted",)) as here:
        await here.start()
        assert "took longer than 0.2 s" in await told(here, "call sleepy")
        assert await told(here, 'call add {"a": 1}') == "3"


async def test_failures_tell_the_model_what_it_may_know(tmp_path: Path) -> None:
    async with place(tmp_path, tools=("scripted",)) as here:
        process = await here.start()
        assert await told(here, "call break_down") == "Error: the tool failed"
        assert await told(here, "call refuse") == "Error: not today"
        await here.stop(process)
        assert b"a secret of the inside" in here.stderr


async def test_files_leave_from_the_workspace_only(tmp_path: Path) -> None:
    """Messaging D13; pitfall 49."""
    async with place(tmp_path, tools=("scripted",)) as here:
        (here.workspace / "a.txt").write_text("content")
        (here.workspace / "link.txt").symlink_to("/etc/passwd")
        await here.start()
        await told(here, 'call send_file {"path": "a.txt"}')
        row = here.rows()[0]
        assert row.content.files == ("a.txt",) and row.address == HERE
        with here.folder.open_outbox(row.id, "a.txt") as file:
            assert file.read() == b"content"
        assert "outside of the workspace" in await told(here, json_call("send_file", path="/etc/passwd"))
        assert "outside of the workspace" in await told(here, json_call("send_file", path="link.txt"))
        assert "File not found" in await told(here, json_call("send_file", path="nothing.txt"))


def json_call(name: str, **arguments: Any) -> str:
    return f"call {name} {json.dumps(arguments)}"


async def test_messages_are_edited_and_reacted_to_by_their_number(tmp_path: Path) -> None:
    async with place(tmp_path, tools=("scripted",)) as here:
        await here.start()
        await told(here, 'call send_message {"text": "hi", "to": "family"}')
        seq = here.rows()[0].seq
        assert await told(here, json_call("edit", message_id=seq, text="ho")) == "edited"
        assert await told(here, json_call("react", message_id=2, emoji="thumbs_up")) == "reacted"
        assert await told(here, json_call("edit", message_id=2, text="x")) == (
            "Error: Message #2 is not yours; only your own messages can be edited"
        )
        assert await told(here, json_call("react", message_id=999, emoji="x")) == "Error: Message #999 not found"
        contents = {type(row.content): row for row in here.rows()}
        assert contents[EditContent].content == EditContent(target_seq=seq, text="ho")
        assert contents[EditContent].address == FAMILY.address
        assert contents[ReactionContent].content == ReactionContent(target_seq=2, emoji="thumbs_up")
        assert contents[ReactionContent].address == HERE


async def test_a_question_waits_beyond_the_tools_limit_for_its_answer(tmp_path: Path) -> None:
    """Messaging D15; C093 does not count the person's time; C097."""
    async with place(tmp_path, tools=("scripted",)) as here:
        await here.start()
        ask(here, 'call ask {"question": "sure?"}')
        (row,) = await here.until(here.rows)
        prompt = row.content.prompt
        assert prompt.question == "sure?" and prompt.id and prompt.expires_at and row.address == HERE
        state = await here.until(lambda: s if (s := here.host.read_state()).waiting_for else None)
        assert state.waiting_for == "an answer" and state.waiting_until is not None
        await asyncio.sleep(0.4)
        here.host.respond(answer(prompt.id, '"yes"'))
        assert here.bell is not None
        here.bell.ring()
        await here.until(lambda: here.texts()[-1] == "yes")
        await here.until(lambda: here.host.read_state().waiting_for is None)


def answer(request: str, body: str, status: ResponseStatus = ResponseStatus.OK) -> Response:
    return Response(request_id=RequestId(request), status=status, body=body, at=SystemClock().now())


async def test_a_question_that_nobody_answers_is_an_error(tmp_path: Path) -> None:
    """Messaging D15."""
    async with place(tmp_path, tools=("scripted",)) as here:
        await here.start()
        ask(here, 'call ask {"question": "sure?", "seconds": 0.3}')
        await here.until(lambda: len(here.rows()) == 2)
        assert here.texts()[-1] == "Error: Question timed out after 0.3 s"


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (ResponseStatus.OK, '{"done": true}', '{"done": true}'),
        (ResponseStatus.ERROR, '{"message": "no such group", "code": "NotFound"}', "Error: no such group"),
        (ResponseStatus.EXPIRED, "", "Error: nobody decided about make in time"),
    ],
)
async def test_what_only_the_host_can_do_is_asked_by_mailbox(
    tmp_path: Path, status: ResponseStatus, body: str, expected: str
) -> None:
    async with place(tmp_path, tools=("scripted",)) as here:
        await here.start()
        ask(here, 'call act {"name": "make"}')
        (row,) = await here.until(here.rows)
        request = row.content
        assert (
            isinstance(request, ActionRequest) and request.name == "make" and json.loads(request.arguments) == {"a": 1}
        )
        assert row.address is None and row.agent_group_id is None
        here.host.respond(answer(request.request_id, body, status))
        assert here.bell is not None
        here.bell.ring()
        await here.until(here.texts)
        assert here.texts() == [expected]


async def test_what_tools_did_is_in_the_activity(tmp_path: Path) -> None:
    async with place(tmp_path, tools=("scripted",)) as here:
        await here.start()
        await told(here, 'call add {"a": 1}')
        (done,) = here.host.read_outbound().activity
        assert (done.kind, done.target, done.summary) == (ActivityKind.MCP_CALL, "add", "a")


# ---- the endpoint


class Echo:
    name = "echo"
    description = "Say it again."
    input_schema: ClassVar[dict[str, Any]] = {"type": "object", "properties": {"text": {"type": "string"}}}

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.began = asyncio.Event()
        self.cancelled = False

    async def call(self, arguments: dict[str, Any]) -> ToolResult:
        if arguments.get("text") == "slow":
            self.began.set()
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
        return ToolResult(text=str(arguments.get("text")), is_error=arguments.get("text") == "bad")


@asynccontextmanager
async def served(tool: BoundTool, **more: Any) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint([tool], **more)
    await endpoint.start()
    try:
        yield endpoint
    finally:
        await endpoint.close()


@asynccontextmanager
async def over_http(endpoint: Endpoint) -> AsyncIterator[Client]:
    address = endpoint.address
    assert address.url is not None
    http = httpx2.AsyncClient(headers=address.headers, timeout=30)
    async with http, Client(streamable_http_client(address.url, http_client=http)) as client:
        yield client


@asynccontextmanager
async def over_stdio(endpoint: Endpoint) -> AsyncIterator[Client]:
    command, *arguments = endpoint.address.command
    async with Client(StdioServerParameters(command=command, args=arguments, env=endpoint.address.env)) as client:
        yield client


@pytest.mark.parametrize("over", [over_http, over_stdio])
async def test_the_client_of_the_mcp_sdk_lists_and_calls(over: Any) -> None:
    """Providers.md 6."""
    async with served(Echo()) as endpoint, over(endpoint) as client:
        (listed,) = (await client.list_tools()).tools
        assert (listed.name, listed.description) == ("echo", "Say it again.")
        result = await client.call_tool("echo", {"text": "grüß\u2028 dich\n"})
        assert result.content[0].text == "grüß\u2028 dich\n" and not result.is_error
        assert (await client.call_tool("echo", {"text": "bad"})).is_error
        many = await asyncio.gather(*(client.call_tool("echo", {"text": str(n)}) for n in range(20)))
        assert [result.content[0].text for result in many] == [str(n) for n in range(20)]


async def test_a_long_call_is_answered_by_a_stream() -> None:
    echo = Echo()
    async with served(echo, patience=0.05) as endpoint, over_http(endpoint) as client:
        call = asyncio.create_task(client.call_tool("echo", {"text": "slow"}))
        await echo.began.wait()
        await asyncio.sleep(0.2)
        echo.gate.set()
        assert (await call).content[0].text == "slow"


@pytest.mark.parametrize("over", [over_http, over_stdio])
async def test_a_call_that_the_engine_gives_up_is_cancelled(over: Any) -> None:
    echo = Echo()
    async with served(echo) as endpoint, over(endpoint) as client:
        call = asyncio.create_task(client.call_tool("echo", {"text": "slow"}))
        await echo.began.wait()
        call.cancel()
        async with asyncio.timeout(30):
            while not echo.cancelled:
                await asyncio.sleep(0.02)
        assert (await client.call_tool("echo", {"text": "still here"})).content[0].text == "still here"


BODY = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 200),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": None}, 401),
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content-Length": "99999999"}, 413),
        ({"Content-Length": "-1"}, 400),
        ({"Transfer-Encoding": "chunked"}, 411),
        ({"X": "y" * 20_000}, 431),
    ],
)
async def test_only_who_has_the_token_and_comes_from_here_is_served(change: dict[str, str | None], status: int) -> None:
    async with served(Echo()) as endpoint:
        assert (await raw(endpoint, "POST", "/mcp", change, BODY))[0] == status


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/mcp", 405), ("DELETE", "/mcp", 405), ("POST", "/", 404)]
)
async def test_there_is_one_path_and_one_method(method: str, path: str, status: int) -> None:
    async with served(Echo()) as endpoint:
        assert (await raw(endpoint, method, path, {}, BODY))[0] == status


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"nonsense", -32700),
        (b"[" * 100_000, -32700),
        (b"[]", -32600),
        (b'{"jsonrpc":"2.0","id":[],"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"resources/list"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":[]}}', -32602),
    ],
)
async def test_what_is_no_request_is_told_so(body: bytes, code: int) -> None:
    async with served(Echo()) as endpoint:
        status, answer = await raw(endpoint, "POST", "/mcp", {}, body)
        assert status == 200 and json.loads(answer)["error"]["code"] == code


async def test_an_unknown_tool_is_an_error_for_the_model() -> None:
    async with served(Echo()) as endpoint, over_http(endpoint) as client:
        result = await client.call_tool("ecko", {})
        assert result.is_error and "echo" in result.content[0].text


async def raw(
    endpoint: Endpoint, method: str, path: str, change: dict[str, str | None], body: bytes
) -> tuple[int, bytes]:
    assert endpoint.address.url is not None
    port = int(endpoint.address.url.split(":")[2].split("/")[0])
    headers: dict[str, str | None] = {
        "Host": f"127.0.0.1:{port}",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **endpoint.address.headers,
        **change,
    }
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        lines = [f"{method} {path} HTTP/1.1", *(f"{n}: {v}" for n, v in headers.items() if v is not None)]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        async with asyncio.timeout(30):
            head = await reader.readuntil(b"\r\n\r\n")
            return int(head.split()[1]), await reader.read()
    finally:
        writer.close()


async def test_the_shim_imports_next_to_nothing() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import sys, jackfield.runner.shim; print(*sys.modules)", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    names = out.decode().split()
    assert [n for n in names if n.startswith("jackfield")] == ["jackfield", "jackfield.runner", "jackfield.runner.shim"]
    assert not {"asyncio", "json", "logging", "dataclasses"} & set(names)


async def test_an_engine_of_its_own_gets_the_endpoint_and_answers_through_it(tmp_path: Path) -> None:
    """Architecture 4: the runner stays the only writer of its mailbox."""
    async with place(tmp_path, tools=("scripted",), settings={"in_process": False}) as here:
        await here.start()
        text = await told(here, 'remote send_message {"text": "from outside"}')
        assert here.texts()[0] == "from outside" and text.startswith("Message sent to")
        assert here.rows()[0].turn == here.rows()[1].turn


async def test_an_endpoint_does_without_what_its_sandbox_forbids(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(asyncio, "start_unix_server", refuse)
    async with served(Echo()) as endpoint:
        assert endpoint.address.url is not None and endpoint.address.command == ()
    monkeypatch.setattr(asyncio, "start_server", refuse)
    with pytest.raises(OSError, match="can't listen anywhere"):
        async with served(Echo()):
            pass
