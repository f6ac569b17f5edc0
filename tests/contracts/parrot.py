"""A channel that can do everything, its platform, and many ways in which an adapter goes wrong."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jackfield.api import (
    ActionReply,
    Channel,
    ChannelContext,
    ChannelInfo,
    ChannelType,
    Cursor,
    Health,
    HttpRoute,
    MessageStream,
    RawRequest,
    RawResponse,
    SendResult,
)
from jackfield.errors import ChatNotFound, JackfieldError, RateLimited, Unsupported
from jackfield.models import (
    ActionInvoked,
    Address,
    Addressed,
    Attachment,
    Capabilities,
    ChannelState,
    ChannelStatus,
    ConversationKind,
    MessageEdited,
    MessageReceived,
    MessageRef,
    OutMessage,
    Person,
    StreamKind,
    Support,
    TextUnit,
    Threads,
    Trust,
)
from jackfield.testing import Arrived, ChannelRecorder, Peer, Said
from jackfield.testing.contracts.peer import FAILURES, FailureKind

SECRET = "token-8f14e45f"
LIMIT = 4000
PARROT = ChannelInfo(type="parrot", title="Parrot")
_NEVER = asyncio.Event()
_SHARED: list[MessageReceived] = []


@dataclass
class Update:
    """What the platform has for the bot."""

    number: int
    kind: str
    said: Said
    text: str = ""
    value: str = ""


@dataclass
class Platform:
    """Keeps updates until the bot asks for those after a number; hears which it has taken."""

    updates: list[Update] = field(default_factory=list)
    taken: dict[str, asyncio.Queue[bool]] = field(default_factory=dict)
    seen: asyncio.Queue[Arrived] = field(default_factory=asyncio.Queue)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    sent: dict[str, tuple[str, ...]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    failure: FailureKind | None = None
    hangs: bool = False

    def put(self, kind: str, said: Said, **more: str) -> None:
        self.updates.append(Update(len(self.updates) + 1, kind, said, **more))
        self.came.set()

    async def after(self, number: int) -> Update:
        while len(self.updates) <= number or self.hangs:
            self.came.clear()
            await self.came.wait()
        return self.updates[number]

    def outcome(self, said: Said) -> asyncio.Queue[bool]:
        return self.taken.setdefault(said.id, asyncio.Queue())


class Parrot:
    """`faults` are its bad habits; without any it is a good channel."""

    def __init__(self, instance: str, settings: Mapping[str, Any]) -> None:
        self.instance = instance
        self.platform: Platform = settings["platform"]
        self.faults: frozenset[str] = settings.get("faults", frozenset())
        self.stubborn: asyncio.Task[None] | None = None

    # ---- life

    async def start(self, context: ChannelContext) -> None:
        self.context = context
        token = await context.secret("token")
        detail = f"logged in with {token}" if "tells_secret" in self.faults else "logged in"
        number = 0 if "starts_over" in self.faults else int(await context.cursor("updates") or "0")
        if "module_loop" in self.faults:
            context.spawn(self._wait_for_ever(), "wait")
        if "leaves_task" in self.faults:
            self.stubborn = asyncio.create_task(asyncio.Event().wait())  # type: ignore[arg-type]  # any task will do
        context.spawn(self._poll(number), "poll")
        context.report(ChannelStatus(state=ChannelState.READY, detail=detail))

    async def _wait_for_ever(self) -> None:
        await _NEVER.wait()

    async def stop(self) -> None:
        if "stops_slowly" in self.faults:
            await asyncio.Event().wait()

    async def check(self, context: ChannelContext) -> Health:
        if "silent_check" in self.faults:
            return Health(ok=False)
        return Health(ok=True)

    def capabilities(self, address: Address | None = None) -> Capabilities:
        able = Capabilities(
            text_limit=LIMIT,
            text_unit=TextUnit.UTF16,
            edit=Support.NATIVE,
            delete=Support.NATIVE,
            react=Support.NATIVE,
            threads=Threads.NATIVE,
            typing=Support.NATIVE,
            stream=StreamKind.EDIT,
            files=Support.NATIVE,
            prompt=Support.NATIVE,
            prompt_max_choices=8,
            history=Support.NATIVE,
            idempotent_send=True,
        )
        return replace(able, delete=Support.NONE) if "hides_delete" in self.faults else able

    # ---- in

    async def _poll(self, number: int) -> None:
        while True:
            update = await self.platform.after(number)
            number = update.number
            if "dies_of_controls" in self.faults and "\0" in update.said.text:
                raise ValueError("control character")
            event = self._event(update)
            if event is None:
                continue
            outcome = self.platform.outcome(update.said)
            if "acknowledges_early" in self.faults:
                outcome.put_nowait(True)
            try:
                await self.context.accept(event, Cursor("updates", str(number)))
            except JackfieldError:
                outcome.put_nowait("acknowledges_anyway" in self.faults)
            else:
                outcome.put_nowait(True)

    def _event(self, update: Update) -> MessageReceived | MessageEdited | ActionInvoked | None:
        said = update.said
        address = Address("parrot", self.instance, said.chat, None if "loses_thread" in self.faults else said.thread)
        person = Person(
            said.sender,
            is_self=said.own and "own_unmarked" not in self.faults,
            is_bot=said.bot and "bot_unmarked" not in self.faults,
            trust=Trust.OPERATOR if "claims_operator" in self.faults else Trust.PLATFORM,
        )
        ref, now = MessageRef(address, (said.id,)), self.context.clock.now()
        key = f"message:{said.id}"
        if "delivery_key" in self.faults:
            key = f"update:{update.number}"
        if "text_key" in self.faults:
            key = f"text:{said.text}"
        if update.kind == "edit":
            return MessageEdited(
                address=address,
                dedupe_key=key if "edit_key" in self.faults else f"edit:{said.id}:{update.number}",
                occurred_at=now,
                ref=ref,
                sender=person,
                text=update.text,
            )
        if update.kind == "click":
            return ActionInvoked(
                address=address,
                dedupe_key=f"click:{update.number}",
                occurred_at=now,
                prompt_id=update.text,
                value="yes" if "wrong_value" in self.faults else update.value,
                user=person,
                responder=f"{said.chat}/{update.text}",
            )
        meant = said.mention or ("guesses_mention" in self.faults)
        addressed = Addressed.DM if not said.group else Addressed.MENTION if meant else Addressed.NONE
        return MessageReceived(
            address=address,
            dedupe_key=key,
            occurred_at=now,
            ref=ref,
            sender=person,
            text=said.text,
            kind=ConversationKind.GROUP if said.group else ConversationKind.DM,
            is_group=said.group,
            addressed=Addressed.NONE if "ignores_dm" in self.faults else addressed,
            attachments=tuple(
                Attachment(id=name, name=name, size=len(data), token=f"{update.number}/{place}")
                for place, (name, data) in enumerate(said.files)
            ),
        )

    @asynccontextmanager
    async def open_attachment(self, attachment: Attachment) -> AsyncIterator[AsyncIterator[bytes]]:
        number, place = (int(part) for part in (attachment.token or "").split("/"))
        data = self.platform.updates[number - 1].said.files[place][1]

        async def chunks() -> AsyncIterator[bytes]:
            yield data[:1000]
            if "cuts_files" not in self.faults:
                yield data[1000:]

        yield chunks()

    # ---- out

    async def send(self, address: Address, message: OutMessage, *, idempotency_key: str) -> SendResult:
        failure, self.platform.failure = self.platform.failure, None
        if failure is not None:
            if "raw_errors" in self.faults:
                raise OSError("connection reset")
            if failure == "rate_limited":
                raise RateLimited("slow down", retry_after=3)
            raise FAILURES["transient" if "one_error" in self.faults else failure]("the platform says no")
        known = self.platform.sent.get(idempotency_key)
        if known is not None and "doubles" not in self.faults:
            return SendResult(ids=known)
        ids = (f"p{len(self.platform.sent) + 1}",)
        self.platform.sent[idempotency_key] = ids
        text = message.text[:2000] if "cuts_text" in self.faults else message.text
        files = tuple((file.name, Path(file.path).read_bytes()) for file in message.files)
        prompt = message.prompt
        self.platform.seen.put_nowait(
            Arrived(
                kind="message",
                ids=ids,
                text=text,
                address=address.chat if "leaves_thread" in self.faults else address,
                files=files[:0] if "drops_files" in self.faults else files,
                choices=tuple(choice.value for choice in prompt.choices) if prompt else (),
                prompt_id=prompt.id if prompt else "",
            )
        )
        if "lies_about_ids" in self.faults:
            return SendResult(ids=("p999",))
        return SendResult(ids=ids)

    def split(self, address: Address, message: OutMessage) -> Sequence[OutMessage]:
        text, size = message.text, LIMIT + (5 if "long_parts" in self.faults else 0)
        return [OutMessage(text=text[start : start + size]) for start in range(0, len(text), size)]

    def _known(self, ref: MessageRef) -> None:
        if ref.ids not in self.platform.sent.values():
            if "accident_on_unknown" in self.faults:
                raise KeyError(ref.ids)
            raise ChatNotFound(f"there is no message {ref.ids}")

    async def edit(self, ref: MessageRef, message: OutMessage) -> SendResult:
        self._known(ref)
        self.platform.seen.put_nowait(
            Arrived(kind="edit", ids=("p0",) if "edits_another" in self.faults else ref.ids, text=message.text)
        )
        return SendResult(ids=ref.ids)

    async def delete(self, ref: MessageRef) -> None:
        if "hides_delete" in self.faults:
            return
        self._known(ref)
        self.platform.seen.put_nowait(Arrived(kind="delete", ids=ref.ids))

    async def react(self, ref: MessageRef, emoji: str, on: bool = True) -> None:
        self._known(ref)
        shown = True if "only_adds" in self.faults else on
        self.platform.seen.put_nowait(Arrived(kind="reaction", ids=ref.ids, emoji=emoji, on=shown))

    async def typing(self, address: Address, on: bool = True) -> None:
        self.platform.seen.put_nowait(Arrived(kind="typing", on=on))

    async def open_dm(self, person: Person) -> Address:
        raise Unsupported("people must write first")

    async def answer(self, responder: str, source: MessageRef | None, reply: ActionReply) -> None:
        self.platform.seen.put_nowait(Arrived(kind="prompt_done", text=reply.text, prompt_id=responder.split("/")[1]))

    def open_stream(self, address: Address, *, reply_to: MessageRef | None = None) -> MessageStream:
        return _Stream(self, address)

    async def history(self, address: Address, *, after: str | None = None, limit: int = 50) -> list[MessageReceived]:
        found = [self._event(update) for update in self.platform.updates if update.said.chat == address.platform_id]
        messages = [event for event in found if isinstance(event, MessageReceived)]
        return messages[::-1] if "history_unbounded" in self.faults else messages[-limit:]

    def http_routes(self) -> Sequence[HttpRoute]:
        return [HttpRoute(path="/hook", methods=("POST",), handle=self._hook)]

    async def _hook(self, request: RawRequest) -> RawResponse:
        if "trusts_strangers" in self.faults:
            return RawResponse()
        if "route_accident" in self.faults:
            request.body.decode()
        given = dict(request.headers).get("x-signature", "")
        return RawResponse(status=200 if hmac.compare_digest(given, SECRET) else 401)


class _Stream:
    def __init__(self, channel: Parrot, address: Address) -> None:
        self._channel = channel
        self._address = address

    async def update(self, text: str) -> None:
        return None

    async def finish(self, message: OutMessage, *, idempotency_key: str) -> SendResult:
        return await self._channel.send(self._address, message, idempotency_key=idempotency_key)

    async def abort(self) -> None:
        return None


class ParrotPeer(Peer):
    failures = frozenset(FAILURES) - {"nobody"}

    def __init__(self, instance: str, faults: frozenset[str], platforms: dict[str, Platform]) -> None:
        super().__init__(instance)
        self.faults = faults
        self.platform = platforms.setdefault("all", Platform()) if "shares" in faults else Platform()

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"platform": self.platform, "faults": self.faults}

    @property
    def secrets(self) -> Mapping[str, str]:
        return {"token": SECRET}

    def address(self, chat: str = "one", thread: str | None = None) -> Address:
        return Address("parrot", self.instance, chat, thread)

    async def write(self, said: Said) -> None:
        self.platform.put("message", said)

    async def arrived(self) -> Arrived:
        return await self.platform.seen.get()

    async def acknowledged(self, said: Said) -> bool:
        return await self.platform.outcome(said).get()

    async def fail_next(self, failure: FailureKind) -> None:
        self.platform.failure = failure

    async def click(self, question: Arrived, value: str, *, by: str = "ann") -> None:
        self.platform.put("click", Said(text="", sender=by), text=question.prompt_id, value=value)

    async def edit(self, said: Said, text: str) -> None:
        self.platform.put("edit", said, text=text)

    async def hang(self) -> None:
        self.platform.hangs = True

    async def join(self, channel: Channel, context: ChannelRecorder) -> None:
        self.platform.came.set()


def parrot_type(info: ChannelInfo = PARROT) -> ChannelType:
    return ChannelType(info=info, create=Parrot)
