"""A real Matrix homeserver for tests: Synapse on 127.0.0.1 with SQLite, its limits raised, nobody else reached."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jackfield_channel_kit.testing.engines import Engine, find, free_port

__all__ = ["Account", "MatrixRefused", "Synapse"]

_CONFIGURATION = """\
server_name: localhost
pid_file: {folder}/homeserver.pid
signing_key_path: {folder}/signing.key
media_store_path: {folder}/media
report_stats: false
bcrypt_rounds: 4
registration_shared_secret: {secret}
macaroon_secret_key: {secret}
trusted_key_servers: []
federation_domain_whitelist: []
url_preview_enabled: false
enable_metrics: false
presence: {{enabled: false}}
caches: {{sync_response_cache_duration: 0}}
max_upload_size: 8M
listeners:
  - {{port: {port}, bind_addresses: ["127.0.0.1"], type: http, resources: [{{names: [client]}}]}}
database: {{name: sqlite3, args: {{database: {folder}/homeserver.db}}}}
log_config: {folder}/log.yaml
{limits}
"""
_LIMIT = "{per_second: 10000, burst_count: 10000}"
_LIMITS = f"""\
rc_message: {_LIMIT}
rc_registration: {_LIMIT}
rc_admin_redaction: {_LIMIT}
rc_login: {{address: {_LIMIT}, account: {_LIMIT}, failed_attempts: {_LIMIT}}}
rc_joins: {{local: {_LIMIT}, remote: {_LIMIT}}}
rc_joins_per_room: {_LIMIT}
rc_invites: {{per_room: {_LIMIT}, per_user: {_LIMIT}, per_issuer: {_LIMIT}}}
rc_room_creation: {_LIMIT}
rc_media_create: {_LIMIT}
"""
_LOG = """\
version: 1
formatters: {plain: {format: "%(levelname)s %(name)s %(message)s"}}
handlers: {console: {class: logging.StreamHandler, formatter: plain}}
root: {level: WARNING, handlers: [console]}
disable_existing_loggers: false
"""


class MatrixRefused(Exception):
    """The homeserver answered with an error: `status` and Matrix's `errcode`."""

    def __init__(self, status: int, answer: Mapping[str, Any]) -> None:
        super().__init__(f"{status} {answer}")
        self.status = status
        self.errcode = str(answer.get("errcode", ""))


@dataclass(frozen=True, slots=True)
class Account:
    """Somebody who is logged in."""

    user_id: str
    device_id: str
    token: str
    password: str


class Synapse(Engine):
    """One homeserver, `localhost` by name.  `limits` are its `rc_*` settings, as YAML."""

    def __init__(self, folder: Path, *, limits: str = _LIMITS) -> None:
        super().__init__(folder)
        self._limits = limits
        self._secret = secrets.token_hex(16)
        self._python = find("synapse", "python")
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def prepare(self) -> Sequence[str]:
        self.port = free_port()
        file = self.folder / "homeserver.yaml"
        text = _CONFIGURATION.format(folder=self.folder, secret=self._secret, port=self.port, limits=self._limits)
        file.write_text(text, encoding="utf-8")
        (self.folder / "log.yaml").write_text(_LOG, encoding="utf-8")
        command = [self._python, "-m", "synapse.app.homeserver", "-c", str(file)]
        subprocess.run([*command, "--generate-keys"], check=True, cwd=self.folder, capture_output=True)
        return command

    async def ready(self) -> bool:
        return await asyncio.to_thread(self._healthy)

    def _healthy(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
            return bool(answer.read() == b"OK")

    async def register(self, name: str, password: str = "a long password") -> Account:
        """A new user by the shared secret, logged in."""
        path = "/_synapse/admin/v1/register"
        nonce = (await self.call("GET", path))["nonce"]
        signed = "\0".join((nonce, name, password, "notadmin")).encode()
        mac = hmac.new(self._secret.encode(), signed, hashlib.sha1).hexdigest()
        body = {"nonce": nonce, "username": name, "password": password, "admin": False, "mac": mac}
        made = await self.call("POST", path, body)
        return Account(made["user_id"], made["device_id"], made["access_token"], password)

    async def call(self, method: str, path: str, body: Any = None, *, token: str = "", seconds: float = 60.0) -> Any:
        """One request as anybody; `body` is JSON.  Raises `MatrixRefused` for anything but 2xx."""
        return await asyncio.to_thread(self._call, method, path, body, token, seconds)

    def _call(self, method: str, path: str, body: Any, token: str, seconds: float) -> Any:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + urllib.parse.quote(path, safe="/?&=%:@!$.,~-_{}"), data, method=method
        )
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                got = answer.read()
        except urllib.error.HTTPError as problem:
            with problem:
                text = problem.read()
            try:
                said = json.loads(text)
            except ValueError:
                said = {}
            raise MatrixRefused(problem.code, said) from None
        return json.loads(got) if got[:1] in (b"{", b"[") else got
