"""Jackfield joins messaging channels to AI agents.

The rooms, from the ground up, are described in `docs/house.md`.  This module imports nothing, so that `jackfield
--version` and a runner's start cost next to nothing.
"""

__version__ = "0.1.0"

API_VERSION = (1, 2)
"""(major, minor) of what plugins build on, `jackfield.api`.  Minor: a new hook or optional argument.  Major: something
removed or changed.  1.0 freezes it.  It stands here so that listing plugins need not import the API."""
