"""What a program that a runner starts finds in its environment.  Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping

from jackfield.models import ExternalServer
from jackfield.models.secret_references import resolved

__all__ = ["add_packages", "server_environment"]

_BASIC = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "TZ", "NODE_PATH",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "PIP_CERT",
    "JACKFIELD_SESSION",  # whose process it is, for whoever cleans up (C099)
)  # fmt: skip


def add_packages(environment: MutableMapping[str, str], folders: Mapping[str, str]) -> None:
    """Let programs and modules of the group's packages be found, after everything that was found before: no package
    takes the place of a program that the runner or its engine starts."""
    pip, npm = folders.get("pip"), folders.get("npm")
    if pip:
        _add(environment, "PATH", f"{pip}/bin")
        _add(environment, "PYTHONPATH", pip)
    if npm:
        _add(environment, "PATH", f"{npm}/node_modules/.bin")
        _add(environment, "NODE_PATH", f"{npm}/node_modules")


def _add(environment: MutableMapping[str, str], name: str, folder: str) -> None:
    known = [one for one in environment.get(name, "").split(os.pathsep) if one and one != folder]
    environment[name] = os.pathsep.join([*known, folder])


def server_environment(
    server: ExternalServer, runner: Mapping[str, str], folders: Mapping[str, str], secrets: Mapping[str, str]
) -> dict[str, str]:
    """The whole environment of a server that is a program: the basics, the group's packages, its own variables.

    Nothing else of the runner's: what that was trusted with is not the server's (C174).

    Raises:
        NoSecret: a secret that it refers to is not among these.
    """
    found = {name: runner[name] for name in _BASIC if name in runner}
    if "pip" in folders:
        found["PYTHONPATH"] = folders["pip"]
    return {**found, **{name: resolved(value, secrets) for name, value in server.env.items()}}
