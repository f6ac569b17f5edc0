"""What `channel setup` asks for, the table that it writes, and what manifests say about it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from jackfield.api import ChannelInfo, ChannelType
from jackfield.cli.channel_form import made_secret, needs, questions, secret_keys, secret_name
from jackfield.config import Home
from jackfield.config.edit import put_channel
from jackfield.errors import Conflict, MalformedData
from jackfield.host.diagnosis.credentials import secret_names
from jackfield.plugins.manifest import Manifest, from_plain, parse, to_plain
from pydantic import BaseModel, Field, ValidationInfo, field_validator

MANIFEST = """
title = "Keyed"
kinds = ["channel"]
api = ">=1.0,<2"
setup_url = "https://console.invalid"
setup_steps = ["One.", "Two."]
setup_file = "data/app.yaml"

[[settings]]
name = "key"
type = "secret"
help = "From the manifest."
required = true
"""


class Settings(BaseModel):
    server: str = Field(description="From the model.")
    key: str = "keyed-key"
    extra: tuple[str, ...] = ()


def kind(**more: Any) -> ChannelType:
    return ChannelType(info=ChannelInfo(type="keyed", title="Keyed"), create=lambda *_: None, **more)  # type: ignore[arg-type]  # the values' types vary


def test_secrets_are_asked_for_last_and_each_setting_once_with_its_help() -> None:
    """Which secrets are needed depends on the settings."""
    found = questions(kind(settings=Settings, secrets=("key",)), parse(MANIFEST), {"extra": ["a"]})
    assert [one.key for one in found] == ["server", "extra", "key"]
    assert [one.help for one in found] == ["From the model.", "", "From the manifest."]
    assert [one.required for one in found] == [True, False, True]
    assert [one.secret for one in found] == [False, False, True]
    assert [one.default for one in found] == [None, ["a"], "keyed-key"]


class Signed(BaseModel):
    verify: str = "hmac"
    key: str = Field(default="", validate_default=True)

    @field_validator("key")
    @classmethod
    def _is_there(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("verify") != "none" and not value:
            raise ValueError("it is needed")
        return value


def test_whether_a_secret_is_needed_is_what_the_settings_say() -> None:
    signed = kind(settings=Signed, secrets=("key",))
    assert needs(signed, {}, "key") and not needs(signed, {}, "verify")
    assert not needs(signed, {"verify": "none"}, "key")
    assert not needs(signed, {"key": "there"}, "key")
    assert not needs(kind(secrets=("key",)), {}, "key")


def test_a_secret_that_both_sides_may_choose_can_be_made() -> None:
    manifest = parse(MANIFEST + 'generate = "whsec_"\n')
    assert from_plain(to_plain(manifest), "d") == manifest
    (question,) = questions(kind(), manifest, {})
    assert question.generate == "whsec_"
    one, two = made_secret("whsec_"), made_secret("whsec_")
    assert one != two and one.startswith("whsec_") and len(base64.b64decode(one[6:], validate=True)) == 24


def test_a_manifest_alone_is_enough_to_know_a_secret() -> None:
    assert secret_keys(kind(), parse(MANIFEST)) == ["key"]
    assert [one.key for one in questions(kind(), parse(MANIFEST), {})] == ["key"]
    assert questions(kind(), None, {}) == []


@pytest.mark.parametrize(
    ("instance", "present", "name"),
    [
        ("keyed", {}, "keyed-key"),
        ("work", {}, "work-key"),
        ("my_work", {}, "my-work-key"),
        ("work", {"key": "shared"}, "shared"),
        ("work", {"key": ["first", "second"]}, "first"),
    ],
)
def test_instances_side_by_side_have_secrets_of_their_own(instance: str, present: dict[str, Any], name: str) -> None:
    question = questions(kind(settings=Settings, secrets=("key",)), None, present)[-1]
    assert secret_name(question, instance, "keyed", present) == name


def test_of_a_table_of_secrets_the_names_are_known_and_nothing_is_asked() -> None:
    class Rooms(BaseModel):
        keys: dict[str, str] = {}

    found = questions(kind(settings=Rooms, secrets=("keys",)), None, {"keys": {"#a": "a-key"}})
    assert [one.secret for one in found] == [False]
    named = {"keys": {"#a": "a-key", "#b": "b-key"}, "token": "one", "old": ["two", "one"], "none": None}
    kinds = kind(settings=Rooms, secrets=("keys", "token", "old", "none", "absent"))
    assert secret_names(kinds, named) == ["a-key", "b-key", "one", "two"]


# ---- the table


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "h")
    home.create()
    home.jackfield_toml.write_text("# top\n[host]\n", encoding="utf-8")
    return home


def test_a_table_is_made_and_then_changed_with_its_comments(home: Home) -> None:
    assert put_channel(home, "keyed", "work", {"server": "a", "key": "k"}) is False
    text = home.jackfield_toml.read_text().replace('server = "a"', 'server = "a"  # ours\ncolour = "red"')
    home.jackfield_toml.write_text(text)
    assert put_channel(home, "keyed", "work", {"server": "b"}) is True
    after = home.jackfield_toml.read_text()
    assert after == text.replace('server = "a"', 'server = "b"')
    assert put_channel(home, "keyed", "work", {"server": "b"}) is True
    assert home.jackfield_toml.read_text() == after


def test_a_channel_of_another_type_is_left_alone(home: Home) -> None:
    put_channel(home, "keyed", "work", {})
    before = home.jackfield_toml.read_bytes()
    with pytest.raises(Conflict):
        put_channel(home, "other", "work", {"x": 1})
    assert home.jackfield_toml.read_bytes() == before


# ---- the manifest


def test_a_manifest_tells_the_platforms_side_of_the_set_up() -> None:
    found = parse(MANIFEST)
    assert found.setup_steps == ("One.", "Two.")
    assert from_plain(to_plain(found), "d") == found


def test_what_an_older_version_kept_of_a_manifest_is_still_read() -> None:
    old = {key: value for key, value in to_plain(parse(MANIFEST)).items() if not key.startswith("setup_")}
    assert isinstance(from_plain(old, "d"), Manifest)


@pytest.mark.parametrize("name", ["/etc/passwd", "../secrets", "a/../../b", "a//b", "./a", "a\\\\b"])
def test_a_file_outside_of_the_plugin_is_no_setup_file(name: str) -> None:
    with pytest.raises(MalformedData, match="setup_file"):
        parse(MANIFEST.replace("data/app.yaml", name))
