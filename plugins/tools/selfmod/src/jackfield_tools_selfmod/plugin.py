"""The entry point `selfmod` of `jackfield.tools`."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.api import ActionHandler, ApprovalKind, ToolSet, hookimpl

__all__ = ["INSTRUCTIONS", "register_actions", "register_approvals", "register_tools"]

INSTRUCTIONS = """\
## Changing what you have

What is missing you can ask for; a person sees exactly what you ask and decides, which may take hours. Go on with other
work or end your turn: a notice tells you what came of it.

- `install_packages`: programs and libraries of pip and npm. After the notice that they are installed, check that they
  work before you rely on them. Only ready-made packages can be had: nothing is built from source.
- `add_mcp_server`: another MCP server, whose tools you then have as `<name>__<tool>`. Give every detail; the person
  approves exactly that. Never write a secret: refer to it as `secret:NAME`, and an operator stores it under that name.
- `request_rebuild`: install all of it anew, when something that was installed is broken or missing.

Ask for no more than the task needs, once, and say why.
"""


@hookimpl
def register_tools() -> Sequence[ToolSet]:
    """The one tool set of this distribution."""
    from jackfield_tools_selfmod.tools import TOOLS

    return [ToolSet(name="selfmod", title="Packages and MCP servers", tools=TOOLS, instructions=INSTRUCTIONS)]


@hookimpl
def register_actions() -> Sequence[ActionHandler]:
    """What only the host can do for them: ask a person."""
    from jackfield_tools_selfmod.requests import ACTIONS

    return ACTIONS


@hookimpl
def register_approvals() -> Sequence[ApprovalKind]:
    """What is done once a person said yes."""
    from jackfield_tools_selfmod.requests import KINDS

    return KINDS
