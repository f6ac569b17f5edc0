"""Echoes: what came from ourselves (C226 to C232).

A memory of one channel instance, bounded, and gone with it: the core drops what the adapter marks `is_self`, and what
was sent in an earlier life is known by its sender.  Programs that answer each other without end are the core's matter.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

__all__ = ["SelfGuard"]


class SelfGuard:
    """Knows the own accounts and the last `size` messages that were sent.

    `ids` are all ids of the own account: user, bot, app.  With `marker` the account is shared with a person (a
    personal access token): then the sender proves nothing, and a message is ours when we sent it or when its text
    holds the marker, which the channel puts into what it sends, like an HTML comment (C230).
    """

    def __init__(self, ids: Iterable[str] = (), size: int = 1000, *, marker: str | None = None) -> None:
        self.ids = set(ids)
        self.marker = marker
        self._size = size
        self._sent: OrderedDict[str, None] = OrderedDict()

    def sent(self, message_id: str) -> None:
        """We sent this; call it with every id of a `SendResult`, before the event of it may arrive if that can be."""
        self._sent[message_id] = None
        self._sent.move_to_end(message_id)
        while len(self._sent) > self._size:
            self._sent.popitem(last=False)

    def is_own(self, sender_id: str | None, message_id: str | None = None, text: str | None = None) -> bool:
        """Whether the event is our own: also an edit, a reaction or a label of ours."""
        if message_id is not None and message_id in self._sent:
            return True
        if self.marker is None:
            return sender_id in self.ids
        return text is not None and self.marker in text
