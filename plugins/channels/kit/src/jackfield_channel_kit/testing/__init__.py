"""For tests of channels (extra `testing`): a platform that fails as told, and real servers as child processes.

`FakePlatform` and what it hands out load aiohttp when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jackfield_channel_kit.testing.platform import FakePlatform, Recorded, Reply

__all__ = ["FakePlatform", "Recorded", "Reply"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from jackfield_channel_kit.testing import platform

        return getattr(platform, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
