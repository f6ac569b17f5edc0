"""The entry point `agents` of `jackfield.tools`."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.api import ActionHandler, ToolSet, hookimpl

__all__ = ["INSTRUCTIONS", "register_actions", "register_tools"]

INSTRUCTIONS = """\
## Other agents

`list_agents` names the agents that you can write to, by `<message to="name">` or `send_message`. Each has a mind and a
workspace of its own and knows nothing of this conversation: write all that it needs to know, and send files along.

- What it answers comes back into this conversation as a message from it, usually in a later turn. So end your turn once
  you have asked; don't wait for it.
- When another agent asks you, what you answer goes back to it. Answer once, with the result. Don't thank, confirm or
  say goodbye: every message wakes somebody, and their number is limited.
- `create_agent` makes a new agent for lasting work of its own kind. A person may have to allow it; you are told when it
  is there. Don't create one for a single question.
"""


@hookimpl
def register_tools() -> Sequence[ToolSet]:
    """The one tool set of this distribution."""
    from jackfield_tools_agents.tools import TOOLS

    return [ToolSet(name="agents", title="Other agents", tools=TOOLS, instructions=INSTRUCTIONS)]


@hookimpl
def register_actions() -> Sequence[ActionHandler]:
    """What only the host can do for them."""
    from jackfield_tools_agents.actions import actions

    return actions()
