"""Every exception that Jackfield raises on purpose, and the exit code that each one ends a command with.

::

    JackfieldError                        anything below; `except JackfieldError` catches all of it
    ├── OperatorError                     somebody who runs Jackfield can mend it
    │   ├── ConfigError                   a file or an option says something we can't use
    │   ├── UsageError                    a command was called in a way that can't work
    │   ├── NotFound                      the named thing is not there
    │   ├── Conflict                      it exists already, or somebody else holds it
    │   │   └── HostRunning               another host owns this home
    │   ├── NotAllowed                    the rules say no
    │   ├── NotInitialised                there is no home here yet
    │   ├── NoHost                        the command needs a running host
    │   ├── VerificationFailed            a checksum, signature or digest differs
    │   ├── StoreNewer                    the database was written by a newer version
    │   ├── SecretsLocked                 the master key is not the one that the stored secrets need
    │   ├── RolledBack                    it failed on the way, and all is as it was
    │   └── NotRolledBack                 it failed on the way, and somebody must put things right
    ├── PluginError                       a plugin's author can mend it
    │   ├── PluginBroken                  it can't be loaded; carries phase, reason and fix
    │   ├── HookMisuse                    it implements a hook that does not exist, or with other arguments
    │   └── HookFailed                    its hook raised or took too long
    ├── MalformedData                     data that came over a wall has another shape than agreed
    │   └── UnsafePath                    a name that would leave its folder, or a link where none may be
    ├── StoreError                        `state.db` could not be read or written
    │   └── StoreFull                     no space is left for it                        (works again when there is)
    ├── MailboxError                      a session's mailbox can't be used now
    │   ├── MailboxBlocked                the other side holds a lock too long
    │   ├── MailboxDamaged                a file is no database, or not ours
    │   ├── MailboxFormat                 written in a format that this version doesn't read
    │   ├── MailboxFull                   the disk is full, or refuses to be written
    │   └── RecoveryNeeded                a hot journal of a dead runner must be rolled back first
    ├── ChannelError                      a platform said no, or said nothing
    │   ├── RateLimited                   try again after `retry_after` seconds           (retried)
    │   ├── Transient                     it may work in a moment                         (retried)
    │   ├── Ambiguous                     the request left; nobody knows what came of it  (resent at most once)
    │   ├── AuthFailed                    the credentials are not accepted                (stops the channel)
    │   ├── SendNotAllowed                the platform forbids this send                  (final)
    │   ├── ChatNotFound                  no such chat or message                         (final)
    │   ├── Migrated                      the chat has a new id
    │   ├── TooLarge                      over the platform's limit                       (final)
    │   ├── BadContent                    the platform refused the markup                 (sent plain once)
    │   ├── WindowClosed                  the platform's reply window has passed          (final)
    │   ├── NobodyListening               no reader is attached to this chat              (waits)
    │   └── Unsupported                   the channel can't do that at all                (final)
    ├── ProviderError                     the model or its engine failed; see its fields for what to do
    └── RuntimeFailed                     a runner could not be started, found or stopped

Exit codes are the ones of architecture section 2.  A class names its own; a subclass inherits it.
"""

from __future__ import annotations

from typing import ClassVar, Literal

__all__ = [
    "EXIT_CODES",
    "Ambiguous",
    "AuthFailed",
    "BadContent",
    "ChannelError",
    "ChatNotFound",
    "ConfigError",
    "Conflict",
    "HookFailed",
    "HookMisuse",
    "HostRunning",
    "JackfieldError",
    "MailboxBlocked",
    "MailboxDamaged",
    "MailboxError",
    "MailboxFormat",
    "MailboxFull",
    "MalformedData",
    "Migrated",
    "NoHost",
    "NobodyListening",
    "NotAllowed",
    "NotFound",
    "NotInitialised",
    "NotRolledBack",
    "OperatorError",
    "PluginBroken",
    "PluginError",
    "ProviderError",
    "ProviderErrorKind",
    "ProviderScope",
    "RateLimited",
    "RecoveryNeeded",
    "RolledBack",
    "RuntimeFailed",
    "SecretsLocked",
    "SendNotAllowed",
    "StoreError",
    "StoreFull",
    "StoreNewer",
    "TooLarge",
    "Transient",
    "UnsafePath",
    "Unsupported",
    "UsageError",
    "VerificationFailed",
    "WindowClosed",
]

