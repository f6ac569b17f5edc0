"""Writes the generated parts of the documentation: settings, commands, errors, hooks, events, channels.

    python scripts/docs.py            write them again
    python scripts/docs.py --check    say what is out of date, and fail

A page holds them between `<!-- generated: NAME -->` and `<!-- end -->`; everything outside is written by hand.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import enum
import inspect
import re
import sys
import textwrap
import tomllib
import typing
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from jackfield import errors
from jackfield.api import HOOKS, HookKind, HookSpecs, ToolFailed, decisions
from jackfield.api import channels as channel_api
from jackfield.cli.app import ENTRIES, cli
from jackfield.cli.lazy import shared_options
from jackfield.config.settings import (
    AgentSettings,
    AgentsSettings,
    ApprovalSettings,
    HostSettings,
    IngressSettings,
    McpSettings,
)
from jackfield.mailbox import schema
from jackfield.models import addresses, content, events, mailbox, runner_spec
from jackfield.plugins import Kind
from jackfield.process.settings import ProcessSettings
from jackfield.testing.contracts import CONTRACTS, PluginContract, checks_of
from jackfield_channel_irc.settings import IrcSettings
from jackfield_channel_matrix.settings import MatrixSettings
from jackfield_channel_slack.settings import SlackSettings
from jackfield_channel_telegram.settings import TelegramSettings
from jackfield_channel_terminal.chat import command as chat_command
from jackfield_channel_terminal.settings import TerminalSettings
from jackfield_channel_webhook.settings import WebhookSettings
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from scripts import docs_channels  # noqa: E402 - run as a script, Python looks beside this file only

SOURCE = ROOT / "core" / "src" / "jackfield"
ADVICE = ROOT / "docs" / "operators" / "errors.toml"
_BLOCK = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_CASES = re.compile(r"\s*\((?:C\d|architecture|spec/|messaging\.md|runtime\.md|channels\.md)[^)]*\)")


# ---- words


def prose(text: str | None) -> str:
    """A docstring as Markdown: unwrapped paragraphs, without the numbers of our own requirements."""
    parts = re.split(r"\n\s*\n", inspect.cleandoc(text or ""))
    lines = [part if part.startswith(("- ", "    ")) else " ".join(part.split()) for part in parts]
    return re.sub(r";? see spec/[a-z]+\.md", "", _CASES.sub("", "\n\n".join(lines))).replace("``", "`")


def cell(text: str) -> str:
    """Text inside a table."""
    return " ".join(text.split()).replace("|", "\\|")


def anchor(heading: str) -> str:
    """The fragment that a heading gets on the web: small letters, digits and hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    return "\n".join([*lines, *(f"| {' | '.join(cell(one) for one in row)} |" for row in rows)])


def field_notes(cls: type) -> dict[str, str]:
    """The docstrings under the fields of a class and of those it inherits from."""
    notes: dict[str, str] = {}
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(body, ast.ClassDef)
    for one, after in zip(body.body, body.body[1:], strict=False):
        target = one.target if isinstance(one, ast.AnnAssign) else None
        if isinstance(one, ast.Assign):
            target = one.targets[0] if isinstance(one.targets[0], ast.Name) else None
        if isinstance(target, ast.Name) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            notes[target.id] = prose(str(after.value.value))
    return notes


# ---- settings


def settings(prefix: str, model: type[BaseModel], *, level: int = 4) -> str:
    """A table of all settings, and a heading for each with what it means."""
    rows, sections = [], []
    for name, value, default, meaning in setting_rows(model):
        key = f"{prefix}.{name}" if prefix else name
        rows.append((f"[`{key}`](#{anchor(key)})", value, default))
        sections.append(f"{'#' * level} `{key}`\n\n{meaning}\n")
    return table(("setting", "value", "default"), rows) + "\n\n" + "\n".join(sections)


