"""`jackfield-plugin.toml`, the file that a plugin is described by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield.errors import MalformedData
from jackfield.plugins.kinds import Kind
from jackfield.plugins.manifest import (
    MAX_BYTES,
    Manifest,
    ManifestCommand,
    ManifestSecret,
    ManifestSetting,
    from_plain,
    parse,
    read,
    to_plain,
)

FULL = """
title = "Telegram"
description = "A bot in Telegram chats."
kinds = ["channel", "extension"]
api = ">=1.0,<2"
permissions = ["net:api.telegram.org", "secret:TELEGRAM_TOKEN"]
docs = "https://example.org/telegram"
something_newer = true

[[settings]]
name = "token"
type = "secret"
help = "The name of the secret."
required = true

[[secrets]]
name = "TELEGRAM_TOKEN"
help = "From @BotFather."

[[commands]]
name = "telegram-login"
help = "Look after the bot."
target = "jackfield_channel_telegram.commands:group.login"
"""


def test_every_key_is_read_and_unknown_ones_are_left_to_newer_cores() -> None:
    assert parse(FULL) == Manifest(
        title="Telegram",
        description="A bot in Telegram chats.",
        kinds=(Kind.CHANNEL, Kind.EXTENSION),
        api=">=1.0,<2",
        permissions=("net:api.telegram.org", "secret:TELEGRAM_TOKEN"),
        docs="https://example.org/telegram",
        settings=(ManifestSetting(name="token", type="secret", help="The name of the secret.", required=True),),
        secrets=(ManifestSecret(name="TELEGRAM_TOKEN", help="From @BotFather."),),
        commands=(
            ManifestCommand(
                name="telegram-login",
                help="Look after the bot.",
                target="jackfield_channel_telegram.commands:group.login",
            ),
        ),
    )


def test_a_manifest_survives_the_cache() -> None:
    manifest = parse(FULL)
    again = from_plain(json.loads(json.dumps(to_plain(manifest))), "jackfield-channel-telegram")
    assert to_plain(again) == to_plain(manifest)
    assert again.commands[0].distribution == "jackfield-channel-telegram"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "telegram-login"', 'name = "Telegram Login"', "command 'Telegram Login'"),
        ('name = "telegram-login"', 'name = "--help"', "command '--help'"),
        (":group.login", "", "write it as module:object"),
        ("jackfield_channel_telegram.commands:", "../commands:", "write it as module:object"),
        ("required = true", "required = 1", "settings[0].required"),
        ('kinds = ["channel", "extension"]', "kinds = []", "kinds is empty"),
        ('kinds = ["channel", "extension"]', 'kinds = "channel"', "kinds"),
        ('title = "Telegram"', "", "title"),
        ("something_newer = true", '[entry_points.toaster]\nx = "y"', "entry_points.toaster is no kind"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, words: str) -> None:
    assert old in FULL
    text = FULL.replace(old, "", 1) + new if new.startswith("[entry") else FULL.replace(old, new, 1)
    with pytest.raises(MalformedData) as refused:
        parse(text)
    assert words in refused.value.message


def test_a_file_that_is_too_long_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jackfield-plugin.toml"
    with pytest.raises(MalformedData, match="can't be read"):
        read(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(MalformedData, match="not UTF-8"):
        read(path)
    path.write_text("#" * (MAX_BYTES + 1))
    with pytest.raises(MalformedData, match="longer than"):
        read(path)


@given(st.one_of(st.text(), st.text(alphabet='[]{}"=.\n#abtiles kinds')))
def test_no_text_ends_in_anything_but_a_manifest_or_a_refusal(text: str) -> None:
    try:
        assert isinstance(parse(text), Manifest)
    except MalformedData as refused:
        assert refused.message.startswith("jackfield-plugin.toml")
