"""WhatsApp's text: the marks of `Marked`, bare links."""

from __future__ import annotations

from jackfield_channel_kit.text.dialects.marked import Marked

__all__ = ["WhatsApp"]


class WhatsApp(Marked):
    bullets = ("- ",)
