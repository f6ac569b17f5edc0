"""Real IRC servers, and a person with a plain client.

`Ngircd` speaks the old protocol, `Inspircd` IRCv3 too.  `certificate` makes a key for TLS on 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
from collections.abc import Callable, Sequence
from pathlib import Path

from jackfield_channel_kit.testing.engines import Engine, find, free_port

__all__ = ["Inspircd", "IrcPerson", "Ngircd", "certificate"]

BOUND = 30.0
"""Seconds after which something that must come counts as hung."""


async def _answers(port: int) -> bool:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    return True


class Ngircd(Engine):
    """`port` takes plain connections, `tls_port` those with TLS when a certificate was given (a PEM with its key)."""

    def __init__(
        self, folder: Path, *, password: str = "", tls: Path | None = None, options: str = "", penalty: bool = False
    ) -> None:
        super().__init__(folder)
        self.port = 0
        self.tls_port = 0
        self._password = password
        self._tls = tls
        self._options = options
        self._penalty = penalty

    def prepare(self) -> Sequence[str]:
        self.port = free_port()
        config = [
            "[Global]", "Name = irc.example.test", "Info = test", "AdminEMail = admin@example.test",
            "Listen = 127.0.0.1", f"Ports = {self.port}", "MotdPhrase = hello",
            *([f"Password = {self._password}"] if self._password else []),
            "[Limits]", "MaxConnectionsIP = 0", "MaxNickLength = 20", "MaxJoins = 0",
            *([] if self._penalty else ["MaxPenaltyTime = 0"]),
            "[Options]", "DNS = no", "Ident = no", "PAM = no", self._options,
        ]  # fmt: skip
        if self._tls is not None:
            self.tls_port = free_port()
            config += ["[SSL]", f"Ports = {self.tls_port}", f"CertFile = {self._tls}", f"KeyFile = {self._tls}"]
        path = self.folder / "ngircd.conf"
        path.write_text("\n".join(config) + "\n", encoding="utf-8")
        return [find("ngircd"), "-n", "-f", str(path)]

    async def ready(self) -> bool:
        return await _answers(self.port)


MODULES = (
    "cap", "ircv3", "ircv3_accounttag", "ircv3_batch", "ircv3_capnotify", "ircv3_chghost", "ircv3_ctctags",
    "ircv3_echomessage", "ircv3_labeledresponse", "ircv3_msgid", "ircv3_servertime", "chanhistory", "botmode",
    "callerid", "services_account", "chghost", "sajoin", "monitor",
)  # fmt: skip


class Inspircd(Engine):
    """IRCv3: tags, message ids, echoes, labels, history on join (`MODE #x +H 50:1h`).  `oper`/`oper` is an operator."""

    def __init__(self, folder: Path, *, modules: Sequence[str] = MODULES, password: str = "") -> None:
        super().__init__(folder)
        self.port = 0
        self._modules = modules
        self._password = password

    def prepare(self) -> Sequence[str]:
        self.port = free_port()
        program = find("inspircd")
        modules = Path(program).parent.parent / "root/usr/lib/inspircd/modules"
        config = [
            f'<path configdir="{self.folder}" datadir="{self.folder}" logdir="{self.folder}"'
            f' moduledir="{modules}" runtimedir="{self.folder}">',
            '<server name="irc.example.test" description="test" network="Test" id="97K">',
            '<admin name="admin" nick="admin" email="admin@example.test">',
            f'<bind address="127.0.0.1" port="{self.port}" type="clients">',
            '<connect allow="*" timeout="60" pingfreq="120" localmax="1000" globalmax="1000" resolvehostnames="no"'
            ' useident="no" fakelag="no" commandrate="100000" threshold="1000" softsendq="10000000"'
            ' hardsendq="20000000" recvq="20000000"' + (f' password="{self._password}">' if self._password else ">"),
            '<options nouserdns="yes" prefixquit="Quit: ">',
            '<performance somaxconn="128">',
            '<log method="file" type="*" level="normal" target="inspircd.log">',
            '<class name="All" commands="*" privs="*" usermodes="*" chanmodes="*">',
            '<type name="All" classes="All">',
            '<oper name="oper" password="oper" host="*@*" type="All">',
            *(f'<module name="{name}">' for name in self._modules),
        ]
        path = self.folder / "inspircd.conf"
        path.write_text("\n".join(config) + "\n", encoding="utf-8")
        return [program, "--nofork", "--runasroot", "--nopid", "--config", str(path)]

    async def ready(self) -> bool:
        return await _answers(self.port)


class IrcPerson:
    """Somebody with a raw client: writes lines, waits for lines, answers pings."""

    def __init__(self, nick: str) -> None:
        self.nick = nick
        self.seen: list[str] = []
        """Every line that came, oldest first."""
        self._read = 0
        self._changed = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None

    async def connect(self, port: int, *, caps: str = "", password: str = "") -> None:
        """Be on the server; with `caps`, those IRCv3 capabilities."""
        reader, self._writer = await asyncio.open_connection("127.0.0.1", port, limit=1_000_000)
        self._listening = asyncio.create_task(self._listen(reader))
        if caps:
            self.line(f"CAP REQ :{caps}")
        if password:
            self.line(f"PASS {password}")
        self.line(f"NICK {self.nick}")
        self.line(f"USER {self.nick} 0 * :{self.nick}")
        if caps:
            self.line("CAP END")
        await self.until(lambda line: " 376 " in line or " 422 " in line)

    def line(self, text: str) -> None:
        """Write one line as it is."""
        self._writer.write(text.encode("utf-8", "surrogatepass") + b"\r\n")

    async def until(self, fits: Callable[[str], bool]) -> str:
        """The next line, after those seen by the last call, that fits.

        Raises:
            TimeoutError: none came.
        """
        async with asyncio.timeout(BOUND):
            while True:
                while self._read < len(self.seen):
                    self._read += 1
                    if fits(self.seen[self._read - 1]):
                        return self.seen[self._read - 1]
                self._changed.clear()
                await self._changed.wait()

    async def sync(self) -> None:
        """Wait until the server has done everything that was written before."""
        token = f"sync{len(self.seen)}"
        self.line(f"PING {token}")
        await self.until(lambda line: " PONG " in line and token in line)

    async def join(self, room: str) -> None:
        self.line(f"JOIN {room}")
        await self.until(lambda line: " 366 " in line and room.split()[0].lower() in line.lower())

    async def close(self) -> None:
        if self._listening is not None:
            self._writer.close()
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while raw := await reader.readline():
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            if line.startswith("PING "):
                self.line("PONG " + line[5:])
                continue
            self.seen.append(line)
            self._changed.set()


def certificate(folder: Path, *, name: str = "localhost") -> Path:
    """A PEM with key and self-signed certificate for `name` and 127.0.0.1, good for a day; needs `cryptography`."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    alternatives = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path
