"""What may be asked for: checked before a person is asked, and again when it is done (C176).  Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from jackfield.config.problems import may_be_secret
from jackfield.config.settings import McpSettings
from jackfield.errors import MalformedData
from jackfield.models.packages import MANAGERS, Packages, requested
from jackfield.models.runner_spec import SERVER_NAME
from jackfield.models.secret_references import secrets_named

__all__ = ["checked_packages", "checked_server", "refuse_plain_secrets"]

_LONGEST_NAME = 32
_HARMLESS = re.compile(r"|true|false|yes|no|on|off|[0-9.]{1,5}", re.IGNORECASE)


def checked_packages(values: Mapping[str, Any]) -> Packages:
    """Packages by package manager, from JSON values.

    Raises:
        MalformedData: a name is none, there are too many or none, or there is no such package manager.
    """
    unknown = sorted(set(values) - set(MANAGERS))
    if unknown:
        raise MalformedData(f"{unknown[0][:60]!r} is no package manager; there are {', '.join(MANAGERS)}")
    return requested(**values)


def checked_server(name: object, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an MCP server as `agent.toml` will hold them, from JSON values.

    Raises:
        MalformedData: the name or a setting can't be used.
    """
    if not isinstance(name, str) or len(name) > _LONGEST_NAME or re.fullmatch(SERVER_NAME, name) is None:
        raise MalformedData(
            f"{str(name)[:60]!r} can't be the name of an MCP server; allowed: up to {_LONGEST_NAME} lower-case letters "
            "and digits, with single - or _ between them"
        )
    try:
        known = McpSettings.model_validate(dict(settings))
    except ValidationError as problem:
        faults = (
            f"{'.'.join(map(str, one['loc'])) or name}: {one['msg'].removeprefix('Value error, ')}"
            for one in problem.errors(include_url=False, include_input=False)
        )
        raise MalformedData(f"these settings are none of an MCP server: {'; '.join(faults)}") from None
    table = known.model_dump(exclude_defaults=True)
    return {key: list(value) if isinstance(value, tuple) else value for key, value in table.items()}


def refuse_plain_secrets(settings: Mapping[str, Any]) -> None:
    """An agent names secrets and never says them: a card, a file and a log would keep them.

    Raises:
        MalformedData: a variable or header that is named like a secret holds a plain value.
    """
    for key, value in {**settings.get("env", {}), **settings.get("headers", {})}.items():
        secret = may_be_secret(key) or key.lower() == "authorization"
        if secret and not secrets_named([value]) and not _HARMLESS.fullmatch(value):
            raise MalformedData(
                f"{key} looks like a secret, so its value must be a reference like secret:NAME",
                fix="have an operator store it (`jackfield secret set`), then refer to it by its name",
            )
