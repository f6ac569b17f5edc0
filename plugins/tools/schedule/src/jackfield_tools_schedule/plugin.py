"""The entry point `schedule` of `jackfield.tools`."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.api import ActionHandler, ToolSet, hookimpl

__all__ = ["INSTRUCTIONS", "register_actions", "register_tools"]

INSTRUCTIONS = """\
## Work at a time of its own

With `schedule_task` you wake yourself later: a reminder (`at`), or something that repeats (`cron`). When it is due you
read a `<task>` with the prompt that you wrote, and answer into the conversation where it was scheduled. So write the
prompt as a message to somebody who knows nothing of today, and name what is to be said or done.

- Times without an offset are read in the time zone of the person who asked. Always tell people the local time that a
  tool returns, not one that you worked out.
- If there is nothing to do most of the time, give the task a `script`: it runs first and decides whether you are
  needed, which costs nothing.
- `list_tasks` shows this conversation's tasks; `update_task`, `pause_task`, `resume_task`, `cancel_task` take their id.
  A `<task>` that you read names its own id in `task`.
- Don't use other ways to wait or to wake yourself, like sleeping in a command.
"""


@hookimpl
def register_tools() -> Sequence[ToolSet]:
    """The one tool set of this distribution."""
    from jackfield_tools_schedule.tools import TOOLS

    return [ToolSet(name="schedule", title="Tasks at a time of their own", tools=TOOLS, instructions=INSTRUCTIONS)]


@hookimpl
def register_actions() -> Sequence[ActionHandler]:
    """What only the host can do for them."""
    from jackfield_tools_schedule.actions import actions

    return actions()
