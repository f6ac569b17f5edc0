"""One workspace: what happens there comes in by sockets or requests, answers go out by the Web API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from jackfield.api import (
    ActionReply,
    ChannelContext,
    Health,
    HttpRoute,
    MessageStream,
    RawRequest,
    RawResponse,
    SendResult,
)
from jackfield.clock import SystemClock
from jackfield.errors import AuthFailed, ConfigError, Transient, Unsupported
from jackfield.models import (
    Address,
    Attachment,
    Capabilities,
    ChannelState,
    ChannelStatus,
    MessageReceived,
    MessageRef,
    OpenDm,
    OutMessage,
    Person,
    StreamKind,
    Support,
    TextUnit,
    Threads,
)
from jackfield_channel_kit.claims import Claim, claim
from jackfield_channel_kit.prompt import PromptBook
from jackfield_channel_kit.reconnect import supervise
from jackfield_channel_kit.selfguard import SelfGuard

from jackfield_channel_slack.api import WebApi, user_of
from jackfield_channel_slack.blocks import BUTTONS, LABEL, sections
from jackfield_channel_slack.catching_up import catch_up
from jackfield_channel_slack.checking import checked
from jackfield_channel_slack.downloads import opened
from jackfield_channel_slack.emoji import name_of
from jackfield_channel_slack.history import history
from jackfield_channel_slack.inbox import Inbox
from jackfield_channel_slack.names import Names
from jackfield_channel_slack.outgoing import CAPTION, FILES_AT_ONCE, LIMIT, Outgoing, parts_of, split
from jackfield_channel_slack.reading import Reader
from jackfield_channel_slack.settings import SlackSettings
from jackfield_channel_slack.sockets import Socket
from jackfield_channel_slack.streaming import EDIT_SECONDS, STREAM_SECONDS, open_stream

__all__ = ["SlackChannel"]

log = logging.getLogger(__name__)

FIRST_SECONDS = 10.0
"""How long `start` waits for the first connection; it goes on in the background."""
STATUS_SECONDS = 60.0
"""Slack keeps a status for two minutes, or until we post."""
DEAF_SECONDS = 60.0
"""After so long without a connection the history is read: what was written may not come again."""
STATUS = "is working on it…"


class SlackChannel:
    """See `jackfield.api.Channel`."""

    def __init__(self, instance: str, settings: SlackSettings) -> None:
        self._instance = instance
        self._settings = settings
        self._context: ChannelContext | None = None
        self._secrets: tuple[str, ...] = ()
        self._api: WebApi | None = None
        self._out: Outgoing | None = None
        self._reader: Reader | None = None
        self._names: Names | None = None
        self._inbox: Inbox | None = None
        self._own = SelfGuard()
        self._claim: Claim | None = None
        self._prompts = PromptBook()
        self._main: asyncio.Task[None] | None = None
        self._preparing = asyncio.Lock()
        self._told = asyncio.Event()
        self._states: dict[int, ChannelState] = {}
        self._state: ChannelState | None = None
        self._deaf_since: float | None = -math.inf
        """Since when nothing comes in; None while something does."""

    def __repr__(self) -> str:
        return f"<slack {self._instance}>"

    # ---- life

    async def start(self, context: ChannelContext) -> None:
        """Read the secrets and connect.

        Raises:
            ConfigError: a secret is not there, or another instance uses the same token.
        """
        self._api = await self._opened_api(context)
        token = await self._read(context, self._settings.app_token or self._settings.bot_token)
        # Slack divides what is written in all workspaces of an app among all its sockets.
        self._claim = claim("slack", self._instance, token, fix="make an app of its own for this channel")
        self._out = Outgoing(self._api, self._settings.markup, self._own, self._prompts, context.clock)
        self._context = context
        context.report(ChannelStatus(state=ChannelState.STARTING))
        context.spawn(self._run(context), f"slack {self._instance}")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._told.wait(), FIRST_SECONDS)

    async def stop(self) -> None:
        self._context = None
        if self._claim is not None:
            self._claim.release()
        main, self._main = self._main, None
        if main is not None and main is not asyncio.current_task():
            main.cancel()
            await asyncio.wait({main}, timeout=1.5)
        inbox, self._inbox = self._inbox, None
        if inbox is not None:
            await inbox.close()
        api, self._api = self._api, None
        if api is not None:
            await api.close()

    async def check(self, context: ChannelContext) -> Health:
        """Whether Slack accepts the tokens, and the app may do all it needs."""
        try:
            api = await self._opened_api(context)
        except ConfigError as problem:
            return Health(ok=False, detail=problem.message, fix=problem.fix)
        return await checked(api, self._settings)

    def capabilities(self, address: Address | None = None) -> Capabilities:
        threaded = address is None or address.thread_id is not None
        direct = address is not None and address.platform_id.startswith("D")
        return Capabilities(
            text_limit=LIMIT,
            text_unit=TextUnit.UTF16,
            dialect="slack-markdown" if self._settings.markup == "markdown" else "slack-mrkdwn",
            tables=Support.EMULATED,
            edit=Support.NATIVE,
            delete=Support.NATIVE,
            react=Support.NATIVE,
            threads=Threads.NATIVE,
            typing=Support.LIMITED if threaded else Support.NONE,
            typing_ttl=STATUS_SECONDS,
            stream=StreamKind.NATIVE if threaded else StreamKind.EDIT,
            stream_interval=STREAM_SECONDS if threaded else EDIT_SECONDS,
            files=Support.NATIVE,
            file_max_bytes=self._settings.file_max_bytes,
            file_max_count=FILES_AT_ONCE,
            caption_limit=CAPTION,
            prompt=Support.NATIVE,
            prompt_max_choices=BUTTONS,
            prompt_label_limit=LABEL,
            cards=Support.NATIVE,
            ephemeral=Support.NATIVE if not direct else Support.EMULATED,
            open_dm=OpenDm.YES,
            history=Support.NATIVE,
            rate_per_chat=1.0,
            needs_public_url=self._settings.mode == "events",
        )

    # ---- in

    def http_routes(self) -> Sequence[HttpRoute]:
        if self._settings.mode != "events":
            return []
        return [HttpRoute(path="/", methods=("POST",), handle=self._request)]

    async def _request(self, request: RawRequest) -> RawResponse:
        inbox = self._inbox
        if inbox is None:
            return RawResponse(status=503, headers=(("retry-after", "5"),))
        return await inbox.request(request, self._secrets)

    async def _run(self, context: ChannelContext) -> None:
        """Keep the connections; ends when Slack does not accept us."""
        self._main = asyncio.current_task()
        places: list[Callable[[Callable[[], None]], Any]] = []
        sockets: list[Socket] = []
        if self._settings.mode == "events":
            places.append(self._wait_for_requests)
        else:
            assert self._api is not None
            for _ in range(self._settings.sockets):
                socket = Socket(
                    self._api.socket_url, self._envelope, clock=context.clock, expected=self._settings.sockets
                )
                sockets.append(socket)
                places.append(partial(self._keep_socket, socket))
        try:
            async with asyncio.TaskGroup() as group:
                for number, connect in enumerate(places):
                    group.create_task(
                        supervise(connect, partial(self._report, number), clock=context.clock),
                        name=f"slack {self._instance} {number + 1}",
                    )
        finally:
            for socket in sockets:
                await socket.close()

    async def _wait_for_requests(self, ready: Callable[[], None]) -> None:
        await self._prepare()
        ready()
        await asyncio.Event().wait()

    async def _keep_socket(self, socket: Socket, ready: Callable[[], None]) -> None:
        await self._prepare()
        await socket.connect(ready)

    async def _prepare(self) -> None:
        """Before we listen: learn who we are, and what was written while we did not listen."""
        context, api = self._context, self._api
        if context is None or api is None:
            raise Transient("the channel was stopped")
        async with self._preparing:
            if self._inbox is None:
                await self._identify(context, api)
            assert self._reader is not None and self._names is not None
            if self._deaf_since is not None and context.clock.monotonic() - self._deaf_since >= DEAF_SECONDS:
                await catch_up(context, api, self._reader, self._names)
                self._deaf_since = None

    async def _identify(self, context: ChannelContext, api: WebApi) -> None:
        """Before this nothing can be told from our own."""
        me = await api.identity()
        if not me.user_id or not me.team_id:
            raise Transient("auth.test: Slack does not say who we are")
        self._own.ids |= {one for one in (me.user_id, me.bot_id) if one}
        self._names = Names(api, context.clock)
        self._reader = Reader(
            self._instance, me, self._own, thread_replies=self._settings.thread_replies, prompts=self._prompts
        )
        self._inbox = Inbox(context, me, self._reader, self._names, self._revoked)

    async def _envelope(self, envelope: Any) -> None:
        inbox = self._inbox
        if inbox is None:
            raise Transient("the channel was stopped")
        await inbox.envelope(envelope)

    async def _revoked(self, why: str) -> None:
        """Slack took our token away: one report, and no more tries."""
        self._report(-1, ChannelStatus(state=ChannelState.AUTH_FAILED, detail=f"{why}; install it again"))
        if self._main is not None:
            self._main.cancel()

    def _report(self, number: int, status: ChannelStatus) -> None:
        """One state from several sockets: ready while one is; a refused token is told once."""
        context = self._context
        if context is None or self._state is ChannelState.AUTH_FAILED:
            return
        self._states[number] = status.state
        if status.state is not ChannelState.AUTH_FAILED and ChannelState.READY in self._states.values():
            self._deaf_since = None
            status = ChannelStatus(state=ChannelState.READY)
            if self._state is ChannelState.READY:
                return
        elif self._deaf_since is None:
            self._deaf_since = context.clock.monotonic()
        self._state = status.state
        context.report(status)
        self._told.set()

    # ---- out

    async def send(self, address: Address, message: OutMessage, *, idempotency_key: str) -> SendResult:
        """See `Outgoing.send`; Slack knows no idempotency keys."""
        _, out = self._ends()
        with self._watched():
            return await out.send(address, message)

    async def edit(self, ref: MessageRef, message: OutMessage) -> SendResult:
        _, out = self._ends()
        with self._watched():
            return await out.edit(ref, message)

    async def delete(self, ref: MessageRef) -> None:
        _, out = self._ends()
        with self._watched():
            for message_id in ref.ids:
                await out.delete(ref.address, message_id)

    def split(self, address: Address, message: OutMessage) -> Sequence[OutMessage]:
        return split(message, self._settings.markup)

    async def react(self, ref: MessageRef, emoji: str, on: bool = True) -> None:
        api, _ = self._ends()
        name = name_of(emoji)
        if name is None:
            raise Unsupported(f"Slack's name of {emoji!r} is not known", fix="give a name: thumbsup, eyes, tada, ...")
        where = {"channel": ref.address.platform_id, "timestamp": ref.ids[0], "name": name}
        with self._watched():
            if on:
                await api.call("reactions.add", where, tolerate=("already_reacted",))
            else:
                await api.call("reactions.remove", where, tolerate=("no_reaction",))

    async def typing(self, address: Address, on: bool = True) -> None:
        """A status below the thread; Slack has none elsewhere."""
        api, _ = self._ends()
        if address.thread_id is None:
            raise Unsupported("Slack shows in threads only that somebody works")
        where = {"channel_id": address.platform_id, "thread_ts": address.thread_id}
        with self._watched():
            await api.call("assistant.threads.setStatus", {**where, "status": STATUS if on else ""})

    async def open_dm(self, person: Person) -> Address:
        api, _ = self._ends()
        with self._watched():
            said = await api.call("conversations.open", {"users": user_of(person.handle)})
        return Address("slack", self._instance, str(said["channel"]["id"]))

    async def answer(self, responder: str, source: MessageRef | None, reply: ActionReply) -> None:
        """The text in place of the question; or a word to who clicked in vain."""
        api, _ = self._ends()
        conversation, ts, user, thread, hidden = json.loads(responder)
        text = parts_of(reply.text, "mrkdwn", CAPTION)[0][1] if reply.text.strip() else "…"
        url = self._inbox.response_urls.get((conversation, ts, user)) if self._inbox is not None else None
        with self._watched():
            if hidden and url is not None:
                body = {"text": text, "replace_original": reply.accepted, "response_type": "ephemeral"}
                await api.http.request("POST", url, json=body)
            elif reply.accepted and not hidden:
                fields = {"text": text, "blocks": sections(reply.text)}
                await api.call("chat.update", {"channel": conversation, "ts": ts, **fields}, key="chat.update")
            else:
                fields = {"channel": conversation, "user": user, "thread_ts": thread, "text": text}
                await api.call("chat.postEphemeral", fields)

    def open_stream(self, address: Address, *, reply_to: MessageRef | None = None) -> MessageStream:
        api, out = self._ends()
        context = self._context
        whom = self._inbox.last_speaker.get(address) if self._inbox is not None else None
        return open_stream(api, out, address, whom, clock=context.clock if context is not None else SystemClock())

    def open_attachment(self, attachment: Attachment) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._opened(attachment)

    @contextlib.asynccontextmanager
    async def _opened(self, attachment: Attachment) -> AsyncGenerator[AsyncIterator[bytes], None]:
        api, _ = self._ends()
        async with opened(api, attachment, limit=self._settings.file_max_bytes) as parts:
            yield parts

    async def history(self, address: Address, *, after: str | None = None, limit: int = 50) -> list[MessageReceived]:
        api, _ = self._ends()
        context, reader = self._context, self._reader
        if context is None or reader is None:
            raise Transient("Slack was not reached yet")
        with self._watched():
            return await history(api, reader, address, after=after, limit=limit, now=context.clock.now())

    # ---- small things

    def _ends(self) -> tuple[WebApi, Outgoing]:
        if self._api is None or self._out is None:
            raise Transient("the channel is not started")
        return self._api, self._out

    @contextlib.contextmanager
    def _watched(self) -> Generator[None, None, None]:
        """A token that Slack refuses is reported, once."""
        try:
            yield
        except AuthFailed as problem:
            self._report(-1, ChannelStatus(state=ChannelState.AUTH_FAILED, detail=str(problem)))
            raise

    async def _opened_api(self, context: ChannelContext) -> WebApi:
        settings = self._settings
        bot_token = await self._read(context, settings.bot_token)
        app_token = await self._read(context, settings.app_token) if settings.app_token is not None else None
        self._secrets = tuple([await self._read(context, name) for name in settings.signing_secret])
        return WebApi(settings.api_url, bot_token, app_token=app_token, redact=self._secrets, clock=context.clock)

    async def _read(self, context: ChannelContext, name: str) -> str:
        value = await context.secret(name)
        if not value:
            raise ConfigError(f"the secret {name!r} of slack {self._instance} is not set", fix="set it, then reload")
        return value.strip()
