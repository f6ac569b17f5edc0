#!/usr/bin/env bash
# Makes $VENV with uv and every package of the workspace in it, editable.  Called by make with the members' folders.
set -euo pipefail
: "${PYTHON:=python3}" "${VENV:=.venv}"

"$PYTHON" - <<'PY' || exit 1
import sys
if sys.version_info < (3, 11):
    sys.exit(f"Jackfield needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}. Set PYTHON=python3.12, say.")
PY

if [ ! -x "$VENV/bin/python" ]; then
    echo "setup: making $VENV"
    "$PYTHON" -m venv "$VENV" || {
        echo "setup: $PYTHON can't make a virtual environment; on Debian: apt-get install python3-venv" >&2
        exit 1
    }
fi
if [ ! -x "$VENV/bin/uv" ]; then
    echo "setup: installing uv"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check uv
fi

editable=()
for member in "$@"; do editable+=(-e "./$member"); done
echo "setup: installing ${#@} packages and the development tools"
"$VENV/bin/uv" pip install --quiet --compile-bytecode --python "$VENV/bin/python" --constraint constraints.txt \
    --group dev "${editable[@]}"
