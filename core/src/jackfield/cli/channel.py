"""`jackfield channel`: the channels of this home and the chats seen on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from jackfield.cli import channel_doctor, channel_setup, output
from jackfield.cli.lazy import Group, json_option
from jackfield.cli.printable import line
from jackfield.cli.running import reload_if_running
from jackfield.cli.state import call, current, emit, say
from jackfield.errors import UsageError

if TYPE_CHECKING:
    from jackfield.api import ChannelType
    from jackfield.config import Configuration, Problem

__all__ = ["channel"]

POLICIES = click.Choice(["strict", "request_approval", "public"])


@click.group(cls=Group)
def channel() -> None:
    """Channels: where people write."""


@channel.command("list")
@json_option
def list_channels() -> None:
    """List the configured channels and how they are."""
    found = call("channel.list")
    if emit(found):
        return
    columns = {"name": "NAME", "type": "TYPE", "enabled": "ENABLED", "state": "STATE", "detail": "DETAIL"}
    output.table(
        found, columns, empty="There is no channel.  Add one with `jackfield channel setup TYPE`.", wide="detail"
    )


@channel.command("chats")
@click.option("--instance", help="Only those of one channel.")
@json_option
def chats(instance: str | None) -> None:
    """List the chats that were seen, and who answers there."""
    found = call("channel.chats", instance=instance)
    if emit(found):
        return
    rows = [{**chat, "kind": "group" if chat.get("is_group") else "direct"} for chat in found]
    columns = {
        "id": "ID",
        "address": "ADDRESS",
        "name": "NAME",
        "kind": "KIND",
        "policy": "POLICY",
        "wired_to": "ANSWERED BY",
    }
    output.table(rows, columns, empty="No chat was seen yet.  Write to a channel, or wire one by its address.")


@channel.command("drops")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
@json_option
def drops(limit: int) -> None:
    """List what no agent took, and why: counted by chat, sender and reason; the text is not kept."""
    found = call("channel.drops", limit=limit)
    if emit(found):
        return
    rows = [
        {
            **one,
            # As other commands want to have a person named.
            "sender": f"{one['chat'].partition(':')[0]}:{one['sender']}" if one["sender"] else None,
            "last": output.ago(one.get("last_at")),
        }
        for one in found
    ]
    columns = {"chat": "CHAT", "sender": "SENDER", "reason": "REASON", "count": "COUNT", "last": "LAST"}
    output.table(rows, columns, empty="Every message found an agent.")


@channel.command("set")
@click.argument("chat")
@click.option("--policy", type=POLICIES, help="What happens to people who are not known.")
@click.option("--name", help="What the chat is called here.")
@json_option
def set_chat(chat: str, policy: str | None, name: str | None) -> None:
    """Change how a chat treats strangers, or its name.  CHAT is an id (mg_...) or an address."""
    if policy is None and name is None:
        raise UsageError("say what to change", fix="give --policy or --name")
    result = call("chat.set", chat=chat, policy=policy, name=name)
    if emit(result):
        return
    called = f", name {line(result['name'])}" if result.get("name") else ""
    say(f"{line(result['address'])}: policy {result['policy']}{called}")


@channel.command("add")
@click.argument("type_name", metavar="TYPE")
@click.argument("rest", nargs=-1, metavar="[INSTANCE] [KEY=VALUE]...")
@json_option
def add(type_name: str, rest: tuple[str, ...]) -> None:
    """Add a channel to jackfield.toml.

    INSTANCE is your name for it, the type's when left out.  The settings are checked by the plugin before anything is
    written.
    """
    from jackfield.config.edit import add_channel, values_from_texts
    from jackfield.plugins.registry import PluginRegistry

    state = current()
    home = state.home.require()
    instance, texts = _instance_and_settings(type_name, rest)
    registry = PluginRegistry(state_file=home.plugins / "broken.json", safe=state.safe, strict=state.strict)
    kind = registry.channel_type(type_name)
    values = values_from_texts(kind.settings, texts)
    add_channel(home, type_name, instance, values, more_checks=lambda found: settings_problems(found, instance, kind))
    reloaded = reload_if_running()
    result = {"name": instance, "type": type_name, "keys": sorted(values), "reloaded": reloaded is not None}
    if emit(result):
        return
    say(f"channel {instance} ({type_name}) is in {home.jackfield_toml}")
    if reloaded is None:
        say("It starts with the host: `jackfield up`.")
    say("Then write to it, and join the chat to an agent: `jackfield channel chats`, `jackfield wire CHAT GROUP`.")


def _instance_and_settings(type_name: str, rest: Sequence[str]) -> tuple[str, dict[str, str]]:
    words = list(rest)
    instance = words.pop(0) if words and "=" not in words[0] else type_name
    texts: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(f"{word!r} is not KEY=VALUE", fix="settings are written like token=NAME")
        if key in ("type", "enabled"):
            raise UsageError(f"{key} is not a setting of the channel", fix=f"leave {key} out")
        texts[key] = value
    return instance, texts


def settings_problems(found: Configuration, instance: str, kind: ChannelType) -> Sequence[Problem]:
    """What the plugin's own model says about a channel's table."""
    section = found.channels.get(instance)
    if section is None or kind.settings is None:
        return ()
    return found.settings_of(f"channels.{instance}", dict[str, Any](section.settings), kind.settings).problems


@channel.command("remove")
@click.argument("instance")
@json_option
def remove(instance: str) -> None:
    """Take a channel out of jackfield.toml.  Its chats and wirings stay known."""
    from jackfield.config.edit import remove_channel

    home = current().home.require()
    remove_channel(home, instance)
    reloaded = reload_if_running()
    if emit({"removed": instance, "reloaded": reloaded is not None}):
        return
    say(f"channel {instance} is out of {home.jackfield_toml}")


channel.add_command(channel_doctor.doctor, "doctor")
channel.add_command(channel_setup.setup, "setup")
