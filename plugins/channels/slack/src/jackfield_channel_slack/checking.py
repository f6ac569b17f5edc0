"""Whether Slack accepts the tokens, and the app may do all it needs."""

from __future__ import annotations

from jackfield.api import Health
from jackfield.errors import ChannelError

from jackfield_channel_slack.api import WebApi
from jackfield_channel_slack.manifest import scopes
from jackfield_channel_slack.settings import SlackSettings

__all__ = ["checked"]


async def checked(api: WebApi, settings: SlackSettings) -> Health:
    """Ask Slack who we are and what we may do; closes `api`."""
    try:
        me = await api.identity()
        if settings.mode == "socket":
            await api.socket_url()
    except ChannelError as problem:
        return Health(ok=False, detail=problem.message, fix=problem.fix or "see the channel's page in the docs")
    finally:
        await api.close()
    missing = sorted(scopes() - me.scopes) if me.scopes else []
    if missing:
        return Health(
            ok=False,
            detail=f"the app lacks the scopes {', '.join(missing)}",
            fix="add them under OAuth & Permissions, and install the app again",
        )
    return Health(ok=True, detail=f"in {me.team or me.team_id} as {me.user_id}")
