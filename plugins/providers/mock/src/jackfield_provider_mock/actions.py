"""What a turn can be made of.  Imported when a script or a command asks for more than a plain answer.

Written in TOML, an action is a table that holds its verb: `{ say = "hello" }`, `{ wait = 2 }`,
`{ fail = "overloaded", retry_after = 3, times = 2 }`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args

from jackfield.errors import ProviderErrorKind, ProviderScope

from jackfield_provider_mock.say import Say

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = [
    "VERBS", "Action", "Aside", "Ask", "Call", "Compact", "Crash", "Die", "Fail", "Hang", "Later", "Limit", "Lose",
    "Note", "Own", "Quiet", "Recall", "Retry", "Say", "Show", "Stop", "Stream", "Think", "Use", "Wait", "Write",
    "read_action",
]  # fmt: skip


def _not_negative(**values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not 0 <= value < float("inf"):
            raise ValueError(f"{name} must be a number of at least 0, not {value}")


def _positive(**values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A text that grows, chunk by chunk, `every` seconds.  With `cut` it is withdrawn at the end."""

    stream: str | list[str]
    every: float = 0.05
    cut: bool = False

    def __post_init__(self) -> None:
        _not_negative(every=self.every)

    @property
    def chunks(self) -> list[str]:
        """The pieces in order: as they are listed, or the words of a text."""
        return re.findall(r"\S+\s*", self.stream) if isinstance(self.stream, str) else self.stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Think:
    """A thought; never relayed to a chat."""

    think: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Call a tool; its result is `{result}` for what follows."""

    call: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Call `ask_user_question`; the answer is `{result}`."""

    ask: str
    options: list[str]
    title: str = "Question"
    timeout: float = 300
    to: str | None = None

    def __post_init__(self) -> None:
        _not_negative(timeout=self.timeout)
        if not self.options:
            raise ValueError("options are missing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Seconds of doing nothing.  Input sent with `when="now"` cuts it short."""

    wait: float

    def __post_init__(self) -> None:
        _not_negative(wait=self.wait)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """End the turn with a `ProviderError`.

    `retryable` and `scope` default to what the kind usually means; `tools_ran` to whether this turn called a tool.
    With `times` it fails that often and then goes on, also when the tries are spread over several processes.
    """

    fail: ProviderErrorKind
    message: str = ""
    retryable: bool | None = None
    retry_after: float | None = None
    status: int | None = None
    scope: ProviderScope | None = None
    tools_ran: bool | None = None
    fresh_session_helps: bool = False
    message_for_user: str | None = None
    times: int | None = None

    def __post_init__(self) -> None:
        _not_negative(retry_after=self.retry_after)
        _positive(times=self.times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """End the process: by SIGKILL, or by `os._exit` with that status."""

    crash: Literal["kill"] | int = "kill"
    times: int | None = None

    def __post_init__(self) -> None:
        _positive(times=self.times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """Never come back: `quiet` waits and can be interrupted, `blocking` holds up the whole process."""

    hang: Literal["quiet", "blocking"] = "quiet"
    times: int | None = None

    def __post_init__(self) -> None:
        _positive(times=self.times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Report that the engine tries again after `retry` seconds, and wait that long."""

    retry: float
    kind: str = "overloaded"
    attempt: int = 1
    of: int | None = None
    status: int | None = None

    def __post_init__(self) -> None:
        _not_negative(retry=self.retry)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Report a rate limit that ends in `limit` seconds, without waiting."""

    limit: float
    window: str = ""

    def __post_init__(self) -> None:
        _not_negative(limit=self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    """Fold the conversation so far into one line."""

    compact: Literal[True] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Lose:
    """Lose the conversation: `now` says so and begins a new one, `restart` is found out by whoever resumes it."""

    lose: Literal["now", "restart"] = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """Say what the conversation has held so far."""

    recall: Literal[True] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """Say what the provider was given.  Of the gateway's address without its token."""

    show: Literal["prompt", "system", "tools", "cwd", "model", "env", "gateway"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Write a text file below the working directory."""

    write: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Chatter of an engine; never part of an answer."""

    note: str
    level: Literal["debug", "info", "warning", "error"] = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """Say nothing: not even a tool's result."""

    quiet: Literal[True] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """Begin a turn of its own accord after `later` seconds, and say `text`."""

    later: float
    text: str

    def __post_init__(self) -> None:
        _not_negative(later=self.later)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """A text between two tools: no part of the reply."""

    aside: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """A tool of the engine's own, which takes `seconds` and says `progress` meanwhile."""

    own: str
    summary: str = ""
    progress: list[str] = field(default_factory=list)
    seconds: float = 0.0
    deadline: float | None = None
    ok: bool = True

    def __post_init__(self) -> None:
        _not_negative(seconds=self.seconds, deadline=self.deadline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Report what one request used, of the model `use`."""

    use: str
    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    cost: float | None = None

    def __post_init__(self) -> None:
        _not_negative(
            input=self.input, cache_read=self.cache_read, cache_write=self.cache_write, output=self.output,
            reasoning=self.reasoning, cost=self.cost,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Die:
    """The engine ends, and with it the session, in the middle of the turn; the runner lives."""

    die: str = "it was told to"
    times: int | None = None

    def __post_init__(self) -> None:
        _positive(times=self.times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End the turn at a limit of the engine's, with what was said so far."""

    stop: Literal["limit"] = "limit"


Action = (
    Say
    | Aside
    | Stream
    | Think
    | Call
    | Ask
    | Wait
    | Fail
    | Crash
    | Hang
    | Retry
    | Limit
    | Compact
    | Lose
    | Recall
    | Show
    | Write
    | Note
    | Quiet
    | Later
    | Own
    | Use
    | Die
    | Stop
)
"""One thing to do in a turn."""

VERBS: dict[str, type[Action]] = {kind.__name__.lower(): kind for kind in get_args(Action)}
"""Each action by its verb."""


def read_action(table: object) -> Action:
    """The action that a table describes.

    Raises:
        ValueError: it has no verb, an unknown key, or a value that can't be.
    """
    from pydantic import ValidationError

    if not isinstance(table, Mapping):
        raise ValueError(f"an action is a table like {{ say = 'hello' }}, not {table!r}")
    verbs = [key for key in table if key in VERBS]
    if not verbs:
        raise ValueError(f"{dict(table)!r} is no action; it needs one of: {', '.join(VERBS)}")
    known = [each.name for each in fields(VERBS[verbs[0]])]
    unknown = sorted(str(key) for key in table if key not in known)
    if unknown:
        raise ValueError(f"{verbs[0]} has no {unknown[0]!r}; it has: {', '.join(known)}")
    try:
        return _adapter(verbs[0]).validate_python(dict(table))
    except ValidationError as problem:
        error = problem.errors()[0]
        place = ".".join(str(part) for part in error["loc"]) or verbs[0]
        raise ValueError(f"{place}: {error['msg']}") from None


@cache
def _adapter(verb: str) -> TypeAdapter[Action]:
    """Built when a verb is first used: building all of them takes longer than starting a runner should."""
    from pydantic import TypeAdapter

    return TypeAdapter(VERBS[verb])
