"""An MCP server that misbehaves in the way that its argument names.  Standard library only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

how = sys.argv[1]


def say(message: Any) -> None:
    print(json.dumps(message), flush=True)


def tool(name: Any, schema: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"} if schema is None else schema, **more}


def bomb() -> dict[str, Any]:
    """A schema whose references double twenty times."""
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for number in range(1, 21):
        inner = {"$ref": f"#/$defs/d{number - 1}"}
        definitions[f"d{number}"] = {"type": "object", "properties": {"a": inner, "b": inner}}
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/d20"}}, "$defs": definitions}


def deep() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(3000):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


def offered() -> list[Any]:
    if how == "schemas":
        loop = {"type": "object", "properties": {"me": {"$ref": "#/$defs/me"}}}
        return [
            tool("bomb", bomb()), tool("deep_enough"), tool("list", {"type": "array"}), tool("text", "no schema"),
            tool("large", {"type": "object", "description": "x" * 40_000}), tool("props", {"properties": [1]}),
            tool("loop", {"type": "object", "properties": {"me": {"$ref": "#/$defs/me"}}, "$defs": {"me": loop}}),
            tool("none", 0), {"name": "bare"}, 7, None, {}, tool(5), tool("good", description="All is well."),
        ]  # fmt: skip
    if how == "names":
        names = ["ok", "ok", "a.b/c", "with space", "x" * 65, "", "semi;colon", "ＡＢ", "new\nline", "x" * 57, "x" * 58]
        return [tool(name) for name in names]
    if how == "many":
        return [tool(f"t{number}") for number in range(5000)]
    return [tool(name) for name in ("good", "long", "binary", "silent", "die", "environment", "where")]


if how == "127":
    sys.stderr.write("no such thing\n")
    sys.exit(127)
if how == "deaf":
    time.sleep(600)
if how == "flood":
    while True:
        os.write(1, b"x" * 65536)
if how == "offspring":
    child = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    Path(sys.argv[2]).write_text(str(child.pid), encoding="utf-8")
if how == "stubborn":
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(sys.argv[2]).write_text(str(os.getpid()), encoding="utf-8")
if how == "garbage":
    print("Starting up... {not json")
    print("[1, 2]")
    print('"text"', flush=True)
if how == "endless":
    for _ in range(1000):
        print("la la la", flush=True)
if how == "chatty":
    for _ in range(3000):
        sys.stderr.write("\x1b[31mla\x00 la\n")

pages = 0
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if number is None:
        continue
    result: Any = {}
    if method == "initialize":
        version = "1999-01-01" if how == "version" else message["params"]["protocolVersion"]
        result = {
            "protocolVersion": version,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "x", "version": "1"},
        }
        if how == "asks":
            say({"jsonrpc": "2.0", "id": "p", "method": "ping"})
            say({"jsonrpc": "2.0", "id": "s", "method": "sampling/createMessage", "params": {}})
        if how == "notlist":
            result = [1]
    elif method == "tools/list":
        result = {"tools": offered()}
        if how == "nolist":
            result = {"tools": "all of them"}
        if how == "pages":
            pages += 1
            result = {"tools": [tool(f"p{pages}")], "nextCursor": "more"}
    elif method == "tools/call":
        name = message["params"]["name"]
        if name == "silent":
            continue
        if name == "die":
            os._exit(3)
        if name == "long":
            result = {"content": [{"type": "text", "text": "x" * 300_000}]}
        elif name == "binary":
            result = {
                "content": [
                    {"type": "image", "data": "AAAA", "mimeType": "image/png"}, 5, {"type": "text", "text": 5},
                    {"type": "text", "text": "half \ud800"},
                    {"type": "resource", "resource": {"uri": "x", "text": "in"}},
                ]
            }  # fmt: skip
        else:
            text = {"environment": json.dumps(dict(os.environ)), "where": f"{Path.cwd()} {os.getpid()} {os.getpgid(0)}"}
            result = {"content": [{"type": "text", "text": text.get(name, "done")}]}
    elif method == "ping" and how == "hung":
        continue
    say({"jsonrpc": "2.0", "id": number, "result": result})
if how == "stubborn":
    time.sleep(600)
