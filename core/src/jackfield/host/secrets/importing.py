"""Reading secrets from files that others wrote: `.env`, and the `secrets.toml` of earlier versions.  Pure.

What is wrong is told by the number of its line, never by what stands there.
"""

from __future__ import annotations

import re
import tomllib

from jackfield.errors import ConfigError

__all__ = ["from_dotenv", "from_toml"]

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)", re.DOTALL)
_QUOTED = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|'([^']*)')\s*(?:#.*)?\Z""", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def from_dotenv(text: str) -> dict[str, str]:
    r"""`NAME=value` lines, with `export` before and comments between them; quoted values may span lines, and have
    `\n`, `\"` and the like within double quotes.  Lines without a value are left out.

    Raises:
        ConfigError: a line is none of these.
    """
    found: dict[str, str] = {}
    lines = text.removeprefix("\ufeff").splitlines()
    number = 0
    while number < len(lines):
        first = number
        line = lines[number].strip()
        number += 1
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ConfigError(f"line {first + 1} is no NAME=value", fix="mend it, or put a # in front")
        value = match[2]
        if value[:1] in ("'", '"'):
            while (quoted := _QUOTED.fullmatch(value)) is None:
                if number == len(lines):
                    raise ConfigError(f"the value that begins in line {first + 1} has no end", fix="close its quote")
                value += "\n" + lines[number]
                number += 1
            plain = quoted[2]
            value = re.sub(r"\\(.)", _unescaped, quoted[1], flags=re.DOTALL) if plain is None else plain
        else:
            value = re.sub(r"\s+#.*", "", value, flags=re.DOTALL).strip()
        if value:
            found[match[1]] = value
    return found


def _unescaped(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[1], match[1])


def from_toml(text: str) -> dict[str, str]:
    """`name = "value"` lines.

    Raises:
        ConfigError: it is no TOML, or a value is no text.
    """
    try:
        table = tomllib.loads(text.removeprefix("\ufeff"))
    except (tomllib.TOMLDecodeError, RecursionError):
        # What the parser says may quote the line, and so the secret.
        raise ConfigError("it is not TOML", fix='each line is: name = "value"') from None
    for name, value in table.items():
        if not isinstance(value, str):
            raise ConfigError(f"the value of {name!r} is no text", fix='put it in quotes: name = "value"')
    return {name: value for name, value in table.items() if value}
