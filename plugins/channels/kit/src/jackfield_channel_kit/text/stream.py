"""A message that grows in front of its reader, for platforms where that means sending once and editing then.

Edits count against the platform's limits, so they are throttled; what a throttled update leaves out, a later one or
`finish` brings.  While the text is partial, Markdown that is open is closed for the eye.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Sequence

from jackfield.api import SendResult
from jackfield.clock import Clock
from jackfield.errors import ChannelError, RateLimited
from jackfield.models import OutMessage

__all__ = ["CUT_OFF", "EditStream", "completed"]

log = logging.getLogger(__name__)

CUT_OFF = "*(cut off)*"
"""What stands below a message that was aborted and can't be taken away."""
_SLOWEST = 60.0
"""Seconds between two edits, however often the platform complained."""
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n]*)$", re.M)
_OPEN_LINK = re.compile(r"!?\[[^\]\n]*(?:\]\([^)\s]*)?$")
_TOKEN = re.compile(r"\\.|`+|\*\*|__|~~|\*|_", re.S)


class EditStream:
    """A `jackfield.api.MessageStream` over a channel's own calls.

    `send(text, key)` sends one message of rendered text and returns its id; `key` is the idempotency key, None while
    the text still grows.  `edit(id, text)` changes it, `delete(id)` takes it away; without `delete` an aborted message
    is marked instead.  `render(text)` makes the messages of a CommonMark text, each as long as the platform takes.
    `rest(message, key)` sends what is no text (files, a prompt, a card) when the text stands.

    While the text grows, at most `limit_parts` messages of it are shown.
    """

    def __init__(
        self,
        send: Callable[[str, str | None], Awaitable[str]],
        edit: Callable[[str, str], Awaitable[None]],
        delete: Callable[[str], Awaitable[None]] | None,
        *,
        interval: float,
        clock: Clock,
        render: Callable[[str], Sequence[str]],
        limit_parts: int = 4,
        rest: Callable[[OutMessage, str], Awaitable[SendResult]] | None = None,
    ) -> None:
        self._send = send
        self._edit = edit
        self._delete = delete
        self._rest = rest
        self._render = render
        self._clock = clock
        self._interval = interval
        self._limit_parts = limit_parts
        self._not_before = 0.0
        self._text = ""
        self._shown: list[tuple[str, str]] = []
        """Platform id and text of each message, in order."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The platform ids of what is shown now."""
        return tuple(message_id for message_id, _ in self._shown)

    async def update(self, text: str) -> None:
        """Show the whole text so far, unless the last edit is younger than the interval.

        Raises:
            ChannelError: the platform refused; not for a rate limit, which only doubles the interval.
        """
        self._text = text
        if self._clock.monotonic() < self._not_before or not text.strip():
            return
        parts = list(self._render(completed(text)))[: self._limit_parts]
        try:
            await self._show(parts, None)
        except RateLimited as problem:
            self._interval = min(_SLOWEST, max(self._interval, 0.1) * 2)
            self._not_before = self._clock.monotonic() + max(self._interval, problem.retry_after or 0.0)
            log.info("a growing message is shown more slowly now: %s", problem)
        else:
            self._not_before = self._clock.monotonic() + self._interval

    async def finish(self, message: OutMessage, *, idempotency_key: str) -> SendResult:
        """Bring the final text and whatever else the message holds.

        Raises:
            ChannelError: it could not be brought; with the same call again it goes on where it was.
        """
        self._text = message.text
        parts = list(self._render(message.text)) if message.text.strip() else []
        await self._show(parts, idempotency_key)
        while len(self._shown) > len(parts):
            message_id, _ = self._shown[-1]
            if self._delete is not None:
                await self._delete(message_id)
            else:
                await self._edit(message_id, "…")
            self._shown.pop()
        result = SendResult(ids=self.ids)
        if self._rest is not None and (message.files or message.prompt is not None or message.card is not None):
            more = await self._rest(message, f"{idempotency_key}:rest")
            result = SendResult(ids=(*self.ids, *more.ids), final=more.final, degraded=more.degraded)
        return result

    async def abort(self) -> None:
        """Take it away where the platform can, else mark it as cut off.

        Raises:
            ChannelError: neither went.
        """
        if self._delete is not None:
            while self._shown:
                await self._delete(self._shown[-1][0])
                self._shown.pop()
        elif self._shown:
            await self._show(list(self._render(f"{completed(self._text)}\n\n{CUT_OFF}")), None)

    async def _show(self, parts: Sequence[str], key: str | None) -> None:
        """Edit what differs and send what is new; each success counts at once, so that a retry repeats nothing."""
        for index, part in enumerate(parts):
            if index >= len(self._shown):
                part_key = key if key is None or index == 0 else f"{key}:{index + 1}"
                self._shown.append((await self._send(part, part_key), part))
            elif self._shown[index][1] != part:
                message_id = self._shown[index][0]
                await self._edited(message_id, part)
                self._shown[index] = (message_id, part)

    async def _edited(self, message_id: str, part: str) -> None:
        try:
            await self._edit(message_id, part)
        except RateLimited:
            raise
        except ChannelError as problem:
            if "not modified" not in str(problem).lower():  # C058: the platform shows it already
                raise


def completed(text: str) -> str:
    """A partial text with its open fence, code and emphasis closed; an unfinished link or marker at its end waits."""
    opened: re.Match[str] | None = None
    for found in _FENCE.finditer(text):
        if opened is None:
            if not (found[1][0] == "`" and "`" in found[2]):
                opened = found
        elif found[1][0] == opened[1][0] and len(found[1]) >= len(opened[1]) and not found[2].strip():
            opened = None
    if opened is not None:
        tail = text[text.rfind("\n") + 1 :]
        if tail.strip() and set(tail.strip()) == {opened[1][0]} and opened.start() < len(text) - len(tail):
            text = text[: len(text) - len(tail)]
        return text + ("" if text.endswith("\n") else "\n") + opened[1]
    start = text.rfind("\n\n") + 2 if "\n\n" in text else 0
    fences = [found.end() for found in _FENCE.finditer(text, start)]
    start = fences[-1] if fences else start
    head, tail = text[:start], text[start:]
    link = _OPEN_LINK.search(tail[-2000:])
    if link is not None:
        tail = tail[: len(tail) - (len(link[0]))]
    open_marks: list[str] = []
    code = ""
    for found in _TOKEN.finditer(tail):
        token = found[0]
        if token[0] == "`":
            code = "" if token == code else code or token
        elif code or token[0] == "\\":
            continue
        elif token in open_marks:
            if not tail[found.start() - 1 : found.start()].isspace():
                del open_marks[open_marks.index(token) :]
        elif found.end() < len(tail) and not tail[found.end()].isspace() and not _in_word(tail, found):
            open_marks.append(token)
    tail = tail.rstrip(" ")
    if code and not tail.endswith(code):
        return head + tail + code
    tail = tail.rstrip("*_~`") if tail.endswith(("*", "_", "~", "`")) and _dangling(tail) else tail
    stripped = tail.rstrip()
    return head + stripped + "".join(reversed(open_marks)) if open_marks and stripped else head + tail


def _in_word(text: str, found: re.Match[str]) -> bool:
    """Whether a marker stands between two letters, as in snake_case."""
    before = text[found.start() - 1 : found.start()]
    return found[0][0] == "_" and before.isalnum()


def _dangling(text: str) -> bool:
    """Whether the markers at the end follow white space, and so can only open something."""
    bare = text.rstrip("*_~`")
    return not bare or bare[-1].isspace()
