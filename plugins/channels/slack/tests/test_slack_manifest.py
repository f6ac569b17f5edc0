"""What Slack is asked for, and what the channel needs, are the same."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from jackfield_channel_kit.testing.slack import SlackFake
from jackfield_channel_slack.manifest import command, manifest, scopes
from jackfield_channel_slack.settings import SlackSettings
from pydantic import ValidationError


def test_the_manifest_asks_for_sockets_and_for_what_is_handled() -> None:
    made = manifest()
    assert made["settings"]["socket_mode_enabled"] and "request_url" not in made["settings"]["event_subscriptions"]
    assert {"app_mention", "message.im", "reaction_added"} <= set(made["settings"]["event_subscriptions"]["bot_events"])
    assert scopes() == frozenset(SlackFake().scopes)


def test_the_command_prints_it_under_a_name_and_for_a_url() -> None:
    done = CliRunner().invoke(command, ["--name", "Andy", "--url", "https://agents.example/channels/work/"])
    made = json.loads(done.output)
    assert made["display_information"]["name"] == made["features"]["bot_user"]["display_name"] == "Andy"
    assert not made["settings"]["socket_mode_enabled"]
    urls = {made["settings"][part]["request_url"] for part in ("event_subscriptions", "interactivity")}
    assert urls == {"https://agents.example/channels/work/"}


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"bot_token": "b"}, "app_token"),
        ({"bot_token": "b", "mode": "events"}, "signing_secret"),
        ({"app_token": "a"}, "bot_token"),
        ({"bot_token": "b", "app_token": "a", "sockets": 11}, "sockets"),
        ({"bot_token": "b", "app_token": "a", "api_url": "https://user:pw@slack.com/api"}, "api_url"),
    ],
)
def test_settings_that_can_not_work_are_refused(given: dict[str, object], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        SlackSettings.model_validate(given)


def test_one_signing_secret_needs_no_list() -> None:
    settings = SlackSettings.model_validate({"bot_token": "b", "mode": "events", "signing_secret": "s"})
    assert settings.signing_secret == ("s",)
