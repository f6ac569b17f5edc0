"""`jackfield backup` and `jackfield restore`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from jackfield.cli import output
from jackfield.cli.lazy import Command, json_option
from jackfield.cli.printable import line
from jackfield.cli.state import current, emit, run_async, say, warn
from jackfield.config.home import Home
from jackfield.errors import UsageError
from jackfield.host.archive.home import Progress

if TYPE_CHECKING:
    from jackfield.host.archive.home import Restored
    from jackfield.host.archive.manifest import Manifest

__all__ = ["backup", "restore"]

_SHOWN = 10


class _Shown(Progress):
    """One line on a terminal, written over and over; nothing elsewhere."""

    def __init__(self) -> None:
        self._what = ""
        self._bytes = 0
        self._last = 0.0
        self._on = sys.stderr.isatty() and not current().json

    def step(self, what: str) -> None:
        self._what = what
        self._draw()

    def moved(self, count: int) -> None:
        self._bytes += count
        self._draw()

    def end(self) -> None:
        if self._on and self._last:
            click.echo("\r\x1b[K", nl=False, err=True)

    def _draw(self) -> None:
        now = time.monotonic()
        if self._on and now - self._last >= 0.1:
            self._last = now
            click.echo(f"\r\x1b[K{self._what}  {_size(self._bytes)}", nl=False, err=True)


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    shown = _Shown()
    try:
        yield shown
    finally:
        shown.end()


@click.command(cls=Command)
@click.argument("file", required=False)
@click.option("--no-sessions", is_flag=True, help="Leave conversations out; restored agents begin new ones.")
@click.option("--without-key", is_flag=True, help="Leave master.key out: without it nobody can read the secrets.")
@json_option
def backup(file: str | None, no_sessions: bool, without_key: bool) -> None:
    """Put the whole home into one file, a .tar.gz, also while a host runs on it.

    FILE is backups/jackfield-TIME.tar.gz in the home when left out, and standard output for "-".  It has its name only
    when it is whole; an archive that has the name already is replaced then, and nothing else is.  It holds what people
    wrote, and the key of the secrets unless --without-key: keep it as safe as the home.
    """
    from jackfield.host.archive.home import back_up
    from jackfield.host.archive.writing import destination

    home = current().home.require()
    to_pipe = file == "-"
    if to_pipe and current().json:
        raise UsageError("the archive and the JSON can't both go to standard output", fix="name a file for the archive")
    if to_pipe and sys.stdout.isatty():
        raise UsageError("an archive is nothing for a terminal", fix="send it on: `jackfield backup - | ...`")
    place = Path(file).absolute() if file and not to_pipe else home.backups / _file_name()
    home.backups.mkdir(mode=0o700, exist_ok=True)
    opened = _pipe() if to_pipe else destination(place)
    with opened as out, _progress() as progress:
        made = run_async(back_up(home, out, key=not without_key, conversations=not no_sessions, progress=progress))
    _tell_backup(made, place, to_pipe)


@contextlib.contextmanager
def _pipe() -> Iterator[BinaryIO]:
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


def _file_name() -> str:
    return time.strftime("jackfield-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime())


def _tell_backup(made: Manifest, place: Path, to_pipe: bool) -> None:
    notes = [str(note) for note in made.details.get("notes", ())]
    if not to_pipe:
        shown = {
            "file": str(place),
            "bytes": place.stat().st_size,
            "files": len(made.files),
            "unpacked": made.size,
            "conversations": made.details.get("conversations", 0),
            "open_sends": made.details.get("open_sends", {}),
            "key": made.secrets,
            "left_out": [{"path": one.path, "why": one.why} for one in made.left_out],
            "notes": notes,
        }
        if emit(shown):
            return
    told = f"{len(made.files)} files, {_size(made.size)} unpacked, {made.details.get('conversations', 0)} conversations"
    click.echo(
        ("the backup is written" if to_pipe else f"{place} ({_size(place.stat().st_size)})") + f": {told}", err=to_pipe
    )
    for note in notes:
        warn(line(note))
    for one in made.left_out[:_SHOWN]:
        warn(f"left out: {line(one.path)} ({line(one.why)})")
    if len(made.left_out) > _SHOWN:
        warn(f"left out: {len(made.left_out) - _SHOWN} more; MANIFEST.json in the archive lists all of them")
    if made.secrets:
        warn("master.key is in it: whoever has the file can read every secret; --without-key leaves it out")
    elif made.details.get("key") != "none":
        warn("master.key is not in it: keep a copy elsewhere, or the secrets in the backup are lost with the home")


@click.command(cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--into", metavar="HOME", help="Where the home shall lie, if not at the usual place.")
@click.option("--force", is_flag=True, help="Where a home lies already: move it aside, and say where to.")
@click.option("--dry-run", is_flag=True, help="Only check the archive and say what is in it.")
@json_option
def restore(file: Path, into: str | None, force: bool, dry_run: bool) -> None:
    """Make a home from a backup.

    The whole archive is checked before anything is touched, and the home appears in one step.  Messages that were on
    their way when the backup was made count as maybe sent: their channel's rule decides whether they are sent again.
    """
    from jackfield.host.archive.home import restore as restore_home

    home = Home.find(into) if into else current().home
    with _progress() as progress:
        done = restore_home(file.absolute(), home, force=force, dry_run=dry_run, progress=progress)
    _tell_restore(done, dry_run)


def _tell_restore(done: Restored, dry_run: bool) -> None:
    manifest, repaired = done.manifest, done.repaired
    shown: dict[str, object] = {
        "home": str(done.home),
        "restored": not dry_run,
        "made_at": manifest.made_at,
        "made_by": manifest.app,
        "files": len(manifest.files),
        "bytes": manifest.size,
        "key": manifest.secrets,
        "aside": str(done.aside) if done.aside else None,
    }
    if repaired is not None:
        shown |= {
            "conversations": repaired.sessions,
            "open_messages": repaired.open_messages,
            "maybe_sent": repaired.maybe_sent,
            "lost_outboxes": repaired.fresh_outboxes,
            "key_fits": None if done.key == "none" else done.key == "fits",
        }
    if emit(shown):
        return
    if repaired is None:
        age = output.ago(manifest.made_at)
        say(f"the archive is sound: {len(manifest.files)} files, {_size(manifest.size)}, made {age}")
        return
    say(f"{line(str(done.home))} is restored, as it was {output.ago(manifest.made_at)}", fg="green")
    output.facts(
        {"conversations": repaired.sessions, "the old home": str(done.aside) if done.aside else None}, indent=2
    )
    if repaired.open_messages:
        say(f"{repaired.open_messages} messages had no answer yet; they get one, even if the old home gave one since.")
    if repaired.maybe_sent:
        say(f"{repaired.maybe_sent} messages were on their way and count as maybe sent; see `jackfield message list`.")
    if repaired.fresh_outboxes:
        warn(f"{repaired.fresh_outboxes} conversations lost what their agents had written and nobody had read yet")
    if done.key in ("missing", "other"):
        what = "is not in the backup" if done.key == "missing" else "of the backup does not fit its secrets"
        where = f"a copy from {done.aside}" if done.aside else "the copy that you keep elsewhere"
        warn(f"master.key {what}: put {where} into the home before `jackfield up`")


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024  # type: ignore[assignment]  # whole bytes become parts of a unit
    return f"{count:.1f} GiB"
