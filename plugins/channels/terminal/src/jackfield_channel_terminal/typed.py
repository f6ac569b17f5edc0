"""What a typed line means."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = ["HELP", "Choose", "Help", "Nothing", "Problem", "Quit", "Speak", "Typed", "dropped_paths", "read_line"]

HELP = """\
Enter sends. Alt+Enter, or a backslash at the end of a line, begins another line.
/file PATH [TEXT]   send a file; dragging files into the window does the same
/help               this
/quit               leave, as Ctrl-D does
Answer a question by the number or the words of a choice.
Every other command, like /clear, goes to the agent."""


@dataclass(frozen=True, slots=True)
class Speak:
    """Send this."""

    text: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choose:
    """Answer the open question with this choice's value."""

    prompt_id: str
    value: str


@dataclass(frozen=True, slots=True)
class Problem:
    """It can't be done; tell why."""

    text: str


@dataclass(frozen=True, slots=True)
class Help:
    """Show what can be typed."""


@dataclass(frozen=True, slots=True)
class Quit:
    """Leave."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """An empty line."""


_QUOTED = re.compile(r"""^(["'])(.*?)\1(?:\s+(.*))?$""", re.DOTALL)
_WORD = re.compile(r"^((?:\\.|[^\s\\])+)(.*)$", re.DOTALL)

Typed = Speak | Choose | Problem | Help | Quit | Nothing


def read_line(line: str, prompt: dict[str, Any] | None, folder: Path) -> Typed:
    """What to do about a line.  `prompt` is the open question, if there is one; relative paths start in `folder`."""
    text = line.strip()
    if not text:
        return Nothing()
    word, _, rest = text.partition(" ")
    match word.lower():
        case "/help" | "/?":
            return Help()
        case "/quit" | "/exit":
            return Quit()
        case "/file":
            return _file(rest.strip(), folder)
        case _:
            pass
    if prompt is not None and (value := _chosen(text, prompt)) is not None:
        return Choose(str(prompt["id"]), value)
    files = dropped_paths(text)
    return Speak("", files) if files else Speak(line.rstrip())


def _chosen(text: str, prompt: dict[str, Any]) -> str | None:
    """The value of the choice that a number or label names."""
    choices = prompt["choices"]
    number = text.rstrip(".)")
    if number.isdecimal() and number.isascii() and 1 <= int(number[:6]) <= len(choices):
        return str(choices[int(number) - 1]["value"])
    for choice in choices:
        if text.casefold() == str(choice["label"]).strip().casefold():
            return str(choice["value"])
    return None


def _file(rest: str, folder: Path) -> Typed:
    if not rest:
        return Problem("/file needs a path: /file PATH [TEXT]")
    # The whole rest may be one path with spaces in it; else the first word is the path.
    for path, text in ((rest, ""), _first_word(rest)):
        found = (folder / _path_of(path)).absolute()
        if _is_file(found):
            return Speak(text, (str(found),))
    return Problem(f"there is no file {_first_word(rest)[0]}")


def _first_word(rest: str) -> tuple[str, str]:
    """The first word, which may be quoted or hold escaped spaces, and what follows it."""
    found = _QUOTED.match(rest)
    if found is not None:
        return found[2], (found[3] or "").strip()
    found = _WORD.match(rest)
    if found is None:
        return rest, ""
    return re.sub(r"\\(.)", r"\1", found[1]), found[2].strip()


def dropped_paths(text: str) -> tuple[str, ...]:
    """The files, if the line is nothing but absolute paths of existing ones, as terminals write them when files are
    dragged in: quoted, with backslashes, or as `file://` addresses."""
    if not text.startswith(("/", "~/", "'", '"', "file://", "\\")):
        return ()
    if text.startswith("/") and _is_file(Path(text)):
        return (text,)
    try:
        words = shlex.split(text)
    except ValueError:
        return ()
    paths = [_path_of(word) for word in words]
    if not paths or not all(path.is_absolute() and _is_file(path) for path in paths):
        return ()
    return tuple(str(path) for path in paths)


def _path_of(word: str) -> Path:
    try:
        if word.startswith("file://"):
            return Path(unquote(urlsplit(word).path))
        return Path(word).expanduser()
    except (RuntimeError, ValueError):  # no such user; no address
        return Path(word)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
