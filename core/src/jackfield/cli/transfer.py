"""`jackfield group export` and `group import`: an agent as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from jackfield.cli.lazy import Command, json_option
from jackfield.cli.printable import line
from jackfield.cli.state import call, current, emit, say, warn
from jackfield.errors import JackfieldError

__all__ = ["export_group", "import_group"]


@click.command("export", cls=Command)
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--workspace", is_flag=True, help="With the files that the agent works on.")
@click.option("--wirings", is_flag=True, help="With the chats that it is wired to, as hints.")
@json_option
def export_group(name: str, file: Path, workspace: bool, wirings: bool) -> None:
    """Write an agent group into a file, a .tar.gz, for another home.

    Settings, instructions, memory, skills and packages go in.  Members, conversations, tasks and secrets never do.
    An archive that has the name of FILE already is replaced; nothing else is.
    """
    from jackfield.host.archive.group import export
    from jackfield.host.archive.writing import destination

    home = current().home.require()
    found = call("group.show", name=name)
    own = f"terminal:terminal:{found['folder']}"
    hints = [one for one in found["wirings"] if wirings and one["chat"] and one["chat"] != own]
    place = file.absolute()
    with destination(place) as out:
        made = export(home, found["folder"], out, workspace=workspace, wirings=hints)
    left_out = [{"path": one.path, "why": one.why} for one in made.left_out]
    tasks = len(call("task.list", group=found["folder"], limit=100_000))
    result = {"group": found["folder"], "file": str(place), "files": len(made.files), "left_out": left_out}
    if emit(result | {"tasks_left_out": tasks}):
        return
    say(f"{found['folder']} is written to {line(str(place))}: {len(made.files)} files")
    for one in left_out:
        warn(f"left out: {line(one['path'])} ({line(one['why'])})")
    if tasks:
        warn(f"left out: {tasks} tasks (they belong to chats of this home)")


@click.command("import", cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--as", "folder", metavar="FOLDER", help="The name of its folder, if not the one that it had.")
@click.option("--wire", is_flag=True, help="Wire it to the chats that the file names.")
@json_option
def import_group(file: Path, folder: str | None, wire: bool) -> None:
    """Add an agent group from a file that `group export` wrote.

    Its settings count only once you have looked at them: `jackfield group accept`.
    """
    from jackfield.host.archive.group import unpack_group

    home = current().home.require()
    done = unpack_group(
        file.absolute(),
        home,
        folder,
        register=lambda chosen, name: call("group.import", folder=chosen, name=name),
        known=lambda chosen: any(group["folder"] == chosen for group in call("group.list")),
    )
    wired, failed = _wire(done.folder, done.hints) if wire else ([], [])
    place = home.groups / done.folder
    shown = {
        "group": done.folder,
        "name": done.name,
        "path": str(place),
        "files": len(done.manifest.files),
        "accepted": False,
        "problems": list(done.problems),
        "hints": list(done.hints),
        "wired": wired,
        "not_wired": failed,
    }
    if emit(shown):
        return
    say(f"{line(done.name)} is there: {place}")
    for problem in done.problems:
        warn(line(problem))
    for chat in wired:
        say(f"wired to {line(chat)}")
    for problem in failed:
        warn(f"not wired: {line(problem)}")
    if done.hints and not wire:
        chats = ", ".join(line(str(one.get("chat"))) for one in done.hints)
        say(f"It was wired to {chats}; `jackfield wire CHAT {done.folder}` does it here.")
    say(f"Look at {place / 'agent.toml'}, then `jackfield group accept {done.folder}`: until then it does not answer.")


def _wire(folder: str, hints: tuple[dict[str, Any], ...]) -> tuple[list[str], list[str]]:
    wired, failed = [], []
    for hint in hints:
        try:
            call("wire.add", **(hint | {"group": folder}))
            wired.append(str(hint.get("chat")))
        except JackfieldError as problem:
            failed.append(f"{hint.get('chat')}: {problem.message}")
    return wired, failed
