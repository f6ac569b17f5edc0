"""People on Telegram, over the fake Bot API server; also for tests of other rooms that want a whole conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jackfield.api import Channel
from jackfield.models import Address
from jackfield.testing import Arrived, ChannelRecorder, Peer, Said
from jackfield.testing.contracts import FailureKind
from jackfield_channel_kit.prompt import decode
from jackfield_channel_kit.testing.telegram import BOT_ID, Seen, TelegramFake

__all__ = ["TelegramPeer"]

_FAILURES: dict[FailureKind, tuple[int, str, dict[str, Any]]] = {
    "rate_limited": (429, "Too Many Requests: retry after 3", {"retry_after": 3}),
    "transient": (502, "Bad Gateway", {}),
    "ambiguous": (0, "", {}),
    "auth": (401, "Unauthorized", {}),
    "not_allowed": (403, "Forbidden: bot was blocked by the user", {}),
    "not_found": (400, "Bad Request: chat not found", {}),
    "too_large": (413, "Request Entity Too Large", {}),
    "bad_content": (400, "Bad Request: can't parse entities: Unsupported start tag", {}),
}
_PEOPLE = {"ann": 11, "bo": 12}
_GROUPS = -1_001_000_000_000


@dataclass
class _Kept:
    message: dict[str, Any]
    update: int


class TelegramPeer(Peer):
    """Chats of the suite by number: `one` is Ann's private chat, `group` a supergroup, `t1` a topic."""

    failures = frozenset(_FAILURES)

    def __init__(self, instance: str, **settings: Any) -> None:
        super().__init__(instance)
        self.fake = TelegramFake(f"700100:AA-{instance}-0123456789abcdefghijklmnop")
        self.said: dict[str, _Kept] = {}
        self._settings = settings
        self._keyboards: dict[tuple[int, int], tuple[tuple[str, str], ...]] = {}

    @property
    def settings(self) -> Mapping[str, Any]:
        return {
            "api_url": self.fake.url,
            "token": "telegram-token",
            "pacing": False,
            "album_seconds": 0.2,
        } | self._settings

    @property
    def secrets(self) -> Mapping[str, str]:
        return {"telegram-token": self.fake.token}

    async def open(self) -> None:
        await self.fake.start()

    async def close(self) -> None:
        await self.fake.stop()

    async def join(self, channel: Channel, context: ChannelRecorder) -> None:
        await self.fake.until_sent("getUpdates")

    def address(self, chat: str = "one", thread: str | None = None) -> Address:
        return Address("telegram", self.instance, str(self._chat(chat)), str(int(thread[1:]) + 70) if thread else None)

    def _chat(self, chat: str) -> int:
        return {"one": 11, "group": _GROUPS - 1}.get(chat, 1000 + sum(chat.encode()))

    async def write(self, said: Said) -> None:
        sender = BOT_ID if said.own else 99 if said.bot else _PEOPLE.get(said.sender, 13)
        address = self.address(said.chat, said.thread)
        user = self.fake.person(BOT_ID)
        entities = [{"type": "text_mention", "offset": 0, "length": 3, "user": user}] if said.mention else []
        message = await self.fake.say(
            said.text,
            chat=int(address.platform_id),
            thread=int(address.thread_id) if address.thread_id else None,
            sender=sender,
            bot=said.bot,
            file=said.files[0] if said.files else None,
            entities=entities,
        )
        self.said[said.id] = _Kept(message, self.fake.updates[-1]["update_id"])

    async def redeliver(self, said: Said) -> None:
        kept = self.said[said.id]
        if not any(one["update_id"] == kept.update for one in self.fake.updates):
            await self.fake.push("message", kept.message)

    async def acknowledged(self, said: Said) -> bool:
        kept = self.said[said.id]
        await self.fake.until(lambda: self.fake.confirmed >= kept.update, "the update to be confirmed")
        return True

    async def edit(self, said: Said, text: str) -> None:
        await self.fake.edit(self.said[said.id].message, text)

    async def arrived(self) -> Arrived:
        while True:
            found = self._arrived(await self.fake.seen.get())
            if found is not None:
                return found

    def _arrived(self, seen: Seen) -> Arrived | None:
        key, ids = (seen.chat, seen.message_id), (str(seen.message_id),)
        address = Address("telegram", self.instance, str(seen.chat or 1), str(seen.thread) if seen.thread else None)
        if seen.kind == "message":
            self._keyboards[key] = seen.buttons
            found = [decode(data) for _, data in seen.buttons]
            prompt = next((one[0] for one in found if one is not None), "")
            return Arrived(kind="message", ids=ids, text=seen.text, address=address, files=seen.files, prompt_id=prompt)
        if seen.kind == "edit":
            had = self._keyboards.pop(key, ())
            self._keyboards[key] = seen.buttons
            return Arrived(kind="prompt_done" if had and not seen.buttons else "edit", ids=ids, text=seen.text)
        if seen.kind == "delete":
            return Arrived(kind="delete", ids=ids)
        if seen.kind == "reaction":
            return Arrived(kind="reaction", ids=ids, emoji=seen.emoji, on=seen.text == "on")
        if seen.kind == "action":
            return Arrived(kind="typing", address=address)
        return None

    async def click(self, question: Arrived, value: str, *, by: str = "ann") -> None:
        assert question.address is not None
        key = (int(question.address.platform_id), int(question.ids[0]))
        data = next(data for label, data in self._keyboards[key] if label.lower() == value)
        await self.fake.click(*key, data, by=_PEOPLE.get(by, 13))

    async def fail_next(self, failure: FailureKind) -> None:
        status, description, parameters = _FAILURES[failure]
        if failure == "ambiguous":
            self.fake.drop_after_send(method="sendMessage")
            return
        body = {"ok": False, "error_code": status, "description": description}
        self.fake.fail_next(status, body | ({"parameters": parameters} if parameters else {}), method="sendMessage")

    async def hang(self) -> None:
        self.fake.muted = True
