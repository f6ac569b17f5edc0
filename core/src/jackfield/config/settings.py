"""What `jackfield.toml` and `agent.toml` may say: names, types, bounds and defaults.

The docstring under each field is its documentation; the settings page is made from it.
"""

from __future__ import annotations

import os
import re
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from jackfield.api import Limits
from jackfield.config.problems import BadValue, near
from jackfield.errors import MalformedData
from jackfield.models import ExternalServer, RunnerLimits
from jackfield.models.packages import Manager, Packages, checked_name
from jackfield.models.runner_spec import SERVER_NAME

__all__ = [
    "AgentLimits",
    "AgentSettings",
    "AgentsSettings",
    "ApprovalSettings",
    "HostSettings",
    "IngressSettings",
    "McpSettings",
    "PackageSettings",
    "Size",
]

_SIZE = re.compile(r"^\s*(\d{1,12})\s*(|B|[KMG]i?B?)\s*$", re.IGNORECASE)
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_WORD = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"


def _size(value: object) -> object:
    if not isinstance(value, str):
        return value
    found = _SIZE.match(value)
    if found is None:
        raise BadValue("it is no size", allowed="a number of bytes, or a text like '512 MiB'")
    return int(found[1]) * _UNITS[found[2].lower().rstrip("b").rstrip("i")]


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadValue(
            "it is no time zone",
            allowed="IANA names like 'Europe/Berlin' or 'UTC'",
            suggestion=near(name, available_timezones()),
        ) from None
    return name


