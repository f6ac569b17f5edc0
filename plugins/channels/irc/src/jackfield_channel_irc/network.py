"""What the server said about itself and about us."""

from __future__ import annotations

import string

from jackfield_channel_irc.lines import Line

__all__ = ["Network"]

LINE_BYTES = 512
"""Of a whole line as others get it, its end included and tags not (RFC 1459, 2.3)."""
LEAST_ROOM = 100
"""Bytes of text that a line always gets, whatever the server claims of its lengths."""
_UPPER = {
    "ascii": string.ascii_uppercase,
    "strict-rfc1459": string.ascii_uppercase + "[]\\",
    "rfc1459": string.ascii_uppercase + "[]\\~",
}
_LOWER = {
    "ascii": string.ascii_lowercase,
    "strict-rfc1459": string.ascii_lowercase + "{}|",
    "rfc1459": string.ascii_lowercase + "{}|^",
}
_FOLDS = {name: str.maketrans(_UPPER[name], _LOWER[name]) for name in _UPPER}


class Network:
    """Names, lengths and extensions, for one connection."""

    def __init__(self, nick: str) -> None:
        self.nick = nick
        self.caps: set[str] = set()
        self._support: dict[str, str] = {}
        self._mask: str | None = None
        """Our `user@host` as others see it, once a line of ours has come back."""

    # ---- what it says

    def heard(self, line: Line) -> None:
        """Learn from any line."""
        if line.command == "001":
            self.nick = line.param(0) or self.nick
        elif line.command == "005":
            for token in line.params[1:-1]:
                name, _, value = token.partition("=")
                self._support[name] = value
        elif line.command == "396" and line.param(1):
            host = line.param(1).rpartition("@")[2]
            if self._mask is not None:
                self._mask = f"{self._mask.partition('@')[0]}@{host}"
        elif line.command == "CHGHOST" and self.is_me(line.nick):
            self._mask = f"{line.param(0)}@{line.param(1)}"
        elif self.is_me(line.nick) and "!" in line.source:
            self._mask = line.source.partition("!")[2]
            if line.command == "NICK":
                self.nick = line.param(0)

    def supports(self, token: str) -> bool:
        return token in self._support

    def number(self, token: str, default: int) -> int:
        """A number of the server's, such as a length."""
        value = self._support.get(token, "")
        return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else default

    # ---- names

    def fold(self, name: str) -> str:
        """The one spelling of a nick or channel (CASEMAPPING)."""
        return name.translate(_FOLDS.get(self._support.get("CASEMAPPING", "rfc1459"), _FOLDS["ascii"]))

    def is_me(self, nick: str) -> bool:
        return self.fold(nick) == self.fold(self.nick)

    def is_room(self, target: str) -> bool:
        """Whether it is a channel, or a part of one such as its operators (`@#dev`)."""
        bare = target.lstrip(self._support.get("STATUSMSG", "")) if target[:1] not in "#&!+" else target
        return bare[:1] in (self._support.get("CHANTYPES") or "#&") and bool(bare)

    # ---- lengths

    def room(self, target: str, command: str = "PRIVMSG") -> int:
        """Bytes of text that reach others in one line to that target: the server puts our full name before it."""
        if self._mask is not None:
            mask = len(self._mask.encode())
        else:
            mask = self.number("USERLEN", 10) + 2 + self.number("HOSTLEN", 63)
        around = len(f":{self.nick}! {command} {target} :\r\n".encode()) + mask
        return max(LEAST_ROOM, min(self.number("LINELEN", LINE_BYTES), LINE_BYTES) - around)