EXIT_CODES: dict[int, str] = {
    0: "done",
    1: "failed or refused",
    2: "usage",
    3: "not found",
    4: "conflict",
    5: "failed and rolled back",
    6: "failed and not rolled back",
    7: "verification failed",
    8: "network",
    77: "not allowed",
}
"""The whole table; `jackfield help exit-codes` prints it."""


class JackfieldError(Exception):
    """The root.  `fix` is one line that tells what to do; it is shown under the message."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    @property
    def code(self) -> str:
        """The stable machine name of this error, for `--json` and the control socket: the class's name."""
        return type(self).__name__


class OperatorError(JackfieldError):
    """Somebody who runs Jackfield can mend it; the message says how."""


class ConfigError(OperatorError):
    """A configuration file or option can't be used.  Names file, line, key and the allowed values."""

    exit_code = 2


class UsageError(OperatorError):
    """A command was called in a way that can't work."""

    exit_code = 2


class NotFound(OperatorError):
    """The named thing does not exist; near names are offered in `fix`."""

    exit_code = 3


class Conflict(OperatorError):
    """It exists already, or its state does not allow this."""

    exit_code = 4


class HostRunning(Conflict):
    """Another host owns this home.  `pid` is the first one's process id, 0 when unknown."""

    def __init__(self, message: str, *, pid: int = 0, fix: str | None = None) -> None:
        super().__init__(message, fix=fix)
        self.pid = pid


class NotAllowed(OperatorError):
    """The access rules say no."""

    exit_code = 77


class NotInitialised(OperatorError):
    """There is no Jackfield home at the given place."""

    exit_code = 3


class NoHost(OperatorError):
    """The command needs a running host and none answers."""


class VerificationFailed(OperatorError):
    """A checksum, signature or digest is not the expected one."""

    exit_code = 7


class StoreNewer(OperatorError):
    """`state.db` was written by a newer version; nothing was touched (C202)."""


class SecretsLocked(OperatorError):
    """`master.key` is missing, can't be used, or is not the one that the stored secrets need.  Nothing was changed."""


class RolledBack(OperatorError):
    """A change of several steps failed on the way; everything is as it was before."""

    exit_code = 5


class NotRolledBack(OperatorError):
    """A change of several steps failed on the way and could not be undone; the message says what lies where."""

    exit_code = 6


class PluginError(JackfieldError):
    """A plugin's author can mend it.  Always names the distribution."""


class PluginBroken(PluginError):
    """A plugin can't be loaded.  `phase` is where it failed, `reason` why, `fix` what to do (C179)."""

    def __init__(self, plugin: str, phase: str, reason: str, *, fix: str | None = None) -> None:
        super().__init__(f"plugin {plugin}: {phase} failed: {reason}", fix=fix)
        self.plugin = plugin
        self.phase = phase
        self.reason = reason


class HookMisuse(PluginError):
    """A plugin implements a hook that does not exist, or asks for arguments that the hook doesn't have."""


class HookFailed(PluginError):
    """A plugin's hook raised or took longer than its bound (C187)."""

    def __init__(self, plugin: str, hook: str, reason: str) -> None:
        super().__init__(f"plugin {plugin}: hook {hook}: {reason}")
        self.plugin = plugin
        self.hook = hook
        self.reason = reason


class MalformedData(JackfieldError):
    """Data from over a wall (file, mailbox, socket) has another shape than agreed."""


class UnsafePath(MalformedData):
    """A name that is no plain file name, leaves its folder, or is a link where none may be."""


class StoreError(JackfieldError):
    """`state.db` could not be read or written; nothing of the unit of work that met it was stored."""


class StoreFull(StoreError):
    """No space is left for `state.db`; nothing was lost, and it works again when there is space (C213)."""


class MailboxError(JackfieldError):
    """A session's mailbox can't be used at the moment."""


class MailboxBlocked(MailboxError):
    """The other side keeps a file locked for longer than a writer may wait."""


class MailboxDamaged(MailboxError):
    """A file is not a database, is corrupt, or holds something else under a table's name."""


