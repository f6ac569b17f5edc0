"""One bot: what comes in goes to the core, what the core sends becomes Bot API calls."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
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
from jackfield.errors import (
    AuthFailed,
    ChannelError,
    ChatNotFound,
    ConfigError,
    Transient,
)
from jackfield.models import (
    Address,
    Attachment,
    Capabilities,
    ChannelState,
    ChannelStatus,
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

from jackfield_channel_telegram.api import UPLOAD_LIMIT, Bot, MissingMethod, is_group
from jackfield_channel_telegram.intake import Poller
from jackfield_channel_telegram.reactions import ALLOWED, chosen
from jackfield_channel_telegram.reading import Reader
from jackfield_channel_telegram.sending import Sender, number
from jackfield_channel_telegram.settings import TelegramSettings
from jackfield_channel_telegram.streams import GROUP_SECONDS, PRIVATE_SECONDS, DraftStream, edited
from jackfield_channel_telegram.webhook import Hook, check_secret
from jackfield_channel_telegram.writing import (
    ALBUM,
    CAPTION_LIMIT,
    LABEL_LIMIT,
    RICH_LIMIT,
    TEXT_LIMIT,
    html,
    parts,
)

__all__ = ["TelegramChannel"]

log = logging.getLogger(__name__)

TOAST_SECONDS = 1.0
"""How long a click waits for what the core says to it, before its spinner is taken away without a word."""
STOP_SECONDS = 1.5


class TelegramChannel:
    """See `jackfield.api.Channel`."""

    def __init__(self, instance: str, settings: TelegramSettings) -> None:
        self._instance = instance
        self._settings = settings
        self._prompts = PromptBook()
        self._context: ChannelContext | None = None
        self._bot: Bot | None = None
        self._sender: Sender | None = None
        self._claim: Claim | None = None
        self._hook: Hook | None = None
        self._task: asyncio.Task[None] | None = None
        self._clicks: dict[str, asyncio.Future[str | None]] = {}

    def __repr__(self) -> str:
        return f"<telegram {self._instance}>"

    # ---- life

    async def start(self, context: ChannelContext) -> None:
        """Connect in the background, and stay connected.

        Raises:
            ConfigError: a secret is missing, or another instance uses the same token.
        """
        token = await _secret(context, self._settings.token)
        secret = await _secret(context, self._settings.webhook_secret) if self._settings.webhook_secret else ""
        if self._settings.webhook:
            self._check_url(context.route_url())
            check_secret(secret)
        # Telegram gives each message to one of them only.
        self._claim = claim("telegram", self._instance, token, fix="make another bot at @BotFather for this channel")
        self._context = context
        self._bot = Bot(self._settings.api_url, token, clock=context.clock, pacing=self._settings.pacing)
        self._sender = Sender(self._bot, self._instance, self._prompts, rich=self._settings.rich)
        context.report(ChannelStatus(state=ChannelState.STARTING))
        context.spawn(self._run(self._bot, context, secret), f"telegram {self._instance}")

    def _check_url(self, url: str | None) -> None:
        if url is None:
            raise ConfigError(
                "webhook = true needs the host's HTTP server",
                fix="pip install 'jackfield[ingress]', or remove `webhook`",
            )
        own_server = self._settings.api_url != TelegramSettings.model_fields["api_url"].default
        if not url.startswith("https://") and not own_server:
            raise ConfigError(
                f"Telegram calls https only, and this host is reached at {url}",
                fix="set public_url in [ingress], or remove `webhook` and poll",
            )

    async def _run(self, bot: Bot, context: ChannelContext, secret: str) -> None:
        self._task = asyncio.current_task()

        async def connect(ready: Callable[[], None]) -> None:
            reader = await self._reader(bot)
            if not self._settings.webhook:
                album = self._settings.album_seconds
                await Poller(bot, reader, context, album_seconds=album, clicked=self._clicked).run(ready)
                return
            self._hook = Hook(
                bot,
                reader,
                context,
                url=str(context.route_url()),
                secret=secret,
                album_seconds=self._settings.album_seconds,
                clicked=self._clicked,
            )
            await self._hook.run(ready)

        await supervise(connect, context.report, clock=context.clock)

    async def _reader(self, bot: Bot) -> Reader:
        me = await _identity(bot)
        return Reader(self._instance, int(me["id"]), str(me.get("username") or ""), self._prompts)

    async def stop(self) -> None:
        """A webhook stays set: Telegram keeps what comes meanwhile."""
        task, self._task = self._task, None
        self._hook = None
        if self._claim is not None:
            self._claim.release()
        for click in self._clicks.values():
            click.cancel()
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=STOP_SECONDS)
        bot, self._bot, self._sender = self._bot, None, None
        self._context = None
        if bot is not None:
            await bot.close()

    async def check(self, context: ChannelContext) -> Health:
        """Ask Telegram who we are."""
        try:
            token = await _secret(context, self._settings.token)
        except ConfigError as problem:
            return Health(ok=False, detail=problem.message, fix=problem.fix)
        bot = Bot(self._settings.api_url, token, clock=context.clock, pacing=False)
        try:
            me = await _identity(bot)
            hook = await bot.read("getWebhookInfo")
        except ChannelError as problem:
            fix = problem.fix or f"see whether {self._settings.api_url} can be reached from here"
            return Health(ok=False, detail=problem.message, fix=fix)
        finally:
            await bot.close()
        told = [f"this is @{me.get('username')}"]
        if not me.get("can_read_all_group_messages"):
            told.append("in groups it gets only commands, mentions and replies (privacy mode)")
        if hook.get("url") and not self._settings.webhook:
            told.append("a webhook is set, and is removed at the start")
        if hook.get("last_error_message") and self._settings.webhook:
            fix = "see whether the public URL leads to this host"
            return Health(ok=False, detail=f"Telegram's last call failed: {hook['last_error_message']}", fix=fix)
        return Health(ok=True, detail="; ".join(told))

    def capabilities(self, address: Address | None = None) -> Capabilities:
        group = address is not None and is_group(address.platform_id)
        drafts = self._sender.drafts if self._sender is not None else self._settings.rich
        return Capabilities(
            text_limit=RICH_LIMIT if self._settings.rich else TEXT_LIMIT,
            text_unit=TextUnit.CODEPOINTS if self._settings.rich else TextUnit.UTF16,
            dialect="telegram-rich" if self._settings.rich else "telegram-html",
            tables=Support.NATIVE if self._settings.rich else Support.EMULATED,
            edit=Support.NATIVE,
            delete=Support.LIMITED,
            react=Support.LIMITED,
            emoji=ALLOWED,
            threads=Threads.TOPICS,
            quote=Support.NATIVE,
            typing=Support.NATIVE,
            typing_ttl=5.0,
            stream=StreamKind.NATIVE if drafts and not group else StreamKind.EDIT,
            stream_interval=GROUP_SECONDS if group else PRIVATE_SECONDS,
            files=Support.NATIVE,
            file_max_bytes=UPLOAD_LIMIT,
            file_max_count=ALBUM,
            caption_limit=CAPTION_LIMIT,
            prompt=Support.NATIVE,
            prompt_max_choices=50,
            prompt_label_limit=LABEL_LIMIT,
            cards=Support.LIMITED,
            open_dm=OpenDm.PRIOR_CONTACT,
            rate_per_chat=1 / 3 if group else 1.0,
            rate_global=30.0,
            needs_public_url=self._settings.webhook,
        )

    # ---- in

    def http_routes(self) -> Sequence[HttpRoute]:
        """The instance's own path, with `webhook = true`."""
        if not self._settings.webhook:
            return ()
        return (HttpRoute(path="", methods=("POST",), handle=self._called, max_bytes=4 * 1024 * 1024),)

    async def _called(self, request: RawRequest) -> RawResponse:
        hook = self._hook
        return RawResponse(status=503) if hook is None else await hook.handle(request)

    @contextlib.asynccontextmanager
    async def open_attachment(self, attachment: Attachment) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of a received file.

        Raises:
            TooLarge: Telegram gives bots no more than 20 MB.
        """
        if attachment.token is None:
            raise ChatNotFound(f"{attachment.name!r} is no file of Telegram's")
        async with contextlib.aclosing(self._ready().bot.file(attachment.token)) as chunks:
            yield chunks

    def _clicked(self, query: str, waits: bool) -> None:
        assert self._context is not None
        said = self._clicks[query] = asyncio.get_running_loop().create_future()
        if not waits:
            said.set_result(None)
        self._context.spawn(self._toast(query, said), f"telegram click {query}")

    async def _toast(self, query: str, said: asyncio.Future[str | None]) -> None:
        """Take the spinner off a button, with a word when the core refuses the click soon enough."""
        await asyncio.wait([said], timeout=TOAST_SECONDS)
        self._clicks.pop(query, None)
        if said.cancelled():
            return
        text = said.result() if said.done() else None
        try:
            await self._ready().bot.read("answerCallbackQuery", {"callback_query_id": query, "text": _short(text)})
        except ChannelError as problem:
            log.info("a click could not be answered: %s", problem)

    # ---- out

    def split(self, address: Address, message: OutMessage) -> Sequence[OutMessage]:
        return parts(message, rich=self._sender.rich if self._sender is not None else self._settings.rich)

    async def send(self, address: Address, message: OutMessage, *, idempotency_key: str) -> SendResult:
        return await self._ready().send(address, message)

    async def edit(self, ref: MessageRef, message: OutMessage) -> SendResult:
        return await self._ready().replaced(ref, message)

    async def delete(self, ref: MessageRef) -> None:
        await self._ready().delete(ref)

    async def react(self, ref: MessageRef, emoji: str, on: bool = True) -> None:
        """A bot has one reaction on a message; another replaces it.

        Raises:
            Unsupported: Telegram has no such reaction.
        """
        reaction = [{"type": "emoji", "emoji": chosen(emoji)}] if on else []
        arguments = {"chat_id": self._ready().target(ref.address.chat)["chat_id"], "message_id": number(ref.ids[0])}
        await self._ready().bot.read("setMessageReaction", {**arguments, "reaction": reaction})

    async def typing(self, address: Address, on: bool = True) -> None:
        if on:  # it ends by itself after 5 s, or with the next message
            await self._ready().bot.read("sendChatAction", {**self._ready().target(address), "action": "typing"})

    async def open_dm(self, person: Person) -> Address:
        """The chat with a person, who must have written first.

        Raises:
            ChatNotFound: it is no person's id.
        """
        if not person.handle.isdecimal():
            raise ChatNotFound(f"{person.handle!r} is no person's id at Telegram")
        return Address("telegram", self._instance, person.handle)

    async def answer(self, responder: str, source: MessageRef | None, reply: ActionReply) -> None:
        said = self._clicks.get(responder)
        if said is not None and not said.done():
            said.set_result(None if reply.accepted else reply.text)
        if reply.accepted and source is not None:
            await self._ready().rewrite(source.address, source.ids[0], html(reply.text))

    def open_stream(self, address: Address, *, reply_to: MessageRef | None = None) -> MessageStream:
        sender, context = self._ready(), self._context
        assert context is not None
        if sender.drafts and not is_group(address.platform_id):
            return DraftStream(sender, address, context.clock)
        return edited(sender, address, context.clock, reply_to)

    def _ready(self) -> Sender:
        if self._sender is None:
            raise Transient(f"channel {self._instance} does not run")
        return self._sender


async def _identity(bot: Bot) -> dict[str, Any]:
    try:
        me: dict[str, Any] = await bot.read("getMe")
    except MissingMethod:
        raise AuthFailed(
            "404 Not Found: that is no bot's token", fix="store the token as @BotFather gave it, like 123456:ABC..."
        ) from None
    return me


async def _secret(context: ChannelContext, name: str) -> str:
    value = await context.secret(name)
    if not (value or "").strip():
        raise ConfigError(f"channel {context.instance}: there is no secret {name!r}", fix=f"store it as {name}")
    return str(value).strip()


def _short(text: str | None) -> str | None:
    return None if text is None else text[:200]