def setting_rows(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Name, value in words, default and meaning of each; those of an inner table with its name in front.

    Raises:
        ValueError: a field has no docstring.
    """
    notes = field_notes(model)
    for name, info in model.model_fields.items():
        inner = info.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from setting_rows(inner, f"{prefix}{name}.")
            continue
        if not notes.get(name):
            raise ValueError(f"{model.__name__}.{name} has no docstring; the settings page is made from it")
        yield prefix + name, value_words(info.annotation, info.metadata), default_words(info), notes[name]


def value_words(annotation: Any, metadata: Iterable[Any]) -> str:
    """What may be written, with its bounds."""
    everything = [*metadata, *_metadata(annotation)]
    validators = {getattr(getattr(one, "func", None), "__name__", "") for one in everything}
    bounds = {key: getattr(one, key) for one in everything for key in ("ge", "gt", "le") if hasattr(one, key)}
    words = _kind_words(annotation)
    if "_size" in validators:
        words = 'bytes, or a text like `"512 MiB"`'
    elif "_zone" in validators:
        words = "IANA time zone"
    low = f"at least {bounds['ge']:,}" if "ge" in bounds else f"over {bounds['gt']:,}" if "gt" in bounds else ""
    high = f"at most {bounds['le']:,}" if "le" in bounds else ""
    if "ge" in bounds and "le" in bounds:
        return f"{words}, {bounds['ge']:,} to {bounds['le']:,}"
    return ", ".join(part for part in (words, low, high) if part)


def _kind_words(annotation: Any) -> str:
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _kind_words(inside[0])
    if origin is typing.Literal:
        return ", ".join(f'`"{one}"`' for one in inside)
    if origin in (tuple, list):
        return "list of texts"
    if origin is dict:
        return "table"
    if inside:
        return " or ".join(_kind_words(one) for one in inside if one is not type(None))
    names = {bool: "`true` or `false`", int: "whole number", float: "number", str: "text", Path: "path"}
    return names.get(annotation, "text")


def _metadata(annotation: Any) -> Iterator[Any]:
    for one in typing.get_args(annotation):
        if typing.get_origin(annotation) is not typing.Literal:
            yield one
            yield from _metadata(one)


def default_words(info: Any) -> str:
    value = info.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "must be set"
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f'`"{value}"`' if value else "empty"
    if isinstance(value, (tuple, list)):
        return "`[" + ", ".join(f'"{one}"' for one in value) + "]`"
    return "empty" if value == {} else f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


# ---- commands


def all_commands() -> Iterator[tuple[str, click.Command, str]]:
    """Name, command and section of the help, for everything that the shipped packages bring."""
    root = click.Context(cli, info_name="jackfield")
    for name, entry in ENTRIES.items():
        command = chat_command if name == "chat" else cli.get_command(root, name)
        assert command is not None
        for inner, found in _with_inner(name, command, root):
            yield inner, found, entry.section


def _with_inner(name: str, command: click.Command, parent: click.Context) -> Iterator[tuple[str, click.Command]]:
    """A command, and all that are inside of it, however deep."""
    yield name, command
    if isinstance(command, click.Group):
        here = click.Context(command, info_name=name, parent=parent)
        for each in command.list_commands(here):
            found = command.get_command(here, each)
            assert found is not None
            yield from _with_inner(f"{name} {each}", found, here)


def commands() -> str:
    out = ["Every command takes these, in front of it or behind it:", "", _options(shared_options(hidden=False)), ""]
    section = ""
    for name, command, where in all_commands():
        if where != section:
            section = where
            out += [f"## {where}", ""]
        out += [f"### `jackfield {name}`", ""]
        if not isinstance(command, click.Group):
            usage = " ".join(command.collect_usage_pieces(click.Context(command, info_name=name)))
            out += ["```text", f"jackfield {name} {usage}", "```", ""]
        out += [prose(command.help), ""]
        own = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
        if listed := _options(own):
            out += [listed, ""]
    return "\n".join(out)


def _options(parameters: Iterable[click.Parameter]) -> str:
    lines = []
    for one in parameters:
        if not isinstance(one, click.Option):
            continue
        record = one.get_help_record(click.Context(click.Command("x")))
        if record is not None:
            lines.append(f"- `{record[0]}`: {record[1]}")
    return "\n".join(lines)


# ---- errors


def all_errors() -> list[type[errors.JackfieldError]]:
    """Every public error, in the order of its definition."""
    found = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.JackfieldError)]
    return [*found, ToolFailed]


def error_pages() -> str:
    """Raises ValueError when `errors.toml` misses an error or knows one that is not there."""
    advice = tomllib.loads(ADVICE.read_text(encoding="utf-8"))
    names = [one.__name__ for one in all_errors()]
    if wrong := sorted(set(names) ^ set(advice)):
        raise ValueError(f"{ADVICE.name} and jackfield.errors differ in {', '.join(wrong)}")
    out = []
    for one in all_errors():
        parent = one.__bases__[0]
        kind = f" A kind of [`{parent.__name__}`](#{anchor(parent.__name__)})." if parent is not Exception else ""
        meaning = errors.EXIT_CODES[one.exit_code]
        out += [f"### `{one.__name__}`", "", f"{prose(one.__doc__)}{kind}", ""]
        out += [f"Exit code {one.exit_code}: {meaning}. **What to do:** {advice[one.__name__]}", ""]
    return "\n".join(out)


def exit_codes() -> str:
    return table(("code", "meaning"), ((str(code), meaning) for code, meaning in errors.EXIT_CODES.items())) + "\n"


# ---- hooks and events

ACCESSORS = {
    "register_packs": ".pack(",
    "register_routes": ".routes()",
    "register_kinds": ".document_kinds()",
    "register_object_types": ".object_types()",
    "register_approvals": ".approval_kinds()",
    "register_commands": ".chat_commands()",
}
"""What the host or a runner would call if it used what these hooks return."""


def unused_hooks() -> set[str]:
    """Hooks that a plugin may implement already and that nothing asks for yet, as the code says."""
    files = [path for room in ("host", "runner") for path in (SOURCE / room).rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    called = {name for name, kind in HOOKS.items() if kind is not HookKind.REGISTRATION and f'"{name}"' in text}
    registered = {name for name, kind in HOOKS.items() if kind is HookKind.REGISTRATION}
    return set(HOOKS) - called - {name for name in registered if ACCESSORS.get(name, "") in text}


def heading_of(hook: str) -> str:
    """A hook with its exact arguments, as its heading has it."""
    arguments = [name for name in inspect.signature(getattr(HookSpecs, hook)).parameters if name != "self"]
    return f"`{hook}({', '.join(arguments)})`"


def hooks() -> str:
    titles = {
        HookKind.REGISTRATION: "Registration",
        HookKind.DECIDING: "Deciding",
        HookKind.OBSERVING: "Observing",
        HookKind.COMPOSING: "Composing",
    }
    idle, out = unused_hooks(), []
    for kind, title in titles.items():
        out += [f"## {title}", ""]
        for name in (one for one, its in HOOKS.items() if its is kind):
            function = getattr(HookSpecs, name)
            signature = re.sub(r"\(self(, )?", "(", str(inspect.signature(function)).replace("'", ""))
            word = "async def" if inspect.iscoroutinefunction(function) else "def"
            out += [f"### {heading_of(name)}", "", "```text", f"{word} {name}{signature}", "```", ""]
            out += [f"Kind: {kind}. {prose(function.__doc__)}", ""]
            if name in idle:
                out += ["*Not in use yet: you may implement it, and nothing asks for it in this release.*", ""]
    return "\n".join(out)


def values(module: Any, names: Iterable[str] | None = None, *, level: int = 3) -> str:
    """A heading for each class of a module, with its fields or members."""
    return "\n".join(value(getattr(module, name), level=level) for name in names or module.__all__)


def value(cls: Any, *, level: int = 3) -> str:
    if not isinstance(cls, type):
        return ""
    notes, documented = field_notes(cls), prose(cls.__doc__)
    if issubclass(cls, enum.Enum):
        rows = [(f"`{one.value}`", notes.get(one.name, "")) for one in cls]
        head = ("value", "meaning")
        text = "" if cls.__doc__ is None or cls.__doc__ == enum.StrEnum.__doc__ else documented
    else:
        rows = [(f"`{one.name}`", f"`{one.type}`", _default(one), notes.get(one.name, "")) for one in _fields(cls)]  # type: ignore[misc]  # tables have three columns or four
        head = ("field", "type", "default", "")  # type: ignore[assignment]  # tables have three columns or four
        text = "" if documented.startswith(f"{cls.__name__}(") else documented
    if all(not row[-1] for row in rows):
        rows, head = [row[:-1] for row in rows], head[:-1]  # type: ignore[misc, assignment]  # tables have three columns or four
    return "\n\n".join(part for part in (f"{'#' * level} `{cls.__name__}`", text, table(head, rows)) if part) + "\n"


def _fields(cls: type) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(cls)


def _default(one: dataclasses.Field[Any]) -> str:
    if one.default is dataclasses.MISSING:
        return "required" if one.default_factory is dataclasses.MISSING else "empty"
    if isinstance(one.default, enum.Enum):
        return f"`{one.default.value}`"
    if dataclasses.is_dataclass(one.default):
        return f"`{type(one.default).__name__}()`"
    return f"`{one.default!r}`"


EVENT_PARTS = ("ConversationKind", "Addressed", "ConversationChange", "ReportState")


def event_types() -> list[str]:
    return [one.__name__ for one in typing.get_args(events.Event)]


def event_parts() -> str:
    shared = values(addresses) + "\n" + values(content, ("Attachment", "AttachmentKind", "Quote"))
    return values(events, EVENT_PARTS) + "\n" + shared


def mailbox_tables() -> str:
    out = []
    for name, statements in (("inbound.db", schema.INBOUND), ("outbound.db", schema.OUTBOUND)):
        out += [f"### `{name}`", "", "```sql", *(f"{statement};" for statement in statements.values()), "```", ""]
    return "\n".join(out)


def mailbox_values() -> str:
    return values(mailbox) + "\n" + values(runner_spec) + "\n" + values(content)


# ---- channels


def channel_list() -> str:
    rows = []
    for entry, kind in docs_channels.shipped():
        name, release = kind.info.type, entry["releases"][-1]["source"]
        page = ROOT / "docs" / "channels" / f"{name}.md"
        target = page.name if page.exists() else f"../../{release['path']}/README.md"
        rows.append((f"[{kind.info.title}]({target})", f"`{name}`", entry["description"], f"`{release['package']}`"))
    return table(("channel", "type", "", "install"), rows)


def channel_abilities() -> str:
    """A row for each ability, a column for each shipped channel."""
    able = {kind.info.title: docs_channels.capabilities_of(kind) for _, kind in docs_channels.shipped()}
    rows = [(words, *(say(can) for can in able.values())) for words, _, say in docs_channels.ABILITIES]
    return table(("", *able), rows)


def channel_reference() -> str:
    """Everything public of `jackfield.api.channels`, as the code has it."""
    return "\n".join(_reference(name, getattr(channel_api, name)) for name in channel_api.__all__)


def _reference(name: str, cls: type) -> str:
    if dataclasses.is_dataclass(cls) or issubclass(cls, enum.Enum):
        return value(cls)
    lines, notes = [], []
    for method, function in vars(cls).items():
        inner = function.fget if isinstance(function, property) else function
        if method.startswith("_") or not inspect.isfunction(inner):
            continue
        signature = (
            re.sub(r"'([^']+)'", r"\1", str(inspect.signature(inner)))
            .replace("(self, ", "(")
            .replace("(self)", "()")
            .replace("''", '""')
        )
        if isinstance(function, property):
            lines.append(f"{method}: {signature.partition(' -> ')[2]}")
        else:
            lines.append(f"{'async ' if inspect.iscoroutinefunction(inner) else ''}def {method}{signature}")
        if inner.__doc__:
            notes.append(f"- `{method}`: {_one_paragraph(inner.__doc__)}")
    parts = [f"### `{name}`", prose(cls.__doc__) if cls.__doc__ else "", "```text\n" + "\n".join(lines) + "\n```"]
    return "\n\n".join(part for part in (*parts, "\n".join(notes)) if part) + "\n"


def _one_paragraph(text: str) -> str:
    return " ".join(prose(text).split())


# ---- pages


def contract_checks() -> str:
    """Every check of the contract suites, the common ones once."""
    common = {one.id for one in checks_of(PluginContract)}
    parts = [_checks_part("Checks of every plugin", PluginContract, frozenset())]
    parts += [_checks_part(f"Checks of {_PLURALS[kind]}", suite, common) for kind, suite in CONTRACTS.items()]
    return "\n\n".join(parts)


def _checks_part(heading: str, suite: type, without: Iterable[str]) -> str:
    rows = ((one.id, prose(one.text)) for one in checks_of(suite) if one.id not in set(without))
    return f"## {heading}\n\n{table(('id', 'promise'), rows)}"


_PLURALS = {
    Kind.CHANNEL: "channels",
    Kind.PROVIDER: "providers",
    Kind.RUNTIME: "runtimes",
    Kind.TOOLS: "tool sets",
    Kind.PACK: "document packs",
    Kind.EXTENSION: "extensions",
}

BLOCKS: dict[str, Callable[[], str]] = {
    "host-settings": lambda: settings("host", HostSettings),
    "ingress-settings": lambda: settings("ingress", IngressSettings),
    "approvals-settings": lambda: settings("approvals", ApprovalSettings),
    "mcp-settings": lambda: settings("mcp.<name>", McpSettings),
    "agents-settings": lambda: settings("agents", AgentsSettings),
    "irc-settings": lambda: settings("channels.<name>", IrcSettings),
    "matrix-settings": lambda: settings("channels.<name>", MatrixSettings),
    "process-settings": lambda: settings("runtimes.process", ProcessSettings),
    "slack-settings": lambda: settings("channels.<name>", SlackSettings),
    "telegram-settings": lambda: settings("channels.<name>", TelegramSettings),
    "webhook-settings": lambda: settings("channels.<name>", WebhookSettings),
    "terminal-settings": lambda: settings("channels.terminal", TerminalSettings),
    "agent-settings": lambda: settings("", AgentSettings),
    "commands": commands,
    "errors": error_pages,
    "exit-codes": exit_codes,
    "hooks": hooks,
    "hook-values": lambda: values(decisions),
    "events": lambda: values(events, event_types()),
    "event-values": event_parts,
    "mailbox-tables": mailbox_tables,
    "mailbox-values": mailbox_values,
    "contract-checks": contract_checks,
    "channel-list": channel_list,
    "channel-abilities": channel_abilities,
    "channel-reference": channel_reference,
}


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def rebuilt(text: str, used: set[str]) -> str:
    """A page's text with its generated parts made again; their names go into `used`.

    Raises:
        ValueError: it asks for a part that there is not.
    """

    def fill(found: re.Match[str]) -> str:
        name = found[2]
        if name not in BLOCKS:
            raise ValueError(f"there is no generated part {name!r}; known are {', '.join(BLOCKS)}")
        used.add(name)
        return f"{found[1]}\n{BLOCKS[name]().strip()}\n\n{found[3]}"

    return _BLOCK.sub(fill, text)


def main(arguments: list[str]) -> int:
    check, stale, used = "--check" in arguments, 0, set[str]()
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = rebuilt(before, used)
        if after == before:
            continue
        stale += 1
        name = page.relative_to(ROOT).as_posix()
        if check:
            lines = difflib.unified_diff(before.splitlines(), after.splitlines(), name, f"{name} (as it should be)")
            print("\n".join(line.rstrip() for line in lines))
        else:
            page.write_text(after, encoding="utf-8")
            print(f"wrote {name}")
    if missing := sorted(set(BLOCKS) - used):
        print(f"no page has the generated parts {', '.join(missing)}", file=sys.stderr)
        return 1
    if check and stale:
        print("docs are out of date: run `make docs` and commit what it writes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
