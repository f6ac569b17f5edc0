#!/usr/bin/env bash
# All static checks; runs every one and fails at the end if any did.
set -uo pipefail
bin=.venv/bin
failed=0
step() {
    echo "check: $1"
    shift
    "$@" || failed=1
}
step "ruff" $bin/ruff check .
step "ruff format" $bin/ruff format --check .
step "mypy core" $bin/mypy --strict -p jackfield
for member in plugins/*/*/src/*; do step "mypy $(basename "$member")" $bin/mypy --strict "$member"; done
step "import-linter" $bin/lint-imports --no-logo
step "docs" $bin/python scripts/docs.py --check
exit $failed
