"""The system prompt of a group's agent, for `jackfield group prompt`."""

from __future__ import annotations

from typing import Any

from jackfield.errors import UsageError
from jackfield.host.enabled import load_plugins
from jackfield.host.prompts import layers_of
from jackfield.host.services.context import Args, ServiceContext, operation
from jackfield.host.unrecorded import made_up_session
from jackfield.models.prompt_layers import joined
from jackfield.store import sessions

__all__: list[str] = []


@operation("group.prompt")
async def group_prompt(context: ServiceContext, args: Args) -> dict[str, Any]:
    """What a conversation of the group would begin with now, layer by layer, with sizes; of a session, or the newest.

    Without a running host nothing is known of what channels can do.
    """
    hub = context.hub
    group = await context.group(args.text("name"))
    wanted = args.optional_text("session")
    if wanted is not None:
        session = await context.session(wanted)
        if session.agent_group_id != group.id:
            raise UsageError(f"session {session.id} is not one of {group.folder}")
    else:
        newest = await hub.store.read(sessions.sessions, agent_group_id=group.id, limit=1)
        session = newest[0] if newest else made_up_session(group, "prompt", hub.clock.now())
    if context.live is None:
        await load_plugins(hub)
    channels = context.live.channels if context.live is not None else None
    layers = await layers_of(hub, channels, session, group, hub.agent_settings(group))
    return {
        "group": group.folder,
        "session": session.id if wanted is not None else None,
        "channels_known": channels is not None,
        "layers": [
            {"name": layer.name, "bytes": layer.size, "tokens": layer.tokens, "text": layer.text} for layer in layers
        ],
        "bytes": len(joined(layers).encode("utf-8", "replace")),
        "tokens": sum(layer.tokens for layer in layers),
    }
