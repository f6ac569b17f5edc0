"""The root of the command tree, and the outermost place where anything may go wrong."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from jackfield import __version__
from jackfield.cli import streams
from jackfield.cli.lazy import Entry, LazyGroup, shared_options
from jackfield.cli.state import State
from jackfield.errors import PluginBroken

if TYPE_CHECKING:
    from jackfield.plugins import ManifestCommand

__all__ = ["cli", "run"]

START, AGENTS, TRAFFIC, PLUGINS = "Start here", "Agents, chats and people", "What goes on", "Plugins and the rest"

ENTRIES = {
    "init": Entry("setup:init", "Make a home with a first agent.", START),
    "chat": Entry("chat:chat", "Talk to an agent.", START),
    "up": Entry("running:up", "Run the host.", START),
    "down": Entry("running:down", "Stop the host.", START),
    "reload": Entry("running:reload", "Make the host read its configuration again.", START),
    "status": Entry("running:status", "Show how the host is.", START),
    "doctor": Entry("doctor:doctor", "Look at everything, and say how to mend what is wrong.", START),
    "config": Entry("config:config", "Check, show and change jackfield.toml.", START, ("configs",)),
    "group": Entry("group:group", "Agent groups: who answers.", AGENTS, ("groups",)),
    "channel": Entry("channel:channel", "Channels and their chats: where people write.", AGENTS, ("channels",)),
    "wire": Entry("wiring:wire", "Join a chat to an agent group.", AGENTS, ("wires", "wirings", "wiring")),
    "unwire": Entry("wiring:unwire", "Part them again.", AGENTS),
    "destination": Entry("destination:destination", "To whom an agent may write.", AGENTS, ("destinations",)),
    "owner": Entry("people:owner", "People who may do everything.", AGENTS, ("owners",)),
    "admin": Entry("people:admin", "People who may give an agent group orders.", AGENTS, ("admins",)),
    "member": Entry("people:member", "People who may talk to an agent group.", AGENTS, ("members",)),
    "user": Entry("people:user", "Everybody who was ever seen.", AGENTS, ("users",)),
    "secret": Entry("secret:secret", "Secrets, for channels and for agents.", AGENTS, ("secrets",)),
    "approval": Entry("approval:approval", "What agents may do only after a yes.", TRAFFIC, ("approvals",)),
    "session": Entry("session:session", "Conversations: list, read, stop.", TRAFFIC, ("sessions",)),
    "message": Entry("message:message", "Every message and what became of it.", TRAFFIC, ("messages",)),
    "task": Entry("task:task", "What agents do at a time of its own.", TRAFFIC, ("tasks",)),
    "activity": Entry("activity:activity", "What agents did: tools, commands, secrets.", TRAFFIC, ("activities",)),
    "usage": Entry("usage:usage", "What models were used for, and what that cost.", TRAFFIC, ("usages",)),
    "logs": Entry("logs:logs", "Show what the host wrote down about its work.", TRAFFIC),
    "backup": Entry("backup:backup", "Put the whole home into one file, while it runs.", TRAFFIC, ("backups",)),
    "restore": Entry("backup:restore", "Make a home from a backup.", TRAFFIC),
    "plugin": Entry("plugin:plugin", "Installed plugins and their health.", PLUGINS, ("plugins",)),
    "completion": Entry("completion:completion", "Tab completion for your shell.", PLUGINS),
    "help": Entry("helping:help_command", "Help on a command or a topic.", PLUGINS),
}


class Root(LazyGroup):
    """Our commands, and those that plugins bring by their manifests."""

    def added(self, ctx: click.Context) -> dict[str, str]:
        from jackfield.cli import printable

        found = {command.name: command.help for command in _plugin_commands(ctx)}
        return {name: printable.line(text) for name, text in found.items() if name not in self.entries}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "chat" and (command := self.added_command(ctx, cmd_name)) is not None:
            return command
        return super().get_command(ctx, cmd_name)

    def added_command(self, ctx: click.Context, name: str) -> click.Command | None:
        command = next((one for one in _plugin_commands(ctx) if one.name == name), None)
        if command is None:
            return None
        state = ctx.find_object(State)
        found = _import_command(command)
        if state is not None and not ctx.resilient_parsing:
            from jackfield.cli.host_access import offer

            offer(state)
            state.plugin = (command.distribution, command.name)
        return found


def _plugin_commands(ctx: click.Context) -> list[ManifestCommand]:
    from jackfield.plugins.discovery import discover
    from jackfield.plugins.listing import commands_of

    state = ctx.find_object(State) or State()
    return commands_of(discover(state.plugins_folder), safe=state.safe)


def _import_command(command: ManifestCommand) -> click.Command:
    """The command object that the manifest names.  Whatever importing it does, the program goes on (C183)."""
    module, _, path = command.target.partition(":")
    fix = f"`jackfield plugin doctor` looks into it; to do without it, uninstall {command.distribution}"
    try:
        found: object = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may raise SystemExit, or worse, while it is imported
        reason = f"{command.target}: {type(error).__name__}: {error}"
        raise PluginBroken(command.distribution, "import", reason, fix=fix) from error
    if not isinstance(found, click.Command):
        reason = f"{command.target} is {type(found).__name__}, not a click command"
        raise PluginBroken(command.distribution, "import", reason, fix=fix)
    return found


@click.command(
    cls=Root,
    entries=ENTRIES,
    sections=(START, AGENTS, TRAFFIC, PLUGINS),
    params=shared_options(hidden=False),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, message="jackfield %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Jackfield joins the chats you use to AI agents.

    New here?  `jackfield init`, then `jackfield chat`.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), color=context.color)


def run(arguments: Sequence[str]) -> int:
    """One run of the program: every end of it, expected or not, becomes an exit code."""
    streams.prepare()
    try:
        code = _complete() if "_JACKFIELD_COMPLETE" in os.environ else _run(arguments)
        if sys.stdout is not None:  # a program without a terminal may have none
            sys.stdout.flush()
    except (BrokenPipeError, streams.OutputLost) as problem:
        return streams.lost(problem)
    return code


def _complete() -> int:
    from click.shell_completion import shell_complete

    return shell_complete(cli, {"obj": State()}, "jackfield", "_JACKFIELD_COMPLETE", os.environ["_JACKFIELD_COMPLETE"])


def _run(arguments: Sequence[str]) -> int:
    state = State(json="--json" in _options(arguments))
    if os.environ.get("NO_COLOR"):
        state.color = False
    try:
        return _invoke(arguments, state)
    except (BrokenPipeError, streams.OutputLost):
        raise
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the outermost place: all of it is reported
        from jackfield.cli.failures import report_any

        return report_any(state, error)


def _invoke(arguments: Sequence[str], state: State) -> int:
    try:
        with cli.make_context("jackfield", list(arguments), obj=state) as context:
            from jackfield.cli.logging_setup import quiet_logging

            quiet_logging(state.verbose)
            if state.color is False:
                context.color = False
            result = cli.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def _options(arguments: Sequence[str]) -> list[str]:
    """The words in front of a `--`, after which nothing is an option."""
    words = list(arguments)
    return words[: words.index("--")] if "--" in words else words
