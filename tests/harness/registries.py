"""Package registries on the loopback: a simple index of Python packages, and a registry of Node.js packages.

`tiny` is a Python package with a program `tiny-mcp`, an MCP server written with the standard library alone; `source`
exists as source only, whose set-up leaves a mark when it is run; `little` is a Node.js package with a program and a
script that leaves a mark when it is run.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["MARK", "registries"]

MARK = "a-script-ran"

_SERVER = """
import json, os, sys

def main():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = {}
        if message["method"] == "initialize":
            result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                      "serverInfo": {"name": "tiny", "version": "VERSION"}}
        elif message["method"] == "tools/list":
            result = {"tools": [{"name": "version", "inputSchema": {"type": "object"}},
                                {"name": "variable", "inputSchema": {"type": "object"}}]}
        elif message["method"] == "tools/call":
            name = message["params"]["arguments"].get("name", "")
            text = "tiny VERSION" if message["params"]["name"] == "version" else os.environ.get(name, "(none)")
            result = {"content": [{"type": "text", "text": text}]}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def _wheel(version: str) -> bytes:
    info = f"tiny-{version}.dist-info"
    files = {
        "tiny.py": _SERVER.replace("VERSION", version),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ntiny-mcp = tiny:main\n",
    }
    rows = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(text.encode())}")
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


def _tarball(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            entry.mode = 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


_PACKAGE = {
    "name": "little",
    "version": "1.0.0",
    "bin": {"little": "little.js"},
    "scripts": {"postinstall": f"touch {MARK}"},
}
_FILES = {
    "/files/tiny-1.0-py3-none-any.whl": _wheel("1.0"),
    "/files/tiny-2.0-py3-none-any.whl": _wheel("2.0"),
    "/files/source-1.0.tar.gz": _tarball(
        {
            "source-1.0/PKG-INFO": "Metadata-Version: 2.1\nName: source\nVersion: 1.0\n",
            "source-1.0/setup.py": f"open('{MARK}', 'w').close()\nfrom setuptools import setup\nsetup(name='source')\n",
        }
    ),
    "/files/little-1.0.0.tgz": _tarball(
        {
            "package/package.json": json.dumps(_PACKAGE),
            "package/little.js": "#!/usr/bin/env node\nconsole.log('little ' + process.argv[2])\n",
        }
    ),
}


class _Registry(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        base = f"http://127.0.0.1:{self.server.server_address[1]}"
        if path in _FILES:
            return self._answer(_FILES[path], "application/octet-stream")
        if path.startswith("/simple/"):
            name = path.split("/")[2]
            links = [f for f in _FILES if f.startswith(f"/files/{name}-") and not f.endswith(".tgz")]
            if links:
                page = "".join(f'<a href="{link}">{link.rsplit("/", 1)[1]}</a>\n' for link in links)
                return self._answer(f"<!DOCTYPE html><html><body>{page}</body></html>".encode(), "text/html")
        if path == "/npm/little":
            tarball = _FILES["/files/little-1.0.0.tgz"]
            integrity = "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode()
            version = {**_PACKAGE, "dist": {"tarball": f"{base}/files/little-1.0.0.tgz", "integrity": integrity}}
            found = {"name": "little", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
            return self._answer(json.dumps(found).encode(), "application/json")
        return self._answer(b"{}", "application/json", 404)

    def _answer(self, body: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # uv asks first

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@contextlib.contextmanager
def registries() -> Iterator[dict[str, str]]:
    """Variables with which pip and npm use them, and nothing else."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    base = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield {
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": f"{base}/simple/",
            "PIP_FIND_LINKS": "",
            "npm_config_registry": f"{base}/npm/",
        }
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
