"""Who we are: logging in once, and the file in the instance's folder that remembers it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jackfield.api import ChannelContext
from jackfield.errors import AuthFailed, ConfigError, RateLimited, SendNotAllowed, Transient

from jackfield_channel_matrix.homeserver import CLIENT, Homeserver
from jackfield_channel_matrix.settings import MatrixSettings

if TYPE_CHECKING:
    from nio import AsyncClient

__all__ = ["Login", "LoginFile", "credential", "log_in", "try_credential"]


@dataclass(frozen=True, slots=True)
class Login:
    """What is kept.  `token` only when a password brought it; `began` is where the very first sync ended, from which
    what people write is taken; `refused` the cursor that the homeserver did not take, so that `began` counts instead;
    `pickle_key` encrypts the crypto store."""

    user_id: str = ""
    device_id: str = ""
    token: str = ""
    began: str = ""
    refused: str = ""
    pickle_key: str = ""

    def __repr__(self) -> str:
        return f"<login of {self.user_id}>"


class LoginFile:
    """`login.json` in the instance's folder, for its owner's eyes only."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "login.json"

    def read(self) -> Login:
        """What is remembered; an empty one when nothing is, or nothing that can be read."""
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            return Login(**{name: str(found[name]) for name in Login.__dataclass_fields__ if name in found})
        except (OSError, ValueError, TypeError):
            return Login()

    def write(self, login: Login) -> None:
        """Replace it, durably and at once."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(asdict(login), file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._path)


async def log_in(
    homeserver: Homeserver, client: AsyncClient, settings: MatrixSettings, secret: str, file: LoginFile
) -> Login:
    """Find out who the token belongs to, or log in by password where no token is remembered; what was found is kept.

    A remembered token that is refused is forgotten, so that the next start logs in anew.

    Raises:
        AuthFailed: token or password are not accepted.
        ChannelError: the homeserver can't be asked.
    """
    login = file.read()
    if settings.token is not None:
        client.access_token = secret
    elif login.token and login.user_id == settings.user:
        client.access_token = login.token
    else:
        login = await _by_password(homeserver, settings, secret, login)
        client.access_token = login.token
        file.write(login)
    try:
        me = await homeserver.request("GET", f"{CLIENT}/account/whoami")
    except AuthFailed:
        if settings.token is None:
            file.write(replace(login, token=""))
        raise
    user_id, device_id = str(me.get("user_id", "")), str(me.get("device_id", ""))
    if login.user_id not in ("", user_id):
        login = Login(token=login.token, pickle_key=login.pickle_key)  # another account begins anew
    login = replace(login, user_id=user_id, device_id=device_id)
    file.write(login)
    client.user_id, client.device_id = user_id, device_id
    return login


async def _by_password(homeserver: Homeserver, settings: MatrixSettings, secret: str, login: Login) -> Login:
    assert settings.user is not None
    body = {
        "type": "m.login.password",
        "identifier": {"type": "m.id.user", "user": settings.user},
        "password": secret,
        "initial_device_display_name": settings.device_name,
    }
    if login.device_id and login.user_id == settings.user:
        body["device_id"] = login.device_id
    try:
        answer = await homeserver.request("POST", f"{CLIENT}/login", body, idempotent=False)
    except (RateLimited, Transient):
        raise
    except SendNotAllowed as problem:
        raise AuthFailed(f"the homeserver does not let {settings.user} log in: {problem}") from None
    kept = login if login.user_id == settings.user else Login()
    return replace(
        kept, user_id=str(answer["user_id"]), device_id=str(answer["device_id"]), token=str(answer["access_token"])
    )


async def credential(settings: MatrixSettings, context: ChannelContext) -> str:
    """The token or the password.

    Raises:
        ConfigError: the secret is not set.
    """
    name = settings.token or settings.password
    assert name is not None
    value = await context.secret(name)
    if not value:
        raise ConfigError(f"the secret {name!r} of channel {context.instance} is not set", fix="set it, then reload")
    return value


async def try_credential(homeserver: Homeserver, client: AsyncClient, settings: MatrixSettings, secret: str) -> str:
    """Whose account it is; a session that this needs is ended again.

    Raises:
        AuthFailed: token or password are not accepted.
        ChannelError: the homeserver can't be asked.
    """
    if settings.token is not None:
        client.access_token = secret
        return str((await homeserver.request("GET", f"{CLIENT}/account/whoami")).get("user_id", ""))
    login = await _by_password(homeserver, settings, secret, Login())
    client.access_token = login.token
    await homeserver.request("POST", f"{CLIENT}/logout", {})
    return login.user_id
