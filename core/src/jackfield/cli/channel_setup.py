"""`jackfield channel setup`: a channel from nothing to settings and credentials that are known to work."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jackfield.cli import output, printable
from jackfield.cli.channel_asking import ask, make_secrets
from jackfield.cli.channel_plan import Plan, take_options
from jackfield.cli.lazy import Command, json_option
from jackfield.cli.state import State, call, current, emit, run_async, say, warn
from jackfield.errors import ConfigError, Conflict, JackfieldError, UsageError

if TYPE_CHECKING:
    from jackfield.api import Health
    from jackfield.plugins.listing import PluginInfo

__all__ = ["setup"]

Json = Any
FILE_LIMIT = 65_536


@click.command(cls=Command)
@click.argument("type_name", metavar="TYPE")
@click.argument("name", required=False)
@click.option("--set", "texts", multiple=True, metavar="KEY=VALUE", help="A setting; may be given again.")
@click.option(
    "--secret", "given", multiple=True, metavar="KEY=-", help="A secret, from standard input: a line for each."
)
@click.option("--secret-env", "taken", multiple=True, metavar="KEY=VARIABLE", help="A secret, from that variable.")
@click.option("--all", "everything", is_flag=True, help="Ask for every setting, not only for what is needed.")
@click.option("--keep", is_flag=True, help="Write it also when the check fails.")
@click.option("--yes", "-y", is_flag=True, help="Ask nothing.")
@json_option
def setup(
    type_name: str,
    name: str | None,
    texts: tuple[str, ...],
    given: tuple[str, ...],
    taken: tuple[str, ...],
    everything: bool,
    keep: bool,
    yes: bool,
) -> None:
    """Set a channel up, or change one: its settings, its secrets, and a check that they work.

    TYPE is the channel plugin, NAME yours for this instance (the type's when left out).  KEY is a setting.  Nothing is
    written before the platform has taken the credentials, and no channel is started.
    """
    state = current()
    asks = not (yes or state.json) and sys.stdin.isatty()
    plan, info = _begin(state, type_name, name or type_name)
    if not state.json:
        _show_steps(info, plan)
    take_options(plan, texts, given, taken)
    if asks:
        ask(plan, everything=everything)
    make_secrets(plan)
    settings = _checked_settings(plan)
    health = run_async(_check(plan, settings))
    if not health.ok:
        _refuse_or_keep(plan, health, asks=asks, keep=keep)
    result = _write(plan, health)
    if emit(result):
        return
    done = "changed" if not result["created"] else "set up"
    say(f"channel {printable.line(plan.instance)} ({plan.type}) is {done} in {plan.home.jackfield_toml}", fg="green")
    kept = [f"{name} ({what})" for name, what in result["secrets"].items()]
    output.facts({"check": health.detail or ("well" if health.ok else "failed"), "secrets": kept or None}, indent=2)
    if plan.made:
        say("Made here, for the other side too; it is not shown again:")
        output.facts(plan.made, indent=2)
    say("It starts with the host: `jackfield up`, or `jackfield reload` while one runs.")
    say("Then write to it, and join the chat to an agent: `jackfield channel chats`, `jackfield wire CHAT GROUP`.")


def _begin(state: State, type_name: str, instance: str) -> tuple[Plan, PluginInfo | None]:
    from jackfield.config.load import load
    from jackfield.plugins import Kind
    from jackfield.plugins.registry import PluginRegistry

    home = state.home.require()
    registry = PluginRegistry(state_file=home.plugins / "broken.json", safe=state.safe, strict=state.strict)
    kind = registry.channel_type(type_name)
    info = next((one for one in registry.listing() if (one.kind, one.name) == (Kind.CHANNEL, type_name)), None)
    section = load(home, fall_back=False).channels.get(instance)
    if section is not None and section.type != type_name:
        raise Conflict(
            f"there is a channel {instance!r} of type {section.type} already", fix="choose another name for this one"
        )
    present = dict(section.settings) if section is not None else {}
    return Plan(home, instance, type_name, kind, info.manifest if info is not None else None, present), info


# ---- the platform's side


def _show_steps(info: PluginInfo | None, plan: Plan) -> None:
    manifest = plan.manifest
    if manifest is None or not (manifest.setup_url or manifest.setup_steps or manifest.setup_file or manifest.docs):
        return
    say(printable.line(manifest.title), bold=True)
    if manifest.setup_url:
        say(f"At {printable.line(manifest.setup_url)}:")
    for number, step in enumerate(manifest.setup_steps, 1):
        say(f"  {number}. {printable.line(step)}")
    text = _setup_file(info)
    if text:
        say(f"  The file to hand over there, {printable.line(manifest.setup_file)}:")
        say(printable.block(text.rstrip()))
    if manifest.docs:
        say(f"More: {printable.line(manifest.docs)}")


def _setup_file(info: PluginInfo | None) -> str:
    """The text of the manifest's `setup_file`, which lies beside it."""
    if info is None or info.manifest is None or not info.manifest.setup_file:
        return ""
    at = info.found.distribution.manifest_path
    if at is None:
        return ""
    try:
        with (Path(at).parent / info.manifest.setup_file).open("rb") as stream:
            return stream.read(FILE_LIMIT).decode("utf-8", "replace")
    except OSError as problem:
        warn(f"the plugin's {printable.line(info.manifest.setup_file)} can't be read: {problem.strerror}")
        return ""


# ---- checking and writing


def _checked_settings(plan: Plan) -> Any:
    """The plugin's own settings object.

    Raises:
        ConfigError: a value is wrong, missing or unknown.
        UsageError: a secret that the settings name is nowhere.
    """
    from jackfield.host.diagnosis.credentials import secret_names
    from jackfield.host.secrets.reading import secret_source
    from jackfield.host.settings_of import validated

    unknown = sorted(set(plan.values) - set(_known(plan)))
    if unknown and plan.kind.settings is not None:
        from jackfield.config.problems import near

        guess = near(unknown[0], _known(plan))
        raise ConfigError(
            f"{plan.type} has no setting {unknown[0]!r}",
            fix=f"did you mean {guess!r}?" if guess else f"there are: {', '.join(_known(plan))}",
        )
    try:
        settings = validated(plan.kind.settings, plan.merged, f"[channels.{plan.instance}]")
    except ConfigError as problem:
        raise ConfigError(problem.message, fix="give it with --set KEY=VALUE, a secret with --secret KEY=-") from None
    for name in secret_names(plan.kind, settings):
        if name not in plan.secrets and secret_source(plan.home, name) is None:
            raise UsageError(
                f"the secret {name!r} is missing", fix="give it with --secret KEY=- or --secret-env KEY=VARIABLE"
            )
    return settings


def _known(plan: Plan) -> list[str]:
    return list(plan.kind.settings.model_fields) if plan.kind.settings is not None else []


async def _check(plan: Plan, settings: Any) -> Health:
    import asyncio

    from jackfield.host.diagnosis.credentials import CheckContext, check_channel
    from jackfield.host.secrets.reading import find_secret

    async def secret(name: str) -> str | None:
        return plan.secrets.get(name) or await asyncio.to_thread(find_secret, plan.home, name)

    channel = plan.kind.create(plan.instance, settings)
    return await check_channel(channel, CheckContext(plan.home, plan.instance, secret=secret))


def _refuse_or_keep(plan: Plan, health: Health, *, asks: bool, keep: bool) -> None:
    """Go on after a failed check only when the operator says so.

    Raises:
        JackfieldError: nothing is written.
        click.Abort: the answer is no.
    """
    said = f"the check of {plan.instance} failed: {health.detail or 'it says no more'}"
    if keep:
        warn(printable.line(said))
        return
    if not asks:
        raise JackfieldError(said, fix=f"{health.fix or 'correct what it names'}; --keep writes it all the same")
    click.echo(printable.line(said), err=True)
    if health.fix:
        click.echo(f"fix: {printable.line(health.fix)}", err=True)
    click.confirm("Write it all the same?", abort=True, err=True)


def _write(plan: Plan, health: Health) -> dict[str, Json]:
    """Secrets first, so that a channel in the file always finds its own."""
    from jackfield.cli.channel import settings_problems
    from jackfield.config.edit import put_channel
    from jackfield.host.secrets.held import variable
    from jackfield.host.secrets.reading import stored_secret

    fresh = {name: value for name, value in plan.secrets.items() if stored_secret(plan.home, name) != value}
    if fresh:
        call("secret.import", values=fresh, kind="channel-token")
    kept = {name: "stored" if name in fresh else "unchanged" for name in plan.secrets}
    for name, value in plan.secrets.items():
        if os.environ.get(variable(name)) not in (None, value):
            warn(f"{variable(name)} is set to something else, and goes before the secret that was stored")
    changed = {key: value for key, value in plan.values.items() if plan.present.get(key) != value}
    existed = put_channel(
        plan.home,
        plan.type,
        plan.instance,
        _toml(changed),
        more_checks=lambda found: settings_problems(found, plan.instance, plan.kind),
    )
    return {
        "name": plan.instance,
        "type": plan.type,
        "created": not existed,
        "changed": sorted(changed),
        "secrets": kept,
        "made": plan.made,
        "check": {"ok": health.ok, "detail": health.detail, "fix": health.fix},
    }


def _toml(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
