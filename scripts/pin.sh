#!/usr/bin/env bash
# Writes constraints.txt again: the newest versions that fit together.  Run it to move on, then `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."
pins=$(.venv/bin/uv pip compile --quiet --no-header --no-emit-index-url --no-annotate --universal --python-version 3.11 \
    --group dev core/pyproject.toml plugins/*/*/pyproject.toml --extra ingress --extra mcp --extra testing)
{
    echo "# Versions that the tests were run with.  Written by scripts/pin.sh; any installer takes it as constraints."
    grep -vE '^(-e|\.|jackfield|file:)' <<<"$pins"
} >constraints.txt
