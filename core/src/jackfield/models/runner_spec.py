"""`session.json`: all that a runner is told.  Written by the host, no secrets in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from jackfield.ids import AgentGroupId, SessionId

__all__ = [
    "MAILBOX_FORMAT",
    "RUNNER_PROTOCOL",
    "SERVER_NAME",
    "ExternalServer",
    "RunnerLimits",
    "RunnerPaths",
    "RunnerSpec",
]

MAILBOX_FORMAT = 1
"""The format that this version writes; a runner reads this and the one before."""
RUNNER_PROTOCOL = 1
"""Spoken between host and runner besides the mailbox's tables (C207)."""

SERVER_NAME = r"^[a-z0-9]+(?:[_-][a-z0-9]+)*$"
"""What an MCP server may be called: no `__`, which parts its name from a tool's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerLimits:
    """Seconds and counts; zero means no limit."""

    messages_per_prompt: int = 10
    idle_exit: float = 600.0
    turn_seconds: float = 1800.0
    tool_seconds: float = 60.0
    provider_wait: float = 60.0
    """Waits inside one turn that belong to the provider, in all (architecture 5, rule 5)."""
    provider_idle: float = 300.0
    """How long the provider may say nothing at all in a turn while no tool runs and nothing is waited for."""
    heartbeat: float = 5.0
    poll: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerPaths:
    """As the runner sees them; absolute."""

    session: str
    workspace: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalServer:
    """An MCP server of the group: a program that the runner starts (`command`), or one somewhere else (`url`).

    A value of `env` or `headers` that ends in ``secret:NAME`` gets that secret there; the spec itself holds none.
    """

    command: tuple[str, ...] = ()
    """The program and its arguments; empty for one with a `url`."""
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    """Absolute or relative to the workspace, which it is when left out."""
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    timeout: float = 60.0
    """Seconds that a call of one of its tools may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerSpec:
    session_id: SessionId
    agent_group_id: AgentGroupId
    epoch: int
    install_id: str
    agent_name: str
    provider: str
    paths: RunnerPaths
    model: str | None = None
    tools: tuple[str, ...] = ()
    packs: tuple[str, ...] = ()
    plugins: dict[str, str] = field(default_factory=dict)
    """Module of each named plugin, as its entry point says, by `provider:<name>` or `tools:<name>`: so that a runner
    need not search its environment for them.  One that is missing here is searched."""
    provider_settings: dict[str, str] = field(default_factory=dict)
    """Values are JSON text, by key: what `[providers.<name>]` of `agent.toml` says."""
    tool_settings: dict[str, str] = field(default_factory=dict)
    """JSON text of one object by tool set."""
    instructions: str = ""
    """What plugins of the host added to the system prompt (`compose_prompt`)."""
    channels: dict[str, str] = field(default_factory=dict)
    """What the agent should know of each channel that it may write to, by channel type."""
    tool_instructions: dict[str, str] = field(default_factory=dict)
    """By tool set, where a plugin of the host changed them (`tool_instructions`); the others are the tool set's own."""
    servers: dict[str, ExternalServer] = field(default_factory=dict)
    """The group's MCP servers, by name (`[mcp.<name>]`)."""
    package_folders: dict[str, str] = field(default_factory=dict)
    """Where the group's installed packages lie, as the runner sees them, by package manager (`pip`, `npm`)."""
    secrets: dict[str, str] = field(default_factory=dict)
    """What the runner finds at its descriptor: by name which version, never a value."""
    gateway: str = ""
    """Where the runner finds the model gateway, without the token that is among its secrets; empty when it has none."""
    limits: RunnerLimits = RunnerLimits()
    timezone: str = "UTC"
    unwrapped: str = "origin"
    """What becomes of text outside `<message>` blocks: `origin` sends it to where the batch came from, `nudge` asks
    the agent to address it (messaging.md 6.4)."""
    format: int = 1
    """`MAILBOX_FORMAT` of the host that wrote this.  A file leaves defaults out, so this one must stay 1."""
    protocol: int = 1
    """`RUNNER_PROTOCOL` of that host; likewise."""
