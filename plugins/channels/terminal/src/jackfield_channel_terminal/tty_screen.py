"""The interactive screen: a prompt at the bottom, messages above it.

prompt_toolkit owns the terminal from beginning to end, so that no key falls between two prompts.  A growing answer and
the sign that the agent works are part of the prompt itself and redrawn in place; whole messages are printed above it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import textwrap
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from jackfield_channel_terminal.cleaning import clean, clean_name, shorten
from jackfield_channel_terminal.frames import Frame
from jackfield_channel_terminal.rendering import rich_text

__all__ = ["TtyScreen", "private_history"]

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TICK = 0.12
_TWICE = 2.0
"""Seconds in which a second Ctrl-C on an empty line leaves."""
_TYPING_TTL = 15.0
"""Seconds after which a sign of work that nobody renewed is taken away."""
_STYLE = Style.from_dict({"prompt": "bold", "draft": "", "busy": "ansicyan", "hint": "ansibrightblack"})


def private_history(path: Path) -> FileHistory:
    """Lines typed before, in a file that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    path.chmod(0o600)
    return FileHistory(str(path))


class TtyScreen:
    """One person's terminal."""

    def __init__(self, *, name: str, history: Path, color: bool) -> None:
        self._name = clean_name(name)
        self._color = color
        self._drafts: dict[str, str] = {}
        self._typing_until = 0.0
        self._entered: asyncio.Queue[str | None] = asyncio.Queue()
        self._interrupted_at = float("-inf")
        self._ticker: asyncio.Task[None] | None = None
        self._depth = None if color else ColorDepth.DEPTH_1_BIT
        self._session: PromptSession[str] = PromptSession(
            message=self._message,
            history=private_history(history),
            multiline=True,
            prompt_continuation="  ",
            key_bindings=self._keys(),
            style=_STYLE,
            color_depth=self._depth,
            enable_open_in_editor=False,
            reserve_space_for_menu=0,
        )

    async def lines(self) -> AsyncGenerator[str, None]:
        """What is entered, until the person leaves."""
        prompting = asyncio.create_task(self._prompt(), name="chat: prompt")
        try:
            while (line := await self._entered.get()) is not None:
                yield line
            await prompting
        finally:
            prompting.cancel()
            await asyncio.gather(prompting, return_exceptions=True)
            if self._ticker is not None:
                self._ticker.cancel()

    async def _prompt(self) -> None:
        try:
            await self._session.prompt_async(handle_sigint=False)
        except EOFError:
            pass
        finally:
            self._entered.put_nowait(None)

    def _enter(self, buffer: Buffer) -> None:
        """Take the line away from the prompt and leave it above."""
        line = buffer.text
        if line.strip():
            buffer.append_to_history()
            self._write(self._styled("› ", "1") + clean(line).replace("\n", "\n  "))
        buffer.reset()
        self._entered.put_nowait(line)

    def _interrupt(self, buffer: Buffer) -> None:
        """Ctrl-C: empty the line; on an empty one, leave at the second time."""
        if buffer.text:
            buffer.reset()
        elif time.monotonic() - self._interrupted_at < _TWICE:
            self._session.app.exit(exception=EOFError())
        else:
            self._interrupted_at = time.monotonic()
            self._write(self._styled("Press Ctrl-C again, or Ctrl-D, to leave.", "90"))

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                self._enter(buffer)

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            self._interrupt(event.current_buffer)

        return keys

    # ---- what a conversation shows

    async def show(self, frame: Frame) -> None:
        width = shutil.get_terminal_size().columns
        text = await asyncio.to_thread(rich_text, frame, width=width, color=self._color)
        self._write(self._heading(self._name) + "\n" + text + "\n")

    async def edited(self, message_id: str, text: str, was: str | None) -> None:
        self._write(self._heading(f"{self._name} (edited)") + "\n" + clean(text) + "\n")

    async def reacted(self, emoji: str, on: bool, was: str | None) -> None:
        about = f" to “{clean_name(was, 40)}”" if was else ""
        self._aside(f"{self._name} {'reacted' if on else 'took back'} {clean_name(emoji)}{about}")

    async def decided(self, text: str) -> None:
        self._aside(clean(text))

    async def note(self, text: str) -> None:
        self._aside(text)

    async def problem(self, text: str) -> None:
        self._write(self._styled(clean(text), "31"))

    def draft(self, key: str, text: str | None) -> None:
        if text is None:
            self._drafts.pop(key, None)
        else:
            self._drafts[key] = text
            self._typing_until = max(self._typing_until, time.monotonic() + 1.0)
        self._tick()

    def typing(self, on: bool) -> None:
        self._typing_until = time.monotonic() + _TYPING_TTL if on else 0.0
        self._tick()

    def raw(self, frame: Frame) -> None:
        pass

    # ---- drawing

    def _message(self) -> FormattedText:
        """The prompt, and above it what is growing; at the end nothing of that stays."""
        if get_app().is_done:
            return FormattedText([])
        parts: list[tuple[str, str]] = []
        size = shutil.get_terminal_size()
        for text in self._drafts.values():
            parts.append(("class:draft", "\n".join(_tail(text, size.columns - 2, max(3, size.lines - 6))) + "\n"))
        if time.monotonic() < self._typing_until:
            mark = _SPINNER[int(time.monotonic() / _TICK) % len(_SPINNER)]
            parts.append(("class:busy", f"{mark} {self._name} is at work\n"))
        parts.append(("class:prompt", "› "))
        return FormattedText(parts)

    def _tick(self) -> None:
        self._session.app.invalidate()
        if self._ticker is None or self._ticker.done():
            self._ticker = asyncio.get_running_loop().create_task(self._redraw(), name="chat spinner")

    async def _redraw(self) -> None:
        while self._drafts or time.monotonic() < self._typing_until:
            self._session.app.invalidate()
            await asyncio.sleep(_TICK)
        self._session.app.invalidate()

    def _aside(self, text: str) -> None:
        if text:
            self._write(self._styled(text, "90"))

    def _write(self, text: str) -> None:
        """Above the prompt; written when it returns.

        Not by prompt_toolkit's own printing: that comes later, and leaves raw mode for the while, so that a Ctrl-D
        which is typed in that moment would be the kernel's.
        """
        app = self._session.app
        if app.is_running:
            app.renderer.erase()
        app.output.write_raw(text.replace("\n", "\r\n") + "\r\n")
        app.output.flush()
        if app.is_running:
            app.renderer.reset()
            app.renderer.request_absolute_cursor_position()
            app.invalidate()

    def _heading(self, text: str) -> str:
        return self._styled(text, "1;36")

    def _styled(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._color else text


def _tail(text: str, width: int, lines: int) -> list[str]:
    """The last lines of a text as it would wrap; only its end is looked at, so that a long text costs no more."""
    shown: list[str] = []
    for line in clean(text[-width * lines :]).split("\n"):
        shown.extend(textwrap.wrap(line, max(10, width), drop_whitespace=False) or [""])
    return [shorten(line, width) for line in shown[-lines:]]
