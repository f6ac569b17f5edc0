"""The app's manifest, which an operator gives to Slack: `jackfield slack-manifest`."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import click

__all__ = ["command", "manifest", "scopes"]


def manifest(*, name: str | None = None, url: str | None = None) -> dict[str, Any]:
    """The manifest.  With `url`, the public address of the channel's route, for the Events API instead of sockets."""
    text = files("jackfield_channel_slack").joinpath("app-manifest.json").read_text(encoding="utf-8")
    made: dict[str, Any] = json.loads(text)
    if name is not None:
        made["display_information"]["name"] = made["features"]["bot_user"]["display_name"] = name
    if url is not None:
        settings = made["settings"]
        settings["socket_mode_enabled"] = False
        settings["event_subscriptions"]["request_url"] = settings["interactivity"]["request_url"] = url
    return made


def scopes() -> frozenset[str]:
    """What the bot token must be allowed."""
    return frozenset(manifest()["oauth_config"]["scopes"]["bot"])


@click.command("slack-manifest")
@click.option("--name", metavar="NAME", help="What the bot is called in the workspace.")
@click.option("--url", metavar="URL", help="The channel's public URL, for mode = events.")
def command(name: str | None, url: str | None) -> None:
    """Print the manifest to make a Slack app from.

    Give it to https://api.slack.com/apps, "Create New App", "From a manifest".
    """
    click.echo(json.dumps(manifest(name=name, url=url), indent=2))
