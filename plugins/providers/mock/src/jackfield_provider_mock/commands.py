"""Commands that a person writes into a message: `mock: say hello`.

Grammar::

    message  = anything, { "mock:" command }
    command  = verb [ rest ]            up to the next "mock:" or the end of the message

`COMMANDS` lists the verbs with their arguments; `mock: help` says the list.  A command that can't be read is answered
with what is wrong with it, never ignored.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable

from jackfield_provider_mock.actions import (
    Action,
    Aside,
    Compact,
    Later,
    Limit,
    Lose,
    Note,
    Own,
    Retry,
    Say,
    Think,
    Use,
    Wait,
    read_action,
)

__all__ = ["COMMANDS", "HELP", "read_commands"]

_START = re.compile(r"(?:^|(?<=\s))mock:[ \t]*", re.IGNORECASE)

COMMANDS: dict[str, str] = {
    "say": 'TEXT: answer with TEXT, which may hold <message to="name"> blocks',
    "stream": "WORD...: answer word by word",
    "long": "N: answer with N characters",
    "think": "TEXT: think, without saying it",
    "tool": "NAME {JSON}: call a tool and say its result ({result} in a later say)",
    "ask": "QUESTION | OPTION | OPTION...: ask with choices and say which was chosen",
    "sleep": "SECONDS: do nothing for a while",
    "fail": "KIND [times=N retry_after=S status=N scope=S retryable=yes|no tools_ran=yes|no message='...']: fail",
    "die": "[times=N]: the engine ends, the runner lives",
    "stop": ": end the turn at the engine's limit",
    "retry": "SECONDS [KIND]: report a retry and wait for it",
    "limit": "SECONDS: report a rate limit",
    "crash": "[kill | STATUS] [times=N]: end the process",
    "hang": "[quiet | blocking] [times=N]: never come back",
    "compact": ": compact the conversation",
    "lose": "[now | restart]: lose the conversation",
    "recall": ": say what was said before",
    "show": "prompt | system | tools | cwd | model | env | gateway: say what the provider was given",
    "write": "FILE TEXT: write a file in the workspace",
    "note": "TEXT: engine chatter",
    "aside": "TEXT: say TEXT between tools, not as the answer",
    "own": "NAME [seconds=S progress=WORD]: run a tool of the engine's own",
    "use": "MODEL [input=N output=N cache_read=N cost=X]: report what a request used",
    "later": "SECONDS TEXT: say TEXT in a turn of its own, later",
    "quiet": ": say nothing, not even a tool's result",
    "help": ": this list",
}

HELP = "Write one or more of these into a message:\n\n" + "\n".join(
    f"- `{f'mock: {verb} {usage}'.rstrip()}`: {about}"
    for verb, (usage, _, about) in ((verb, text.partition(": ")) for verb, text in COMMANDS.items())
)
_KEY_VALUE = re.compile(r"^(\w+)=(.*)$", re.DOTALL)
_MUTE = (Think, Wait, Retry, Limit, Compact, Lose, Note, Later, Aside, Own, Use)
_ALIASES = {"call": "tool", "wait": "sleep", "echo": "say"}


def read_commands(text: str) -> list[Action]:
    """The actions that a message's text asks for; none when there is no command in it.

    When none of them says anything, "done" is said at the end, so that a person sees it.
    """
    starts = list(_START.finditer(text))
    actions: list[Action] = []
    for index, start in enumerate(starts):
        end = starts[index + 1].start() if index + 1 < len(starts) else len(text)
        actions.extend(_command(text[start.end() : end].strip()))
    if actions and all(isinstance(action, _MUTE) for action in actions):
        actions.append(Say(say="done"))
    return actions


def _command(line: str) -> list[Action]:
    verb, *after = line.split(None, 1) or [""]
    rest = after[0] if after else ""
    verb = _ALIASES.get(verb.lower(), verb.lower())
    read = _READERS.get(verb)
    if read is None:
        return [Say(say=f"mock: I don't know {verb!r}. I know: {', '.join(COMMANDS)}.")]
    try:
        return [read_action(table) for table in read(rest.strip())]
    except ValueError as problem:
        return [Say(say=f"mock: {verb} can't be read: {problem}. Usage: mock: {verb} {COMMANDS[verb]}")]


_Table = dict[str, object]


def _options(rest: str, *, first: str, default: str | None = None) -> _Table:
    """`word key=value key=value` as a table, the bare word under `first`."""
    table: _Table = {}
    for word in shlex.split(rest):
        pair = _KEY_VALUE.match(word)
        if pair is not None:
            table[pair[1]] = pair[2]
        elif first not in table:
            table[first] = word
        else:
            raise ValueError(f"{word!r} is one word too many")
    if default is not None:
        table.setdefault(first, default)
    return table


def _tool(rest: str) -> list[_Table]:
    name, _, arguments = rest.partition(" ")
    if not name:
        raise ValueError("the tool's name is missing")
    value = json.loads(arguments) if arguments.strip() else {}
    if not isinstance(value, dict):
        raise ValueError("the arguments must be a JSON object")
    return [{"call": name, "arguments": value}]


def _ask(rest: str) -> list[_Table]:
    question, *options = [part.strip() for part in rest.split("|")]
    return [{"ask": question, "options": options}]


def _two(first: str, second: str, *, required: bool = True) -> Callable[[str], list[_Table]]:
    def read(rest: str) -> list[_Table]:
        one, _, two = rest.partition(" ")
        if required and not two.strip():
            raise ValueError(f"{second} is missing")
        return [{first: one, second: two.strip()} if two.strip() else {first: one}]

    return read


def _long(rest: str) -> list[_Table]:
    count = int(rest)
    if not 0 < count <= 10_000_000:
        raise ValueError("N is 1 to 10000000")
    line = "".join(f"{number:09d} " for number in range(count // 10 + 1))
    return [{"say": line[:count]}]


def _crash(rest: str) -> list[_Table]:
    table = _options(rest, first="crash", default="kill")
    if table["crash"] != "kill":
        table["crash"] = int(str(table["crash"]))
    return [table]


def _own(rest: str) -> list[_Table]:
    table = _options(rest, first="own", default="Bash")
    if "progress" in table:
        table["progress"] = [table["progress"]]
    return [table]


_READERS: dict[str, Callable[[str], list[_Table]]] = {
    "say": lambda rest: [{"say": rest}],
    "stream": lambda rest: [{"stream": rest}],
    "long": _long,
    "think": lambda rest: [{"think": rest}],
    "tool": _tool,
    "ask": _ask,
    "sleep": lambda rest: [{"wait": rest}],
    "fail": lambda rest: [_options(rest, first="fail")] if rest else [{"fail": ""}],
    "retry": _two("retry", "kind", required=False),
    "limit": lambda rest: [{"limit": rest}],
    "crash": _crash,
    "hang": lambda rest: [_options(rest, first="hang", default="quiet")],
    "compact": lambda rest: [{"compact": True}],
    "lose": lambda rest: [{"lose": rest or "now"}],
    "recall": lambda rest: [{"recall": True}],
    "show": lambda rest: [{"show": rest}],
    "write": _two("write", "text", required=False),
    "note": lambda rest: [{"note": rest}],
    "aside": lambda rest: [{"aside": rest}],
    "own": _own,
    "use": lambda rest: [_options(rest, first="use", default="mock")],
    "die": lambda rest: [_options(rest, first="die", default="it was told to")],
    "stop": lambda rest: [{"stop": "limit"}],
    "later": _two("later", "text"),
    "quiet": lambda rest: [{"quiet": True}],
    "help": lambda rest: [{"say": HELP}],
}