def _list(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


Size = Annotated[int, BeforeValidator(_size)]
"""Bytes; a text like ``512 MiB`` is taken too (1 KiB = 1024 B, however it is spelt)."""
Seconds = Annotated[float, Field(allow_inf_nan=False)]
Zone = Annotated[str, AfterValidator(_zone)]
Word = Annotated[str, Field(pattern=_WORD)]
Words = Annotated[tuple[Word, ...], BeforeValidator(_list), Field(max_length=100)]


class _Settings(BaseModel):
    # TOML has types, so nothing is guessed: "10" is no number and 1 is no yes.
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", use_attribute_docstrings=True)


class HostSettings(_Settings):
    """The `[host]` table of `jackfield.toml`."""

    timezone: Zone = "UTC"
    """IANA zone in which agents are told the time, unless their `agent.toml` names another."""
    max_runners: int = Field(default=0, ge=0, le=10_000)
    """How many runners may work at once.  0 stands for twice the number of cores, at least 4."""
    idle_exit: Seconds = Field(default=600.0, ge=1, le=604_800)
    """Seconds without work after which a runner ends; it is started again when somebody writes."""
    stuck_claim: Seconds = Field(default=60.0, ge=1, le=86_400)
    """Seconds without a heartbeat after which a runner counts as stuck and is replaced."""
    silent_ceiling: Seconds = Field(default=1800.0, ge=10, le=86_400)
    """Seconds that a turn may go on without any sign from the provider."""
    launch_timeout: Seconds = Field(default=60.0, ge=1, le=3600)
    """Seconds until a started runner must have shown its first heartbeat."""
    on_stop: Literal["stop", "leave"] = "stop"
    """What becomes of runners when the host stops: `stop` ends them, `leave` lets the next host take them over."""
    stop_grace: Seconds = Field(default=10.0, ge=0, le=600)
    """Seconds that a turn gets to end when its runner is stopped."""
    sticky_hours: float = Field(default=24.0, gt=0, le=8760, allow_inf_nan=False)
    """Hours for which an agent, once mentioned, goes on listening in a `mention-sticky` chat."""
    question_timeout: Seconds = Field(default=300.0, ge=5, le=86_400)
    """Seconds until an agent's question to a person counts as unanswered."""
    loop_turns: int = Field(default=10, ge=0, le=10_000)
    """How many times in a row somebody may answer an agent at a machine's pace, faster than a person reads and writes,
    before the chat's agents rest for that sender: else two programs would answer each other for ever. Ten times as many
    answers at any pace within ten minutes have the same effect. 0 turns it off."""
    loop_rest: Seconds = Field(default=600.0, ge=1, le=604_800)
    """Seconds for which they rest; half a minute without a word of either side ends it, too."""
    messages_per_minute: int = Field(default=60, ge=1, le=1_000_000)
    """How many messages one conversation may send in a minute, to all chats together, each part of a long text counted;
    so many may leave at once, more wait. What a platform allows in a chat counts besides."""
    text_limit: Size = Field(default=262_144, ge=1024, le=1_000_000)
    """Bytes of text, in or out; a longer one becomes a file with a 2 KiB opening."""
    file_limit: Size = Field(default=52_428_800, ge=1024, le=2_147_483_648)
    """Bytes of one file, in or out."""
    keep_days: int = Field(default=7, ge=7, le=3650)
    """Days that things stay after their end: messages in and out, on record and in mailboxes, with their files; the
    mailboxes of closed conversations, damaged ones that were set aside, answered questions, counts of what no agent
    took, crash reports."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """How much goes into `logs/host.jsonl`."""
    log_bytes: Size = Field(default=10_485_760, ge=65_536, le=1_073_741_824)
    """Bytes after which `logs/host.jsonl` is put aside and a new one is begun."""
    log_files: int = Field(default=5, ge=0, le=100)
    """How many older ones of it are kept."""

    @property
    def runner_cap(self) -> int:
        """The number that `max_runners` stands for on this machine."""
        return self.max_runners or max(4, 2 * (os.cpu_count() or 2))


class IngressSettings(_Settings):
    """The `[ingress]` table of `jackfield.toml`: the one HTTP server, which runs only while a channel needs it."""

    host: str = Field(default="127.0.0.1", min_length=1, max_length=255)
    """Address to listen on. Anything but a loopback address opens the server to the network; better is a proxy with
    TLS in front of it."""
    port: int = Field(default=8787, ge=0, le=65_535)
    """TCP port to listen on. 0 takes any free one, another after each start; `jackfield status` shows it."""
    path_prefix: str = Field(default="", max_length=200, pattern=r"^(/[A-Za-z0-9._~-]*[A-Za-z0-9_~-])*$")
    """What paths begin with when they arrive, such as `/jackfield`, because a proxy does not take it away."""
    public_url: str | None = Field(default=None, max_length=1000, pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$")
    """What the outside calls instead of `http://host:port` and the prefix, such as `https://bots.example/jackfield`."""
    max_bytes: Size = Field(default=26_214_400, ge=1024, le=1_073_741_824)
    """Bytes that the body of a request may have, whatever more a channel would take."""


class ApprovalSettings(_Settings):
    """The `[approvals]` table of `jackfield.toml`: how long people have to decide what agents ask for."""

    hours: float = Field(default=24.0, gt=0, le=720, allow_inf_nan=False)
    """Hours until a request that nobody decided expires, which is neither yes nor no."""
    remind: float = Field(default=0.5, ge=0, lt=1, allow_inf_nan=False)
    """Which part of that time passes until the person who was asked is reminded, once; 0 for never."""
    deny_days: int = Field(default=30, ge=1, le=3650)
    """Days for which a denied stranger, or an ignored chat, is remembered, so that nobody is asked about it again."""


class AgentsSettings(_Settings):
    """The `[agents]` table of `jackfield.toml`: how much agents may write to each other."""

    max_hops: int = Field(default=10, ge=1, le=1000)
    """How often a message, and what follows from it, may go from one agent to another: a question and its answer are
    two. What would go further is stopped."""
    max_messages: int = Field(default=100, ge=1, le=1_000_000)
    """How many messages between agents may follow from one message of a person or one run of a task, over all agents
    together."""
    per_minute: int = Field(default=30, ge=1, le=100_000)
    """How many messages one agent may write to another one in a minute, over all conversations of the two."""
    to_itself_per_minute: int = Field(default=3, ge=0, le=1000)
    """How many of them an agent may write to itself, which it can only where it has itself as a destination."""
    max_created: int = Field(default=10, ge=0, le=10_000)
    """How many agents one agent may have created that still exist."""


class AgentLimits(_Settings):
    """The `[limits]` table of `agent.toml`."""

    messages_per_prompt: int = Field(default=10, ge=1, le=100)
    """How many waiting messages go into one prompt."""
    idle_exit: Seconds | None = Field(default=None, ge=1, le=604_800)
    """Overrides the host's."""
    turn_seconds: Seconds = Field(default=1800.0, ge=1, le=86_400)
    """How long one turn may take in all."""
    tool_seconds: Seconds = Field(default=60.0, ge=1, le=86_400)
    """How long one tool call may take, unless the tool says otherwise."""
    provider_wait: Seconds = Field(default=60.0, ge=0, le=600)
    """How long a provider may wait inside a turn for a limit or an overload to pass, in all."""
    provider_idle: Seconds = Field(default=300.0, ge=0, le=86_400)
    """How long a provider may say nothing in a turn while no tool runs and it waits for nothing; then the turn is
    stopped and tried again. 0 for ever."""
    memory: Size | None = Field(default=None, ge=33_554_432)
    """Bytes of memory of a runner and its children; the runtime's default when left out."""
    cpus: float | None = Field(default=None, gt=0, le=1024, allow_inf_nan=False)
    """Share of cores, where the runtime can limit it; the `process` runtime can't, and leaves it out."""
    processes: int | None = Field(default=256, ge=8, le=1_000_000)
    """How many processes a runner may have."""
    file_size: Size | None = Field(default=104_857_600, ge=1_048_576)
    """Bytes of the largest file that it may write."""
    open_files: int | None = Field(default=1024, ge=64, le=1_048_576)
    """How many files it may hold open."""


def _package(manager: Manager) -> AfterValidator:
    def check(value: str) -> str:
        try:
            return checked_name(manager, value)
        except MalformedData as problem:
            raise BadValue(problem.message) from None

    return AfterValidator(check)


class PackageSettings(_Settings):
    """The `[packages]` table of an `agent.toml`: what is installed for the agent besides what its runtime has.

    It is a record. `jackfield group packages` changes it and installs; after an edit by hand, `jackfield group packages
    rebuild GROUP` does.
    """

    apt: Annotated[tuple[Annotated[str, _package("apt")], ...], BeforeValidator(_list), Field(max_length=200)] = ()
    """Packages of the operating system. The `process` runtime can't install any: it has the host's."""
    npm: Annotated[tuple[Annotated[str, _package("npm")], ...], BeforeValidator(_list), Field(max_length=200)] = ()
    """Packages of Node.js, by name."""
    pip: Annotated[tuple[Annotated[str, _package("pip")], ...], BeforeValidator(_list), Field(max_length=200)] = ()
    """Packages of Python, each a name or `name==version`."""

    @property
    def packages(self) -> Packages:
        return Packages(apt=self.apt, npm=self.npm, pip=self.pip)


class McpSettings(_Settings):
    """A `[mcp.<name>]` table of an `agent.toml`: an MCP server whose tools the agent has as `<name>__<tool>`.

    Either `command` or `url`. In `env` and `headers`, a value `secret:NAME` (or `Bearer secret:NAME`) stands for the
    secret of that name, and never lies in a file.
    """

    command: str = Field(default="", max_length=4096)
    """The program that the agent's runner starts, inside its sandbox, and speaks with over stdin and stdout."""
    args: Annotated[tuple[str, ...], BeforeValidator(_list), Field(max_length=200)] = ()
    """Its arguments."""
    env: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")], str] = Field(default_factory=dict)
    """Variables that it gets besides the few that every program gets."""
    cwd: str = Field(default="", max_length=4096)
    """Where it starts, absolute or relative to the workspace, which it is when left out."""
    url: str = Field(default="", max_length=4096, pattern=r"^(https?://[^\s]+)?$")
    """The address of a server that runs elsewhere and speaks streamable HTTP."""
    headers: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,128}$")], str] = Field(default_factory=dict)
    """HTTP headers that are sent to it."""
    enabled: bool = True
    """Whether the agent has it."""
    timeout: Seconds = Field(default=60.0, ge=1, le=86_400)
    """Seconds that a call of one of its tools may take."""

    @model_validator(mode="after")
    def _one_kind(self) -> McpSettings:
        if bool(self.command) == bool(self.url):
            raise BadValue("it needs exactly one of the two", allowed="a command, or a url")
        if self.url and (self.args or self.env or self.cwd):
            raise BadValue("a server with a url is not started here", allowed="args, env and cwd go with a command")
        if self.command and self.headers:
            raise BadValue("a program takes no headers", allowed="headers go with a url")
        texts = (self.command, *self.args, *self.env.values(), self.cwd, self.url, *self.headers.values())
        if any("\0" in text or len(text) > 32_768 for text in texts):
            raise BadValue("a text holds a zero byte or has more than 32,768 characters")
        if any("\n" in text or "\r" in text for text in self.headers.values()):
            raise BadValue("a header is more than one line")
        return self

    def external(self) -> ExternalServer:
        """What the runner is told."""
        return ExternalServer(
            command=(self.command, *self.args) if self.command else (),
            env=dict(self.env),
            cwd=self.cwd,
            url=self.url,
            headers=dict(self.headers),
            timeout=self.timeout,
        )


