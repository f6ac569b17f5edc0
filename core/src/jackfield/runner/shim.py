"""`python -m jackfield.runner.shim <socket>`: an MCP server on stdin and stdout for engines that only know those.

It passes lines to the runner's socket and back and knows nothing else.  Standard library only, and as little of it as
can be: it starts in some 30 ms.
"""

from __future__ import annotations

import os
import socket
import sys
import threading


def main(arguments: list[str]) -> int:
    """Pass lines on until one side ends."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m jackfield.runner.shim <socket>\n")
        return 2
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.connect(arguments[0])
    except OSError as problem:
        sys.stderr.write(f"jackfield shim: could not reach the runner at {arguments[0]}: {problem}\n")
        return 1
    threading.Thread(target=_pass_on, args=(line,), daemon=True).start()
    try:
        while data := line.recv(65536):
            _write(1, data)
    except OSError as problem:
        sys.stderr.write(f"jackfield shim: the connection broke: {problem}\n")
        return 1
    return 0


def _pass_on(line: socket.socket) -> None:
    try:
        while data := os.read(0, 65536):
            line.sendall(data)
        line.shutdown(socket.SHUT_RDWR)  # the engine is done: so are we
    except OSError as problem:
        sys.stderr.write(f"jackfield shim: {problem}\n")


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
