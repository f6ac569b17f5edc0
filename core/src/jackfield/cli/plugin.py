"""`jackfield plugin`: what is installed, how it fares, and a second chance for what failed.

These commands import no plugin, and nothing but click and the metadata side of `jackfield.plugins`: they work with any
plugin broken, and answer at once (C181, C183).  Trying a plugin happens in a child process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from jackfield.cli.lazy import Group, json_option
from jackfield.cli.plugin_facts import Look, list_of, look, plain
from jackfield.cli.state import current, emit, say
from jackfield.errors import NotFound
from jackfield.plugins.broken import Knowledge, verdict_from_metadata
from jackfield.plugins.discovery import Found, Inventory
from jackfield.plugins.listing import PluginInfo, PluginState, survey

if TYPE_CHECKING:
    from jackfield.plugins.manifest import Manifest

__all__ = ["plugin"]

_WELL = (PluginState.READY, PluginState.UNTRIED, PluginState.LEFT_OUT)


@click.group(cls=Group)
def plugin() -> None:
    """See which plugins are installed, and mend them."""


@plugin.command("list")
@json_option
def list_plugins() -> None:
    """List the installed plugins and the state of each."""
    _, inventory, infos = _look()
    if emit(list_of(infos, inventory)):
        return
    from jackfield.cli import output

    columns = {"name": "NAME", "kind": "KIND", "state": "STATE", "from": "DISTRIBUTION", "title": "TITLE"}
    rows = [{**plain(info), "from": f"{info.distribution} {info.version}"} for info in infos]
    output.table(rows, columns, empty="No plugin is installed.", wide="title")
    for info in infos:
        if info.broken is not None:
            say()
            _print_state(info)
    _print_problems(inventory)


@plugin.command("info")
@click.argument("name")
@json_option
def show_plugin(name: str) -> None:
    """Show all that is known about a plugin, by its name or its distribution's."""
    _, inventory, infos = _look()
    chosen = _named(infos, name)
    if emit(list_of(chosen, inventory, whole=True)):
        return
    for place, info in enumerate(chosen):
        if place:
            click.echo()
        _print_info(info)


@plugin.command("doctor")
@click.argument("name", required=False)
@json_option
@click.pass_context
def examine_plugins(context: click.Context, name: str | None) -> None:
    """Try the plugins that nobody has loaded yet (with NAME: that one, in any case), and say what is wrong.

    Each is tried in a process of its own, for at most 10 s.  Ends with exit code 1 when something is wrong.
    """
    knowledge, inventory, infos = _look()
    chosen = _named(infos, name) if name is not None else infos
    waiting = [one for one in chosen if one.state is PluginState.UNTRIED or (name is not None and _can_be_tried(one))]
    _try(knowledge, [info.found for info in waiting])
    keys = {info.found.key for info in chosen}
    chosen = [info for info in survey(inventory, knowledge, safe=current().safe) if info.found.key in keys]
    wrong = [info for info in chosen if info.state not in _WELL]
    ok = not wrong and not inventory.problems
    if not emit({"ok": ok, **list_of(chosen, inventory)}):
        for info in chosen:
            if info in wrong or info.notes or name is not None:
                _print_state(info)
        _print_problems(inventory)
        if name is None:
            say("All plugins are well." if ok else f"{len(wrong)} of {len(chosen)} plugins need attention.")
    context.exit(0 if ok else 1)


@plugin.command("retry")
@click.argument("name")
@json_option
@click.pass_context
def retry_plugin(context: click.Context, name: str) -> None:
    """Forget why a plugin failed, and try it again.

    A running host takes it up again with `jackfield reload`.
    """
    knowledge, inventory, infos = _look()
    chosen = _named(infos, name)
    for info in chosen:
        knowledge.forget(info.found)
    everything = inventory.found()
    _try(knowledge, [one.found for one in chosen if verdict_from_metadata(one.found, everything) is None])
    keys = {info.found.key for info in chosen}
    chosen = [info for info in survey(inventory, knowledge, safe=current().safe) if info.found.key in keys]
    ok = all(info.state in _WELL for info in chosen)
    if not emit({"ok": ok, **list_of(chosen, inventory)}):
        for info in chosen:
            _print_state(info)
    context.exit(0 if ok else 1)


# ---- looking and trying


def _look() -> Look:
    state = current()
    return look(state.plugins_folder, safe=state.safe)


def _named(infos: Sequence[PluginInfo], name: str) -> list[PluginInfo]:
    chosen = [info for info in infos if name in (info.name, info.distribution)]
    if chosen:
        return chosen
    from difflib import get_close_matches

    names = sorted({info.name for info in infos} | {info.distribution for info in infos})
    near = get_close_matches(name, names, n=3, cutoff=0.5)
    raise NotFound(
        f"no plugin {name!r} is installed",
        fix=f"did you mean {' or '.join(near)}?" if near else "see: jackfield plugin list",
    )


def _can_be_tried(info: PluginInfo) -> bool:
    return info.state in (PluginState.READY, PluginState.UNTRIED) or (
        info.state is PluginState.BROKEN and info.broken is not None and info.broken.since > 0
    )


def _try(knowledge: Knowledge, wanted: Iterable[Found]) -> None:
    from jackfield.plugins.probe import probe

    for found in wanted:
        trial = probe(found)
        if trial.broken is not None:
            knowledge.record_broken(found, trial.broken)
        elif trial.tried:
            knowledge.record_well(found, trial.notes)


# ---- showing


def _print_state(info: PluginInfo) -> None:
    """One plugin's state in words; what a plugin says of itself is made harmless."""
    from jackfield.cli import output, printable

    said = click.style(str(info.state), fg=output.state_colour(str(info.state)))
    say(f"{printable.line(info.name)} ({info.kind}, {printable.line(info.distribution)} {info.version}): {said}")
    if info.broken is not None:
        say(f"  {info.broken.phase}: {printable.line(info.broken.reason)}")
        say(f"  fix: {printable.line(info.broken.fix)}")
    for note in info.notes:
        say(f"  note: {printable.line(note)}")


def _print_problems(inventory: Inventory) -> None:
    from jackfield.cli import printable

    for problem in inventory.problems:
        say(f"\n{printable.line(problem)}")


def _print_info(info: PluginInfo) -> None:
    from jackfield.cli import printable

    distribution = info.found.distribution
    facts = [
        ("title", info.title),
        ("entry point", info.entry or "none"),
        ("lies in", ", ".join(distribution.roots) or distribution.place),
        ("manifest", distribution.manifest_path or "none: the author should add a jackfield-plugin.toml"),
        ("installed", "editable" if distribution.editable else ""),
        *(_manifest_facts(info.manifest) if info.manifest is not None else ()),
    ]
    _print_state(info)
    for name, value in facts:
        if value:
            say(f"  {name + ':':<13}{printable.line(value)}")


def _manifest_facts(manifest: Manifest) -> list[tuple[str, str]]:
    return [
        ("about", manifest.description),
        ("plugin API", manifest.api),
        ("asks for", ", ".join(manifest.permissions)),
        *(("setting", f"{one.name} ({one.type}){' required' * one.required}: {one.help}") for one in manifest.settings),
        *(("secret", f"{one.name}: {one.help}") for one in manifest.secrets),
        *(("command", f"jackfield {one.name}: {one.help}") for one in manifest.commands),
        ("docs", manifest.docs),
    ]