class MailboxFormat(MailboxError):
    """The mailbox has a format version that this code does not read (C207)."""


class MailboxFull(MailboxError):
    """The disk is full, a quota is reached, or the file system answers with an I/O error; nothing was written."""


class RecoveryNeeded(MailboxError):
    """`outbound.db` has a hot journal; `Runtime.recover` must roll it back first (C209)."""


class ChannelError(JackfieldError):
    """A platform refused, limited or lost a request.  Adapters raise the subclasses."""


class RateLimited(ChannelError):
    """Come back after `retry_after` seconds.  Does not use up an attempt (C077).

    `scope` tells what is limited: this `chat`, or the whole `account`.
    """

    def __init__(
        self, message: str, *, retry_after: float, scope: Literal["chat", "account"] = "chat", fix: str | None = None
    ) -> None:
        super().__init__(message, fix=fix)
        self.retry_after = max(0.0, retry_after)
        self.scope = scope


class Transient(ChannelError):
    """It did not happen, and may work in a moment: connection refused, 5xx, time-out before the request left."""


class Ambiguous(ChannelError):
    """The request left and no answer came: it may have happened (C081)."""


class AuthFailed(ChannelError):
    """The credentials are not accepted.  The channel stops and its owner is told once."""


class SendNotAllowed(ChannelError):
    """The platform forbids this send to this chat."""


class ChatNotFound(ChannelError):
    """The chat or the message to edit does not exist."""


class Migrated(ChannelError):
    """The chat now lives under `new_platform_id`."""

    def __init__(self, message: str, *, new_platform_id: str, fix: str | None = None) -> None:
        super().__init__(message, fix=fix)
        self.new_platform_id = new_platform_id


class TooLarge(ChannelError):
    """Over the platform's limit; `limit` is in the platform's own unit (bytes for files), None when unknown."""

    def __init__(self, message: str, *, limit: int | None = None, fix: str | None = None) -> None:
        super().__init__(message, fix=fix)
        self.limit = limit


class BadContent(ChannelError):
    """The platform refused the markup; the core sends it once more as plain text."""


class WindowClosed(ChannelError):
    """The platform's window for replying to this person has passed."""


class NobodyListening(ChannelError):
    """Nobody is attached who could read it, as on a local channel; it waits without a deadline (C084)."""


class Unsupported(ChannelError):
    """The channel can't do this at all; capabilities should have said so."""


ProviderErrorKind = Literal[
    "auth", "billing", "permission", "model_not_found", "rate_limited", "overloaded", "server", "network",
    "stalled", "context_overflow", "output_limit", "refusal", "invalid_request", "continuation_lost",
    "engine_missing", "engine_crash", "protocol", "mcp_unavailable", "budget", "livelock", "config", "cancelled",
]  # fmt: skip
"""What went wrong, in the words of spec/providers.md section 8."""

ProviderScope = Literal["turn", "session", "credential", "provider"]
"""How far the failure reaches: a credential's failure parks every session that shares it."""


class ProviderError(JackfieldError):
    """A turn failed.

    `retryable` means exactly: the same continuation may be continued after `retry_after` seconds without changing
    anything, and there is reason to expect success.  With `tools_ran` the prompt is never sent again; the next turn
    resumes the continuation (architecture 5, rule 5; spec/providers.md 8).  `fresh_session_helps` tells that a new
    conversation would get further than this one; then the next one begins with a summary, once.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ProviderErrorKind,
        retryable: bool = False,
        retry_after: float | None = None,
        status: int | None = None,
        scope: ProviderScope = "turn",
        tools_ran: bool = False,
        fresh_session_helps: bool = False,
        message_for_user: str | None = None,
        fix: str | None = None,
    ) -> None:
        super().__init__(message, fix=fix)
        self.kind: ProviderErrorKind = kind
        self.retryable = retryable
        self.retry_after = retry_after
        self.status = status
        self.scope: ProviderScope = scope
        self.tools_ran = tools_ran
        self.fresh_session_helps = fresh_session_helps
        self.message_for_user = message_for_user


class RuntimeFailed(JackfieldError):
    """A runtime could not start, find, recover or stop a runner."""
