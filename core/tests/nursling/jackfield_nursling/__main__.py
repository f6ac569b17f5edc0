from __future__ import annotations

import os
import sys

BORN = os.getpid()
"""The process that imported this: the runner itself, or its nursery."""


def warm() -> None:
    """Nothing to import."""


def main(arguments: list[str]) -> int:
    exec(os.environ.pop("NURSLING_SCRIPT"), {"__name__": "nursling", "born": BORN})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
