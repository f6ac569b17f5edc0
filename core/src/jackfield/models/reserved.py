"""Words that plugins and people can't take.  A module without imports: the list of plugins is read by it in no time."""

from __future__ import annotations

__all__ = ["AGENT_CHANNEL", "GATEWAY_TOKEN", "RESERVED_SECRETS"]

AGENT_CHANNEL = "agent"
"""The channel type, and the instance, of addresses between agents: no channel may be called so.  There `platform_id` is
the id of an agent group, and `thread_id` that of the session that asked."""

RESERVED_SECRETS = "JACKFIELD_"
"""How the names of secrets begin that the host hands to runners itself: no secret of a person's may be called so."""

GATEWAY_TOKEN = "JACKFIELD_GATEWAY_TOKEN"
"""Under this name a runner finds, among its secrets, by what the model gateway knows its session."""
