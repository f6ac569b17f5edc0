"""Jackfield joins messaging channels to AI agents.

The rooms, from the ground up, are described in `docs/house.md`.  This module imports nothing, so that `jackfield
--version` and a runner's start cost next to nothing.
"""

__version__ = "0.1.0"
