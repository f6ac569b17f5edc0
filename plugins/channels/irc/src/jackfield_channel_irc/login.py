"""Becoming somebody on the server: capabilities, password, account, nick.  Lines in, lines out, no socket."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Literal

from jackfield.errors import AuthFailed, ChannelError, RateLimited, Transient

from jackfield_channel_irc.lines import Line, shown, written
from jackfield_channel_irc.network import Network
from jackfield_channel_irc.settings import IrcSettings

__all__ = ["WANTED", "Login", "ended_by"]

WANTED = frozenset(
    {
        "message-tags", "server-time", "echo-message", "labeled-response", "batch", "account-tag", "multi-prefix",
        "chghost", "cap-notify", "chathistory", "draft/chathistory",
    }
)  # fmt: skip
"""The extensions that are used where the server has them."""

BANNED_SECONDS = 900.0
THROTTLED_SECONDS = 60.0
_BANNED = re.compile(r"\b(?:[kgzdq][- ]?lined?|banned|akill|not welcome|blacklist|dnsbl)", re.I)
_THROTTLED = re.compile(r"too fast|throttl|too many|trying to reconnect|connection limit|excess flood", re.I)
_PASSWORD = re.compile(r"password|not authori[sz]ed|authenticat|access denied", re.I)


class Login:
    """The registration of one connection; over when `done`."""

    def __init__(
        self, settings: IrcSettings, network: Network, *, password: str | None, account_password: str | None
    ) -> None:
        self._settings = settings
        self._network = network
        self._password = password
        self._account_password = account_password
        self._offered: set[str] = set()
        self._nicks = iter((*settings.alternates, *(settings.nick + "_" * count for count in range(1, 6))))
        self._logged_in = settings.sasl == "none"
        self._open: set[str] = set()
        """Requests for capabilities that are not answered."""
        self.done = False

    def __repr__(self) -> str:
        return f"<login to {self._settings.host}>"

    def begin(self) -> Iterator[bytes]:
        """What to say first."""
        yield written("CAP", "LS", "302")
        if self._password is not None:
            yield written("PASS", self._password)
        yield written("NICK", self._network.nick)
        yield written("USER", self._settings.user, "0", "*", self._settings.real_name)

    def feed(self, line: Line) -> Iterator[bytes]:
        """What to answer.

        Raises:
            AuthFailed: password, account or nick is not accepted.
            RateLimited: the server bans us, or wants us to come later.
        """
        match line.command:
            case "001":
                if not self._logged_in:
                    raise self._no_sasl()
                self.done = True
            case "CAP":
                yield from self._cap(line)
            case "AUTHENTICATE":
                yield from self._authenticate()
            case "903":
                self._logged_in = True
                yield written("CAP", "END")
            case "902" | "904" | "905" | "906" | "908":
                raise AuthFailed(
                    f"the login to the account was refused: {line.param(-1)}",
                    fix="check `account` and the secret that `account_password` names",
                )
            case "433" | "436" | "437":
                nick = next(self._nicks, None)
                if nick is None:
                    raise Transient(f"the nick {self._settings.nick} and all alternates are taken")
                self._network.nick = nick
                yield written("NICK", nick)
            case "432":
                raise AuthFailed(
                    f"the server refuses the nick {self._network.nick}: {line.param(-1)}", fix="choose another `nick`"
                )
            case "464":
                raise _wrong_password(line.param(-1))
            case "465" | "463":
                raise _banned(line.param(-1))

    def _cap(self, line: Line) -> Iterator[bytes]:
        kind = line.param(1).upper()
        names = {token.partition("=")[0] for token in line.param(-1).split()}
        if kind == "LS":
            self._offered |= names
            if line.param(2) == "*":
                return
            if not self._logged_in and "sasl" not in self._offered:
                raise self._no_sasl()
            wanted = " ".join(sorted(self._offered & WANTED))
            self._open = {request for request in (wanted, "" if self._logged_in else "sasl") if request}
            for request in sorted(self._open):
                yield written("CAP", "REQ", request)
            if not self._open:
                yield written("CAP", "END")
        elif kind in ("ACK", "NAK") and self._open:
            request = " ".join(sorted(names))
            self._open.discard(request)
            if request == "sasl":
                if kind == "NAK":
                    raise self._no_sasl()
                yield written("AUTHENTICATE", self._settings.sasl.upper())
            elif kind == "ACK":
                self._network.caps |= names
            if not self._open and self._logged_in:
                yield written("CAP", "END")

    def _authenticate(self) -> Iterator[bytes]:
        if self._settings.sasl == "external":
            yield written("AUTHENTICATE", "+")
            return
        account = self._settings.account or self._settings.nick
        secret = f"{account}\0{account}\0{self._account_password or ''}".encode()
        payload = base64.b64encode(secret).decode()
        for at in range(0, len(payload) + 1, 400):  # one of exactly 400 is followed by an empty one
            yield written("AUTHENTICATE", payload[at : at + 400] or "+")

    def _no_sasl(self) -> AuthFailed:
        return AuthFailed(f"{self._settings.host} offers no login to accounts (SASL)", fix='set sasl = "none"')


def capability_change(network: Network, line: Line) -> Iterator[bytes]:
    """What to answer when capabilities come and go while we are on the server."""
    names = {token.partition("=")[0] for token in line.param(-1).split()}
    match line.param(1).upper():
        case "NEW" if wanted := names & WANTED - network.caps:
            yield written("CAP", "REQ", " ".join(sorted(wanted)))
        case "DEL":
            network.caps -= names
        case "ACK":
            network.caps |= names


def ended_by(reason: str, stage: Literal["login", "on"]) -> ChannelError:
    """What the server's last word means: `ERROR :Closing Link: ...`."""
    reason = shown(reason)
    if _BANNED.search(reason):
        return _banned(reason)
    if _THROTTLED.search(reason):
        return RateLimited(f"the server ended it: {reason}", retry_after=THROTTLED_SECONDS, scope="account")
    if stage == "login" and _PASSWORD.search(reason):
        return _wrong_password(reason)
    return Transient(f"the server ended it: {reason}")


def _wrong_password(reason: str) -> AuthFailed:
    return AuthFailed(
        f"the server does not let us in: {reason}", fix="check the secret that `password` names, then reload"
    )


def _banned(reason: str) -> RateLimited:
    return RateLimited(
        f"the server bans us: {reason}",
        retry_after=BANNED_SECONDS,
        scope="account",
        fix="ask the network's operators",
    )
