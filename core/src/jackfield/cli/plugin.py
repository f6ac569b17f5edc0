"""`jackfield plugin`: what is installed, how it fares, and a second chance for what failed.

These commands import no plugin, and nothing but click and the metadata side of `jackfield.plugins`: they work with any
plugin broken, and answer at once (C181, C183).  Trying a plugin happens in a child process.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from jackfield.cli.lazy import Group
from jackfield.cli.state import State
from jackfield.config.home import Home
from jackfield.errors import NotFound
from jackfield.plugins.broken import Broken, Knowledge, verdict_from_metadata
from jackfield.plugins.discovery import Found, Inventory, discover
from jackfield.plugins.listing import PluginInfo, PluginState, survey

if TYPE_CHECKING:
    from jackfield.plugins.manifest import Manifest

__all__ = ["plugin"]

_WELL = (PluginState.READY, PluginState.UNTRIED, PluginState.LEFT_OUT)


@click.group(cls=Group)
def plugin() -> None:
    """See which plugins are installed, and mend them."""


@plugin.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def list_plugins(as_json: bool) -> None:
    """List the installed plugins and the state of each."""
    _, inventory, infos = _look()
    if as_json:
        _print_json({"plugins": [_plain(info) for info in infos], "problems": list(inventory.problems)})
        return
    if not infos:
        click.echo("No plugin is installed.")
    rows = [(info.name, info.kind, info.state, f"{info.distribution} {info.version}", info.title) for info in infos]
    _print_table(("NAME", "KIND", "STATE", "DISTRIBUTION", "TITLE"), rows)
    for info in infos:
        if info.broken is not None:
            click.echo(f"\n{info.name} ({info.kind}, {info.distribution}): {info.state}")
            _print_trouble(info.broken)
    _print_problems(inventory)


@plugin.command("info")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def show_plugin(name: str, as_json: bool) -> None:
    """Show all that is known about a plugin, by its name or its distribution's."""
    _, inventory, infos = _look()
    chosen = _named(infos, name)
    if as_json:
        _print_json({"plugins": [_plain(info, whole=True) for info in chosen], "problems": list(inventory.problems)})
        return
    for place, info in enumerate(chosen):
        if place:
            click.echo()
        _print_info(info)


@plugin.command("doctor")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.pass_context
def examine_plugins(context: click.Context, name: str | None, as_json: bool) -> None:
    """Try the plugins that nobody has loaded yet (with NAME: that one, in any case), and say what is wrong.

    Each is tried in a process of its own, for at most 10 s.  Ends with exit code 1 when something is wrong.
    """
    knowledge, inventory, infos = _look()
    chosen = _named(infos, name) if name is not None else infos
    waiting = [one for one in chosen if one.state is PluginState.UNTRIED or (name is not None and _can_be_tried(one))]
    _try(knowledge, [info.found for info in waiting])
    keys = {info.found.key for info in chosen}
    chosen = [info for info in survey(inventory, knowledge) if info.found.key in keys]
    wrong = [info for info in chosen if info.state not in _WELL]
    ok = not wrong and not inventory.problems
    if as_json:
        _print_json({"ok": ok, "plugins": [_plain(info) for info in chosen], "problems": list(inventory.problems)})
    else:
        for info in chosen:
            if info in wrong or info.notes or name is not None:
                click.echo(f"{info.name} ({info.kind}, {info.distribution} {info.version}): {info.state}")
                if info.broken is not None:
                    _print_trouble(info.broken)
                for note in info.notes:
                    click.echo(f"  note: {note}")
        _print_problems(inventory)
        if ok and name is None:
            click.echo(f"All {len(chosen)} plugins are well." if len(chosen) != 1 else "The one plugin is well.")
        elif name is None:
            click.echo(f"{len(wrong)} of {len(chosen)} plugins need attention.")
    context.exit(0 if ok else 1)


