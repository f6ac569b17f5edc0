"""What the host writes down about its work: JSON lines, without secrets, in a file that turns over by itself.

::

    records       from a `logging` record to the fields of a line: ids are found in what was logged
    files         the file: bounded, 0600, and never a reason for the host to stop
    reading       what `jackfield logs` does: choose lines, and follow the file over its turns
"""

from __future__ import annotations

__all__: list[str] = []