ServerName = Annotated[str, Field(pattern=SERVER_NAME, max_length=32)]


class AgentSettings(_Settings):
    """The whole of an `agent.toml`."""

    name: str = Field(default="", max_length=100)
    """What people call the agent; the folder's name when left out."""
    provider: Word = "mock"
    """Which provider plugin answers."""
    model: str | None = Field(default=None, min_length=1, max_length=200)
    """The provider's name of a model; its default when left out."""
    tools: Words = ("messaging",)
    """Tool sets that the agent has."""
    packs: Words = ()
    """Document packs that the agent may read."""
    runtime: Word = "process"
    """Where the agent's runners live."""
    gateway: bool | None = None
    """Whether the agent reaches its model by a model gateway, which an extension offers and which keeps the key in the
    host. When left out it does where its runtime proves to be a container, and not otherwise. Jackfield ships no such
    extension yet."""
    allow_unisolated: bool = False
    """Whether other channels than the terminal may reach the agent although its runtime proves no isolation."""
    timezone: Zone | None = None
    """Overrides the host's."""
    unwrapped: Literal["origin", "nudge"] = "origin"
    """Text outside `<message>` blocks: `origin` sends it to where the messages came from, `nudge` asks the agent to
    address it."""
    permissions: dict[Word, Literal["ask", "always", "allow", "never"]] = Field(default_factory=dict)
    """Whether a person is asked before the agent does a thing, by the thing's kind, such as `create_agent`: `ask` asks
    unless everybody whose messages the turn answers is an owner or admin, `always` asks in any case, `allow` asks
    nobody, `never` refuses. What is left out is as its kind says."""
    secrets: Literal["selective", "all"] = "selective"
    """Which secrets of the store the agent gets: `selective` means its own and those that were assigned to it, `all`
    the global ones, too. Those of channels it never gets."""
    limits: AgentLimits = AgentLimits()
    packages: PackageSettings = PackageSettings()
    mcp: Annotated[dict[ServerName, McpSettings], Field(max_length=50)] = Field(default_factory=dict)
    """MCP servers whose tools the agent has, by name."""
    providers: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings of each provider, by its name."""
    tool_settings: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings of each tool set, by its name."""
    runtime_settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the runtime, for this group."""

    def runner_limits(self, host: HostSettings) -> RunnerLimits:
        """What a runner of this group is told."""
        return RunnerLimits(
            messages_per_prompt=self.limits.messages_per_prompt,
            idle_exit=host.idle_exit if self.limits.idle_exit is None else self.limits.idle_exit,
            turn_seconds=self.limits.turn_seconds,
            tool_seconds=self.limits.tool_seconds,
            provider_wait=self.limits.provider_wait,
            provider_idle=self.limits.provider_idle,
        )

    def runtime_limits(self) -> Limits:
        """What the runtime holds a runner of this group to."""
        limits = self.limits
        return Limits(
            memory=limits.memory,
            cpus=limits.cpus,
            processes=limits.processes,
            file_size=limits.file_size,
            open_files=limits.open_files,
        )
