"""The entry point `messaging` of `jackfield.tools`."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.api import ToolSet, hookimpl

from jackfield_tools_messaging.tools import TOOLS

__all__ = ["INSTRUCTIONS", "register_tools"]

INSTRUCTIONS = """\
## Talking with tools

What you write as your answer is delivered when the turn ends. Use these tools for what can't wait or is no plain text:

- `send_message`: say something now, for example before long work. Don't repeat it in your answer: the same text to the
  same place is shown once in a turn.
- `send_file`: send a file from your workspace (or from the temporary folder).
- `edit_message`, `add_reaction`: change what you sent, or react to a message. Messages are named by their number: the
  `id` of a message you read, or the one that a tool returned.
- `send_card`: facts in a small table, with links.
- `ask_user_question`: put a question with a few answers to choose from and wait for the choice. Use it when you
  can't go on without the answer; a question that nobody answers in time is an error: then decide by yourself or stop.

`to` is the name of a destination; leave it out to stay in the current conversation.
"""


@hookimpl
def register_tools() -> Sequence[ToolSet]:
    """The one tool set of this distribution."""
    return [
        ToolSet(name="messaging", title="Messages, files, cards and questions", tools=TOOLS, instructions=INSTRUCTIONS)
    ]
