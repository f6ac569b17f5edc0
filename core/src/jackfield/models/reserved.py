"""Words that plugins can't take.  A module without imports: the list of plugins is read by it in no time."""

from __future__ import annotations

__all__ = ["AGENT_CHANNEL"]

AGENT_CHANNEL = "agent"
"""The channel type, and the instance, of addresses between agents: no channel may be called so.  There `platform_id` is
the id of an agent group, and `thread_id` that of the session that asked."""
