"""From where packages come: what pip's and npm's own configuration on this machine says, without what is secret in it.

An installation runs in the group's sandbox, which sees none of those files; so what counts is read here and passed on.
Addresses with a password in them are refused: whatever runs in the sandbox could read it.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from jackfield.errors import ConfigError

__all__ = ["npm_arguments", "pip_sources", "proxies"]

_PIP_KEYS = ("index-url", "extra-index-url", "find-links", "trusted-host")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


def pip_sources(environment: Mapping[str, str], files: list[Path] | None = None) -> list[tuple[str, str]]:
    """Options of `pip install` and their values, from pip's configuration files and `PIP_...` variables.

    Raises:
        ConfigError: an address has a password.
    """
    found: dict[str, str] = {}
    for file in _pip_files(environment) if files is None else files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError, OSError):
            continue  # pip itself says what is wrong with it
        for section in ("global", "install"):
            if parser.has_section(section):
                found.update({key: parser.get(section, key) for key in _PIP_KEYS if parser.has_option(section, key)})
    for key in _PIP_KEYS:
        given = environment.get("PIP_" + key.upper().replace("-", "_"))
        if given:
            found[key] = given
    return [(key, _without_password(word, "pip")) for key, value in found.items() for word in value.split()]


def _pip_files(environment: Mapping[str, str]) -> list[Path]:
    """In the order in which later ones go before earlier ones."""
    named = environment.get("PIP_CONFIG_FILE")
    if named:
        return [] if named == os.devnull else [Path(named)]
    home = Path(environment.get("HOME", "/"))
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    return [
        Path("/etc/xdg/pip/pip.conf"),
        Path("/etc/pip.conf"),
        home / ".pip" / "pip.conf",
        config / "pip" / "pip.conf",
        Path(sys.prefix) / "pip.conf",
    ]


def npm_arguments(environment: Mapping[str, str], files: list[Path] | None = None) -> list[str]:
    """Options for `npm install`: the registry, and those of scopes, from `.npmrc` files and variables.

    Raises:
        ConfigError: an address has a password.
    """
    found: dict[str, str] = {}
    home = Path(environment.get("HOME", "/"))
    for file in [Path("/etc/npmrc"), home / ".npmrc"] if files is None else files:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        for line in text.splitlines():
            key, equals, value = (part.strip() for part in line.partition("="))
            if equals and re.fullmatch(r"(@[a-z0-9._-]+:)?registry", key):
                found[key] = value.strip("\"'")
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        if environment.get(name):
            found["registry"] = environment[name]
    return [f"--{key}={_without_password(value, 'npm')}" for key, value in found.items()]


def proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """The proxy variables.

    Raises:
        ConfigError: one has a password.
    """
    return {name: _without_password(environment[name], "the proxy") for name in _PROXIES if environment.get(name)}


def _without_password(value: str, whose: str) -> str:
    if "@" in value and "://" in value and (urlsplit(value).username or urlsplit(value).password):
        raise ConfigError(
            f"an address in the configuration of {whose} has a user or a password in it",
            fix="packages are installed in the agent's sandbox, where it could be read: use a mirror that needs none",
        )
    return value
