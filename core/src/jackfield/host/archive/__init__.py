"""One file that holds a home or an agent group, and the way back from it.

::

    manifest      what an archive says about itself, and which names may be in one.  Pure
    stream        reading a .tar.gz that anybody may have made: links, devices, bombs and surprises are refused
    writing       making one: streamed, hashed, under its name only when it is whole
    gathering     which files of a folder belong into it, without following a link
    snapshot      consistent copies of `state.db` and of mailboxes, taken beside a running host
    repair        what a restored home must be told before a host runs on it
    swapping      putting a folder in another's place, in one step
"""

from __future__ import annotations

__all__: list[str] = []
