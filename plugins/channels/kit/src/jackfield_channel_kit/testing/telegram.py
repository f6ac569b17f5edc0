"""A Bot API server with people on it: enough of Telegram that aiogram and python-telegram-bot take it for real.

People's side: `say`, `album`, `edit`, `click`, `react`, `migrate`, `admit`.  What they see comes from `seen`, in order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

from jackfield_channel_kit.testing.platform import Recorded, Reply
from jackfield_channel_kit.testing.telegram_people import BOT_ID, BOT_NAME, Message, Seen, TelegramPeople
from jackfield_channel_kit.testing.telegram_wire import (
    Refusal,
    Unparsable,
    arguments_of,
    file_of,
    number_of,
    parse_html,
    rich_text,
    utf16,
)

__all__ = ["BOT_ID", "BOT_NAME", "Refusal", "Seen", "TelegramFake"]

TEXT_LIMIT = 4096
CAPTION_LIMIT = 1024
RICH_LIMIT = 32_768
DOWNLOAD_LIMIT = 20 * 1024 * 1024
_MEDIA = {
    "sendDocument": "document",
    "sendPhoto": "photo",
    "sendVideo": "video",
    "sendAudio": "audio",
    "sendAnimation": "animation",
    "sendVoice": "voice",
}

_USE = "use deleteWebhook to delete the webhook first"
_SAME = (
    "specified new message content and reply markup are exactly the same as a current content and reply markup of the "
    "message"
)

Arguments = dict[str, Any]


class TelegramFake(TelegramPeople):
    """One bot on one server.  Private chats have their person's id (positive), groups are negative.

    A newer `getUpdates` ends an older one with 409, as Telegram does.  `unknown_methods` are answered as by a
    server that is too old for them.
    """

    ends_with_client: ClassVar[bool] = True

    def __init__(self, token: str = "700100:AAtest-token-of-the-fake") -> None:
        super().__init__()
        self.token = token
        self.confirmed = 0
        """The highest `update_id` that was confirmed by a greater offset."""
        self.flooded: dict[int, int] = {}
        """Chats that take nothing, and the seconds that are told to wait."""
        self.webhook: dict[str, Any] = {"url": "", "has_custom_certificate": False, "pending_update_count": 0}
        self.commands: list[Any] = []
        self.revoked = False
        self.muted = False
        """Long polls get no answer at all."""
        self.unknown_methods: set[str] = set()
        self._poll: asyncio.Event | None = None
        self.on("POST", "/bot{token}/{method}", self._serve_method)
        self.on("GET", "/bot{token}/{method}", self._serve_method)
        self.on("GET", "/file/bot{token}/{path:.*}", self._serve_file)

    # ---- the server

    async def _serve_file(self, request: Recorded) -> Reply:
        found = self.files.get(request.params["path"].rsplit("/", 1)[-1])
        if request.params["token"] != self.token or found is None:
            return Refusal(404, "Not Found").reply()
        return Reply(200, found[1], {"content-type": "application/octet-stream"})

    async def _serve_method(self, request: Recorded) -> Reply:
        method = request.params["method"]
        try:
            if request.params["token"] != self.token or self.revoked:
                raise Refusal(401, "Unauthorized")
            arguments, files = arguments_of(request)
            if method in _MEDIA:
                return Reply(200, {"ok": True, "result": self._send_file(_MEDIA[method], arguments, files)})
            if method == "sendMediaGroup":
                return Reply(200, {"ok": True, "result": self._send_group(arguments, files)})
            serve: Callable[[Arguments], Awaitable[Any]] | None = getattr(self, f"_do_{method}", None)
            if serve is None or method in self.unknown_methods:
                raise Refusal(404, "Not Found")
            return Reply(200, {"ok": True, "result": await serve(arguments)})
        except Refusal as refusal:
            return refusal.reply()

    # The methods by their own names.

    async def _do_getMe(self, arguments: Arguments) -> Any:
        return {
            **self.person(BOT_ID),
            "can_join_groups": True,
            "can_read_all_group_messages": False,
            "supports_inline_queries": False,
        }

    async def _do_getUpdates(self, arguments: Arguments) -> Any:
        if self.webhook["url"]:
            raise Refusal(409, f"Conflict: can't use getUpdates method while webhook is active; {_USE}")
        if self._poll is not None:
            self._poll.set()
        mine = self._poll = asyncio.Event()
        async with self._news:
            self._news.notify_all()
        offset = int(arguments.get("offset") or 0)
        if offset > 0:
            self.confirmed = max(self.confirmed, offset - 1)
            self.updates = [update for update in self.updates if update["update_id"] >= offset]
        allowed = arguments.get("allowed_updates") or []
        until = time.monotonic() + float(arguments.get("timeout") or 0)

        def waiting() -> list[dict[str, Any]]:
            return [one for one in self.updates if not allowed or any(kind in one for kind in allowed)]

        async with self._news:
            while self.muted or not waiting():
                left = until - time.monotonic()
                if mine.is_set() or (left <= 0 and not self.muted):
                    break
                try:
                    await asyncio.wait_for(self._news.wait(), None if self.muted else left)
                except TimeoutError:
                    break
        if mine.is_set():
            raise Refusal(
                409, "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
            )
        if self._poll is mine:
            self._poll = None
        return waiting()[: int(arguments.get("limit") or 100)]

    async def _do_setWebhook(self, arguments: Arguments) -> Any:
        self.webhook = {**self.webhook, **arguments, "url": arguments.get("url", "")}
        return True

    async def _do_deleteWebhook(self, arguments: Arguments) -> Any:
        self.webhook = {"url": "", "has_custom_certificate": False, "pending_update_count": len(self.updates)}
        if arguments.get("drop_pending_updates"):
            self.updates.clear()
        return True

    async def _do_getWebhookInfo(self, arguments: Arguments) -> Any:
        return {key: value for key, value in self.webhook.items() if key != "secret_token"}

    async def _do_setMyCommands(self, arguments: Arguments) -> Any:
        self.commands = arguments["commands"]
        return True

    async def _do_sendMessage(self, arguments: Arguments) -> Any:
        text, entities = self._formatted(arguments, "text", TEXT_LIMIT, "message is too long")
        if not text:
            raise Refusal(400, "Bad Request: message text is empty")
        return self._post(arguments, {"text": text, "entities": entities}, text)

    async def _do_sendRichMessage(self, arguments: Arguments) -> Any:
        content, text = self._rich(arguments)
        return self._post(arguments, content, text)

    async def _do_sendRichMessageDraft(self, arguments: Arguments) -> Any:
        if int(arguments["chat_id"]) < 0:
            raise Refusal(400, "Bad Request: drafts can be sent to private chats only")
        if not int(arguments.get("draft_id") or 0):
            raise Refusal(400, "Bad Request: draft_id must be non-zero")
        _, text = self._rich(arguments)
        self._see("draft", int(arguments["chat_id"]), text=text, message_id=int(arguments["draft_id"]))
        return True

    async def _do_editMessageText(self, arguments: Arguments) -> Any:
        message = self._own(arguments, "edit")
        if "text" not in message and "rich_message" not in message:
            raise Refusal(400, "Bad Request: there is no text in the message to edit")
        if "rich_message" in arguments:
            content, text = self._rich(arguments)
        else:
            text, entities = self._formatted(arguments, "text", TEXT_LIMIT, "message is too long")
            content = {"text": text, "entities": entities}
        return self._change(message, content, arguments, text)

    async def _do_editMessageCaption(self, arguments: Arguments) -> Any:
        message = self._own(arguments, "edit")
        text, entities = self._formatted(arguments, "caption", CAPTION_LIMIT, "message caption is too long")
        return self._change(message, {"caption": text, "caption_entities": entities}, arguments, text)

    async def _do_editMessageReplyMarkup(self, arguments: Arguments) -> Any:
        message = self._own(arguments, "edit")
        return self._change(message, {}, arguments, message.get("text", ""))

    async def _do_deleteMessage(self, arguments: Arguments) -> Any:
        message = self._own(arguments, "delete")
        del self.messages[message["chat"]["id"], message["message_id"]]
        self._see("delete", message["chat"]["id"], message_id=message["message_id"])
        return True

    async def _do_setMessageReaction(self, arguments: Arguments) -> Any:
        chat, number = int(arguments["chat_id"]), number_of(arguments["message_id"])
        if (chat, number) not in self.messages:
            raise Refusal(400, "Bad Request: message to react not found")
        emoji = [one["emoji"] for one in arguments.get("reaction") or []]
        if any("\ufe0f" in one for one in emoji) or len(emoji) > 1:
            raise Refusal(400, "Bad Request: REACTION_INVALID")
        message = self.messages[chat, number]
        before = message.pop("_reaction", "")
        message["_reaction"] = emoji[0] if emoji else ""
        text = "on" if emoji else "off"
        self._see("reaction", chat, message_id=number, emoji=emoji[0] if emoji else before, text=text)
        return True

    async def _do_sendChatAction(self, arguments: Arguments) -> Any:
        chat = self._checked_chat(arguments)
        self._see("action", chat, text=arguments["action"])
        return True

    async def _do_answerCallbackQuery(self, arguments: Arguments) -> Any:
        self._see("answer", 0, text=arguments.get("text", ""), emoji=arguments["callback_query_id"])
        return True

    async def _do_getFile(self, arguments: Arguments) -> Any:
        found = self.files.get(arguments["file_id"])
        if found is None:
            raise Refusal(400, "Bad Request: invalid file_id")
        if len(found[1]) > DOWNLOAD_LIMIT:
            raise Refusal(400, "Bad Request: file is too big")
        file_id = arguments["file_id"]
        return {
            "file_id": file_id,
            "file_unique_id": f"u{file_id}",
            "file_size": len(found[1]),
            "file_path": f"documents/{file_id}",
        }

    async def _do_getChat(self, arguments: Arguments) -> Any:
        return {**self._chat(self._checked_chat(arguments)), "accent_color_id": 0, "max_reaction_count": 1}

    async def _do_logOut(self, arguments: Arguments) -> Any:
        return True

    async def _do_close(self, arguments: Arguments) -> Any:
        return True

    # ---- what they share

    def _send_file(self, kind: str, arguments: Arguments, files: Mapping[str, tuple[str, bytes]]) -> Any:
        name, data = file_of(arguments.get(kind), kind, files)
        caption, entities = self._formatted(arguments, "caption", CAPTION_LIMIT, "message caption is too long")
        content: dict[str, Any] = self._media(kind, name, data)
        content |= {"caption": caption, "caption_entities": entities} if caption else {}
        return self._post(arguments, content, caption, ((name, data),))

    def _send_group(self, arguments: Arguments, files: Mapping[str, tuple[str, bytes]]) -> Any:
        items = arguments["media"]
        kinds = {item["type"] for item in items}
        if not 2 <= len(items) <= 10 or (len(kinds) > 1 and not kinds <= {"photo", "video"}):
            raise Refusal(400, "Bad Request: wrong media group")
        sent: list[Message] = []
        seen: list[tuple[str, bytes]] = []
        captions: list[str] = []
        for item in items:
            name, data = file_of(item["media"], "", files)
            caption, entities = self._formatted(item, "caption", CAPTION_LIMIT, "message caption is too long")
            content = {**self._media(item["type"], name, data), "media_group_id": f"g{self._next_message}"}
            content |= {"caption": caption, "caption_entities": entities} if caption else {}
            sent.append(self._keep(arguments, content))
            seen.append((name, data))
            captions += [caption] if caption else []
        self._show_message(sent[0], "\n".join(captions), tuple(seen))
        return sent

    def _media(self, kind: str, name: str, data: bytes) -> dict[str, Any]:
        kept = self.store(name, data)
        if kind == "photo":
            return {"photo": [{**kept, "width": 90, "height": 90}]}
        extra = {"video": {"width": 1, "height": 1, "duration": 1}, "audio": {"duration": 1}, "voice": {"duration": 1}}
        return {kind: {**kept, **extra.get(kind, {})}}

    def _formatted(self, arguments: Arguments, name: str, limit: int, problem: str) -> tuple[str, list[Any]]:
        text, entities = arguments.get(name) or "", arguments.get("entities") or []
        if arguments.get("parse_mode") == "HTML":
            try:
                text, entities = parse_html(text)
            except Unparsable as reason:
                raise Refusal(400, f"Bad Request: can't parse entities: {reason}") from None
        text = text.strip()
        if utf16(text) > limit:
            raise Refusal(400, f"Bad Request: {problem}")
        return text, entities

    def _rich(self, arguments: Arguments) -> tuple[dict[str, Any], str]:
        rich = arguments["rich_message"]
        given = [rich[name] for name in ("html", "markdown") if rich.get(name)]
        if len(given) != 1:
            raise Refusal(400, "Bad Request: rich message must have exactly one of html, markdown and blocks")
        try:
            text = rich_text(rich["html"]) if rich.get("html") else rich["markdown"]
        except Unparsable as reason:
            raise Refusal(400, f"Bad Request: can't parse rich message: {reason}") from None
        if len(text) > RICH_LIMIT:
            raise Refusal(400, "Bad Request: rich message is too long")
        return {"rich_message": {"blocks": [{"type": "paragraph", "text": text}]}}, text

    def _checked_chat(self, arguments: Arguments) -> int:
        chat = int(arguments["chat_id"])
        if chat in self.moved:
            raise Refusal(
                400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=self.moved[chat]
            )
        if (wait := self.flooded.get(chat)) is not None:
            raise Refusal(429, f"Too Many Requests: retry after {wait}", retry_after=wait)
        return chat

    def _own(self, arguments: Arguments, what: str) -> Message:
        chat, number = self._checked_chat(arguments), number_of(arguments["message_id"])
        message = self.messages.get((chat, number))
        if message is None:
            raise Refusal(400, f"Bad Request: message to {what} not found")
        return message

    def _change(self, message: Message, content: dict[str, Any], arguments: Arguments, text: str) -> Any:
        markup = arguments.get("reply_markup")
        changed = {
            key: value
            for key, value in message.items()
            if key not in ("text", "entities", "rich_message", "reply_markup")
        }
        changed |= content or {key: message[key] for key in ("text", "entities", "rich_message") if key in message}
        changed |= {"reply_markup": markup} if markup else {}
        if {**message, "edit_date": 0} == {**changed, "edit_date": 0}:
            raise Refusal(400, f"Bad Request: message is not modified: {_SAME}")
        message.clear()
        message |= {**changed, "edit_date": int(time.time())}
        chat, number = message["chat"]["id"], message["message_id"]
        self._see("edit", chat, message_id=number, text=text, buttons=_buttons(message), message=message)
        return _shown(message)

    def _post(
        self, arguments: Arguments, content: dict[str, Any], text: str, files: tuple[tuple[str, bytes], ...] = ()
    ) -> Any:
        message = self._keep(arguments, content)
        self._show_message(message, text, files)
        return _shown(message)

    def _keep(self, arguments: Arguments, content: dict[str, Any]) -> Message:
        chat = self._checked_chat(arguments)
        thread = arguments.get("message_thread_id")
        message = {**self._message(chat, int(thread) if thread else None), "from": self.person(BOT_ID), **content}
        reply = arguments.get("reply_parameters")
        if reply:
            target = self.messages.get((chat, number_of(reply["message_id"])))
            if target is None and not reply.get("allow_sending_without_reply"):
                raise Refusal(400, "Bad Request: message to be replied not found")
            if target is not None:
                message["reply_to_message"] = {
                    key: value for key, value in _shown(target).items() if key != "reply_to_message"
                }
        if arguments.get("reply_markup"):
            message["reply_markup"] = arguments["reply_markup"]
            for _, data in _buttons(message):
                if not 1 <= len(data.encode()) <= 64 and not data.startswith("http"):
                    raise Refusal(400, "Bad Request: BUTTON_DATA_INVALID")
        self.messages[chat, message["message_id"]] = message
        return message

    def _show_message(self, message: Message, text: str, files: tuple[tuple[str, bytes], ...]) -> None:
        self._see(
            "message",
            message["chat"]["id"],
            thread=message.get("message_thread_id"),
            message_id=message["message_id"],
            text=text,
            files=files,
            buttons=_buttons(message),
            message=message,
        )


def _buttons(message: Message) -> tuple[tuple[str, str], ...]:
    rows = (message.get("reply_markup") or {}).get("inline_keyboard") or []
    return tuple((one["text"], one.get("callback_data") or one.get("url") or "") for row in rows for one in row)


def _shown(message: Message) -> Message:
    return {key: value for key, value in message.items() if not key.startswith("_")}
