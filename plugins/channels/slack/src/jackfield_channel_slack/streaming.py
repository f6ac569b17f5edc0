"""A message that grows in front of its reader by Slack's own streaming, in threads; edits do it elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from jackfield.api import MessageStream, SendResult
from jackfield.clock import Clock
from jackfield.errors import ChannelError, RateLimited
from jackfield.models import Address, MessageRef, OutMessage
from jackfield_channel_kit.text.dialects.dialect import defused
from jackfield_channel_kit.text.dialects.slack import unaddressed
from jackfield_channel_kit.text.markdown import clean
from jackfield_channel_kit.text.stream import EditStream

from jackfield_channel_slack.api import WebApi
from jackfield_channel_slack.outgoing import Outgoing, fields_of, parts_of, split

__all__ = ["EDIT_SECONDS", "STREAM_SECONDS", "NativeStream", "open_stream"]

log = logging.getLogger(__name__)

EDIT_SECONDS = 3.0
"""Between two edits of a growing message; Slack allows 50 a minute in all."""
STREAM_SECONDS = 1.0
"""Between two additions to a stream; Slack allows 100 a minute."""
PIECE = 12_000
"""Characters that one call may add."""
_OVER = ("message_not_in_streaming_state", "stopped_by_user", "message_not_found")


def open_stream(
    api: WebApi, out: Outgoing, address: Address, whom: tuple[str, str] | None, *, clock: Clock
) -> MessageStream:
    """A stream to that address; `whom` are user and team of who asked, without whom Slack streams to nobody in a
    channel."""
    markup = out.markup

    async def post(text: str, key: str | None) -> str:
        return await out.post(address, fields_of(text, markup))

    async def change(message_id: str, text: str) -> None:
        fields = {"channel": address.platform_id, "ts": message_id, **fields_of(text, markup, update=True)}
        await api.call("chat.update", fields, key="chat.update")

    async def take_away(message_id: str) -> None:
        await out.delete(address, message_id)

    async def rest(message: OutMessage, key: str) -> SendResult:
        bare = OutMessage(files=message.files, prompt=message.prompt, card=message.card, plain=message.plain)
        results = [await out.send(address, part) for part in split(bare, markup)]
        return SendResult(ids=tuple(one for result in results for one in result.ids))

    def by_edits() -> MessageStream:
        return EditStream(
            post, change, take_away, interval=EDIT_SECONDS, clock=clock, rest=rest,
            render=lambda text: [rendered for _, rendered in parts_of(text, markup)],
        )  # fmt: skip

    async def replace(ts: str, message: OutMessage) -> SendResult:
        return await out.edit(MessageRef(address, (ts,)), OutMessage(text=message.text, plain=message.plain))

    if address.thread_id is None or markup != "markdown":
        return by_edits()
    return NativeStream(api, out, address, whom, clock=clock, otherwise=by_edits, replace=replace, rest=rest)


class NativeStream:
    """A `jackfield.api.MessageStream` by `chat.startStream`, `appendStream` and `stopStream`.

    What was appended can't be taken back, so only whole words are, as the agent wrote them; a final text that goes on
    otherwise, or has what Slack's Markdown has not, replaces it (`replace(ts, message)`).  Where Slack does not stream,
    `otherwise()` takes over.
    """

    def __init__(
        self,
        api: WebApi,
        out: Outgoing,
        address: Address,
        recipient: tuple[str, str] | None,
        *,
        clock: Clock,
        otherwise: Callable[[], MessageStream],
        replace: Callable[[str, OutMessage], Awaitable[SendResult]],
        rest: Callable[[OutMessage, str], Awaitable[SendResult]],
    ) -> None:
        self._api = api
        self._out = out
        self._address = address
        self._recipient = recipient
        self._interval = STREAM_SECONDS
        self._clock = clock
        self._otherwise = otherwise
        self._replace = replace
        self._rest = rest
        self._other: MessageStream | None = None
        self._ts: str | None = None
        self._sent = ""
        self._stopped = False
        self._not_before = 0.0

    async def update(self, text: str) -> None:
        """The whole text so far."""
        if self._other is not None:
            await self._other.update(text)
            return
        shown = _whole_words(text)
        if self._stopped or self._clock.monotonic() < self._not_before or not shown.startswith(self._sent):
            return
        more = shown[len(self._sent) :][:PIECE]
        if not more.strip():
            return
        self._not_before = self._clock.monotonic() + self._interval
        try:
            await self._add(more)
        except RateLimited as problem:
            self._interval *= 2
            self._not_before = self._clock.monotonic() + max(self._interval, problem.retry_after)
        except ChannelError as problem:
            if self._ts is not None:
                raise
            log.info("Slack does not stream in %s, so it is edited: %s", self._address, problem)
            self._other = self._otherwise()
            await self._other.update(text)

    async def finish(self, message: OutMessage, *, idempotency_key: str) -> SendResult:
        """Bring what is missing, or the whole text anew when it is another one."""
        if self._other is None and self._ts is None:
            self._other = self._otherwise()
        if self._other is not None:
            return await self._other.finish(message, idempotency_key=idempotency_key)
        assert self._ts is not None
        final = _safe(message.text)
        if self._stopped or message.plain or not final.startswith(self._sent) or _has_table(final):
            await self._stop(None)
            result = await self._replace(self._ts, message)
        else:
            more = final[len(self._sent) :]
            while len(more) > PIECE:
                await self._add(more[:PIECE])
                more = more[PIECE:]
            await self._stop(more or None)
            result = SendResult(ids=(self._ts,))
        if message.files or message.prompt is not None or message.card is not None:
            rest = await self._rest(message, f"{idempotency_key}:rest")
            result = SendResult(ids=(*result.ids, *rest.ids), degraded=rest.degraded)
        return result

    async def abort(self) -> None:
        """Take it away."""
        if self._other is not None:
            await self._other.abort()
        elif self._ts is not None:
            await self._stop(None)
            where = {"channel": self._address.platform_id, "ts": self._ts}
            await self._api.call("chat.delete", where, tolerate=("message_not_found",))

    async def _add(self, more: str) -> None:
        if self._ts is None:
            user, team = self._recipient or (None, None)
            said = await self._api.call(
                "chat.startStream",
                {
                    "channel": self._address.platform_id,
                    "thread_ts": self._address.thread_id,
                    "recipient_user_id": user,
                    "recipient_team_id": team,
                    "markdown_text": more,
                },
                key=self._address.platform_id,
            )
            self._ts = self._out.sent(self._address, str(said.get("ts") or ""))
        else:
            where = {"channel": self._address.platform_id, "ts": self._ts}
            said = await self._api.call(
                "chat.appendStream", {**where, "markdown_text": more}, key="stream", tolerate=_OVER
            )
            if said.get("ok") is not True:  # Slack ended it: the final text replaces it
                self._stopped = True
                return
        self._sent += more

    async def _stop(self, more: str | None) -> None:
        if self._stopped:
            return
        where = {"channel": self._address.platform_id, "ts": self._ts}
        await self._api.call("chat.stopStream", {**where, "markdown_text": more}, key="stream", tolerate=_OVER)
        self._stopped = True


def _safe(text: str) -> str:
    """Markdown as it was written, that reaches nobody."""
    return unaddressed(defused(clean(text)))


def _whole_words(text: str) -> str:
    """What of a growing text stands: all but its last word."""
    end = max(text.rfind(" "), text.rfind("\n"))
    return _safe(text[: end + 1])


def _has_table(text: str) -> bool:
    """Whether a line of it divides a table's head from its body; Slack's Markdown has no tables."""
    return any("|" in line and "-" in line and not line.strip("|:- \t") for line in text.split("\n"))
