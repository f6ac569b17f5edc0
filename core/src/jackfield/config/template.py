"""The files that `jackfield init` and `jackfield group add` write: as short as can be, and explaining themselves."""

from __future__ import annotations

import json

__all__ = ["agent_toml", "agents_md", "jackfield_toml"]


def jackfield_toml(*, timezone: str = "UTC") -> str:
    """A first `jackfield.toml`: the terminal, and every setting with its default as a comment."""
    return f"""\
# Jackfield's configuration.  `jackfield config check` tells what is wrong with it and on which line;
# `jackfield reload` makes a running host read it again.

[host]
timezone = {_text(timezone)}        # the zone in which agents are told the time
# max_runners = 0            # agents working at once; 0 stands for twice the number of cores, at least 4
# idle_exit = 600            # seconds without work until an agent's process ends
# silent_ceiling = 1800      # seconds that a model may be silent in one turn
# on_stop = "stop"           # "leave": agents go on working while the host restarts
# sticky_hours = 24          # how long an agent goes on listening after it was mentioned
# question_timeout = 300     # seconds until an agent's question counts as unanswered
# text_limit = "256 KiB"     # longer texts become files
# file_limit = "50 MiB"
# log_level = "info"         # debug, info, warning or error

[ingress]                    # the HTTP server, which runs only while a channel needs it
# host = "127.0.0.1"         # a proxy with TLS belongs in front of it; public_url says how the outside calls that
# port = 8787

# One table for each channel.  The name after the dot is yours; `type` says which channel it is and may be left out
# when it is the same.  `jackfield plugin list` shows what is installed, `jackfield channel add` writes such a table.

[channels.terminal]

# [channels.work]
# type = "telegram"
# token = "work-bot-token"
"""


def agent_toml(*, name: str, provider: str = "mock", runtime: str = "process") -> str:
    """A first `agent.toml`."""
    return f"""\
# One agent.  What it is told about itself stands in AGENTS.md beside this file.
# Change values with `jackfield group set`, or here, followed by `jackfield group accept`.
# Settings of its provider go into a table [providers.{provider}], those of a tool set into [tool_settings.<name>].

name = {_text(name)}
provider = {_text(provider)}          # who thinks: the name of an installed provider plugin
# model = "..."              # the provider's name for it; left out, the provider chooses
tools = ["messaging"]        # what it can do besides talking
# packs = []                 # document packs that it may read
runtime = {_text(runtime)}        # where its processes live
allow_unisolated = false     # true: channels other than the terminal may reach it although nothing isolates it
# timezone = "Europe/Berlin" # left out, the host's

[limits]
# messages_per_prompt = 10
# turn_seconds = 1800
# tool_seconds = 60
# memory = "1 GiB"
"""


def agents_md(*, name: str) -> str:
    """A first `AGENTS.md`."""
    plain = " ".join(name.split()) or "Agent"
    return f"""\
# {plain}

You are {plain}, an assistant who is reached by chat. Be helpful, be brief, and say so when you don't know something.

Keep what you want to remember between conversations in files under `memory/`; your working directory is `workspace/`.
"""


def _text(value: str) -> str:
    """A TOML string."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