@plugin.command("retry")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.pass_context
def retry_plugin(context: click.Context, name: str, as_json: bool) -> None:
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
    chosen = [info for info in survey(inventory, knowledge) if info.found.key in keys]
    ok = all(info.state in _WELL for info in chosen)
    if as_json:
        _print_json({"ok": ok, "plugins": [_plain(info) for info in chosen], "problems": list(inventory.problems)})
    else:
        for info in chosen:
            click.echo(f"{info.name} ({info.kind}, {info.distribution} {info.version}): {info.state}")
            if info.broken is not None:
                _print_trouble(info.broken)
    context.exit(0 if ok else 1)


# ---- looking and trying


def _look() -> tuple[Knowledge, Inventory, list[PluginInfo]]:
    context = click.get_current_context(silent=True)
    state = context.find_object(State) if context is not None else None
    home = state.home if state is not None else Home.find()
    knowledge = Knowledge(home.plugins / "broken.json")
    inventory = discover(home.plugins)
    return knowledge, inventory, survey(inventory, knowledge)


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


def _plain(info: PluginInfo, *, whole: bool = False) -> dict[str, Any]:
    """The plugin for `--json`; every key is always there."""
    broken = info.broken
    out: dict[str, Any] = {
        "name": info.name,
        "kind": str(info.kind),
        "state": str(info.state),
        "distribution": info.distribution,
        "version": info.version,
        "title": info.title,
        "entry": info.entry,
        "problem": None if broken is None else {"phase": broken.phase, "reason": broken.reason, "fix": broken.fix},
        "notes": list(info.notes),
    }
    if whole:
        from jackfield.plugins.manifest import to_plain

        distribution = info.found.distribution
        out["place"] = distribution.place
        out["editable"] = distribution.editable
        out["directory"] = distribution.directory
        out["manifest"] = None if info.manifest is None else to_plain(info.manifest)
        out["manifest_path"] = distribution.manifest_path
    return out


def _print_json(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _print_table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    if not rows:
        return
    every = [heads, *rows]
    widths = [max(len(str(row[column])) for row in every) for column in range(len(heads))]
    for row in every:
        cells = (str(cell).ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _print_trouble(broken: Broken) -> None:
    click.echo(f"  {broken.phase}: {broken.reason}")
    click.echo(f"  what to do: {broken.fix}")


def _print_problems(inventory: Inventory) -> None:
    for problem in inventory.problems:
        click.echo(f"\n{problem}")


def _print_info(info: PluginInfo) -> None:
    distribution = info.found.distribution
    manifest = info.manifest
    click.echo(f"{info.name}  {info.title}".rstrip())
    facts = [
        ("kind", str(info.kind)),
        ("state", str(info.state)),
        ("distribution", f"{info.distribution} {info.version}{' (editable)' if distribution.editable else ''}"),
        ("entry point", info.entry or "none"),
        ("lies in", ", ".join(distribution.roots) or distribution.place),
        ("manifest", distribution.manifest_path or "none: the author should add a jackfield-plugin.toml"),
    ]
    if manifest is not None:
        facts += _manifest_facts(manifest)
    for name, value in facts:
        click.echo(f"  {name + ':':<14}{value}")
    if info.broken is not None:
        _print_trouble(info.broken)
    for note in info.notes:
        click.echo(f"  note: {note}")


def _manifest_facts(manifest: Manifest) -> list[tuple[str, str]]:
    facts = [("about", manifest.description)] if manifest.description else []
    facts.append(("plugin API", manifest.api))
    if manifest.permissions:
        facts.append(("asks for", ", ".join(manifest.permissions)))
    facts += [
        ("setting", f"{one.name} ({one.type}){' required' * one.required}  {one.help}") for one in manifest.settings
    ]
    facts += [("secret", f"{one.name}  {one.help}") for one in manifest.secrets]
    facts += [("command", f"jackfield {one.name}  {one.help}") for one in manifest.commands]
    if manifest.docs:
        facts.append(("docs", manifest.docs))
    return facts
