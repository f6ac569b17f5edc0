"""Secrets until the vault of architecture 8 comes: from the environment, else from `<home>/secrets.toml`.

The file holds `name = "value"` lines and is read only while nobody but its owner may read it.  Values never appear in
errors.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from typing import Literal

from jackfield.config.files import one_editor, write_atomically
from jackfield.config.home import Home
from jackfield.errors import ConfigError, UsageError

__all__ = ["check_name", "find_secret", "read_secrets", "secret_source", "store_secret", "variable"]

SIZE_LIMIT = 1_048_576
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def variable(name: str) -> str:
    """The environment variable that goes before the file."""
    return "JACKFIELD_SECRET_" + name.upper().replace("-", "_")


def find_secret(home: Home, name: str) -> str | None:
    """The secret of that name, or None.

    Raises:
        ConfigError: it would have to come from the file, and that can't be used.
    """
    found = os.environ.get(variable(name))
    return found if found is not None else read_secrets(home).get(name)


def secret_source(home: Home, name: str) -> Literal["environment", "file"] | None:
    """Where the secret comes from; None when there is none.

    Raises:
        ConfigError: as `find_secret`.
    """
    if variable(name) in os.environ:
        return "environment"
    return "file" if name in read_secrets(home) else None


def read_secrets(home: Home) -> dict[str, str]:
    """What the file holds; nothing without one.

    Raises:
        ConfigError: others may read it, it belongs to somebody else, is a link, or is no table of texts.
    """
    file = home.secrets_toml
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    except OSError as problem:
        raise ConfigError(f"{file} can't be read: {problem.strerror}", fix=f"look at `ls -l {file}`") from problem
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(f"{file} is not a regular file", fix="put a text file there")
        if found.st_uid not in (0, os.geteuid()):
            raise ConfigError(
                f"{file} belongs to uid {found.st_uid}, so it is not used", fix=f"chown {os.geteuid()} {file}"
            )
        if found.st_mode & _OTHERS:
            raise ConfigError(
                f"{file} has the mode {stat.S_IMODE(found.st_mode):04o}, so others may read it; it is not used",
                fix=f"chmod 600 {file}, and replace the secrets in it if others use this machine",
            )
        data = stream.read(SIZE_LIMIT + 1)
    if len(data) > SIZE_LIMIT:
        raise ConfigError(f"{file} is larger than {SIZE_LIMIT} bytes", fix='it holds short lines: name = "value"')
    try:
        table = tomllib.loads(data.decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        # What the parser says may quote the line, and so the secret.
        raise ConfigError(f"{file} is not TOML", fix='each line is: name = "value"') from None
    wrong = [name for name, value in table.items() if not isinstance(value, str)]
    if wrong:
        raise ConfigError(f"{file}: the value of {wrong[0]!r} is no text", fix='put it in quotes: name = "value"')
    return table


def store_secret(home: Home, name: str, value: str) -> bool:
    """Put a secret into the file, made with mode 0600 when missing; comments stay.  Whether anything changed.

    Raises:
        UsageError: the name can't be one, or the value is empty.
        ConfigError: the file can't be used as it is.
    """
    import tomlkit

    check_name(name)
    if not value:
        raise UsageError(f"the secret {name!r} is empty", fix="give its value, not an empty line")
    with one_editor(home.root):
        if read_secrets(home).get(name) == value:
            return False
        file = home.secrets_toml
        text = file.read_text(encoding="utf-8-sig") if file.exists() else _HEAD
        document = tomlkit.parse(text)
        document[name] = value
        write_atomically(file, tomlkit.dumps(document).encode(), mode=0o600)
    return True


def check_name(name: str) -> str:
    """The name, when a secret can have it.

    Raises:
        UsageError: it can't.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} can't be the name of a secret", fix="use letters, digits, '_' and '-', first a letter or digit"
        )
    return name


_HEAD = """\
# Secrets, one a line: name = "value".  Only you may read this file (mode 0600), or it is not used.
# An environment variable JACKFIELD_SECRET_<NAME> goes before the line of that name.

"""
