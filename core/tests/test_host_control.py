"""The control socket and a client that means no good."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from jackfield.config.home import Home
from jackfield.errors import UsageError
from jackfield.host.control import REQUESTS_AT_ONCE, Client, ControlServer
from jackfield.host.services.context import Args
from jackfield.mailbox.doorbell import short_address

LARGE = "x" * 100_000


async def _no_channel(connection: object, args: dict[str, Any]) -> Any:
    raise UsageError("there is none")


async def _until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_client_that_never_reads_is_read_from_no_further_and_others_are_answered(tmp_path: Path) -> None:
    """What one client may ask for at once is bounded, and so is what its answers take of memory."""
    begun = 0

    async def large(args: dict[str, Any]) -> str:
        nonlocal begun
        begun += 1
        return LARGE

    home = Home(tmp_path)
    server = ControlServer(home, {"large": large}.get, _no_channel)
    await server.open()
    client = Client(home)
    try:
        with short_address(home.host_sock) as address:
            reader, writer = await asyncio.open_unix_connection(address)
        count = 6 * REQUESTS_AT_ONCE
        writer.write(b"".join(b'{"id":%d,"op":"large"}\n' % number for number in range(count)))
        await _until(lambda: begun >= REQUESTS_AT_ONCE)
        await asyncio.sleep(0.2)
        assert begun < 3 * REQUESTS_AT_ONCE

        assert await client.call("large", {}) == LARGE

        answers: set[int] = set()
        buffer = b""
        async with asyncio.timeout(20):
            while len(answers) < count:  # once it reads, it is served to the end
                *lines, buffer = (buffer + await reader.read(1 << 20)).split(b"\n")
                answers.update(json.loads(line)["id"] for line in lines)
        writer.close()
    finally:
        await client.close()
        await server.close()


@pytest.mark.parametrize("value", ["\ud800", "a\udcff", "\udfff\ud800"])
def test_half_a_character_in_an_argument_is_named_before_anything_is_stored(value: str) -> None:
    """Command lines and JSON can carry text that no database takes."""
    args = Args({"chat": value})
    with pytest.raises(UsageError, match="chat holds bytes"):
        args.text("chat")
    with pytest.raises(UsageError, match="chat holds bytes"):
        args.optional_text("chat")


def test_an_empty_argument_is_refused_where_it_would_stand_for_everything() -> None:
    args = Args({"group": "", "cron": ""})
    with pytest.raises(UsageError, match="group is empty"):
        args.optional_text("group")
    assert args.optional_text("cron", empty=True) == ""
    assert args.optional_text("session") is None


def test_names_are_bounded() -> None:
    assert Args({"name": "é" * 100}).name("name") == "é" * 100
    with pytest.raises(UsageError, match="has 101 characters, more than 100"):
        Args({"name": "é" * 101}).name("name")
