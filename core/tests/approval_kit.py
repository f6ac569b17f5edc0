"""A bench for approvals: the real engine over a real store, with kinds that note what they did.

`Desk` notes what would be shown; `CardDesk` has real cards, over a scripted channel whose people can click and write.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from delivery_kit import BOUND, CAPABLE, Bench, FakeChannel, Sent, open_bench
from jackfield.api import ActionContext, ActionReply, ApprovalField, ApprovalKind, ApprovalTicket
from jackfield.errors import ChatNotFound
from jackfield.host.approvals import Answers, Approvals, Showing
from jackfield.ids import ApprovalId, RequestId, UserId, new_id
from jackfield.models import (
    ActionInvoked,
    Address,
    Capabilities,
    MessageReceived,
    MessageRef,
    OpenDm,
    Person,
    Quote,
    Role,
    RoleName,
    Session,
    Trust,
)
from jackfield.models.commands import SenderRole
from jackfield.store import people
from jackfield.store.approvals import Approval

__all__ = ["FIELDS", "CardChannel", "CardDesk", "Desk", "open_card_desk", "open_desk"]

FIELDS = (ApprovalField(label="command", value="npx -y server"),)


@dataclass
class Desk:
    """`done` are the payloads that were applied, `told` the notices, `shown` what somebody was shown."""

    bench: Bench
    session: Session
    engine: Approvals = field(init=False)
    done: list[dict[str, Any]] = field(default_factory=list)
    told: list[tuple[str, str]] = field(default_factory=list)
    shown: list[ApprovalId] = field(default_factory=list)
    refreshed: list[Approval] = field(default_factory=list)
    reminded: list[ApprovalId] = field(default_factory=list)
    fails: Exception | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    reachable: bool = True
    _rows: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.gate.set()
        self.bench.plugins.kinds = [self.kind("act"), self.kind("gentle", mode="ask"), self.kind("again", again=True)]
        self.renew()

    def renew(self) -> None:
        """Another life of the host."""
        self.engine = Approvals(self.bench.hub, cast(Any, self), cast(Any, self), cast(Any, self), nudge=lambda: None)

    def kind(self, name: str, *, mode: Any = "always", again: bool = False) -> ApprovalKind:
        async def apply(context: ActionContext, payload: dict[str, Any]) -> str:
            await self.gate.wait()
            self.done.append({**payload, "files": [path.read_text() for path in context.files]})
            if self.fails is not None:
                raise self.fails
            return "it works"

        return ApprovalKind(name=name, title=f"Do {name}", apply=apply, mode=mode, idempotent=again)

    async def notify(self, session: Session, text: str, *, row_id: str, **more: Any) -> None:
        if row_id not in self._rows:
            self._rows.add(row_id)
            self.told.append((session.id, text))

    # What `Showing` does, as notes.

    async def show(self, item: Approval, also: Address | None = None) -> bool:
        self.shown.append(item.id)
        return self.reachable

    async def refresh(self, item: Approval) -> None:
        self.refreshed.append(item)

    async def remind(self, item: Approval) -> None:
        self.reminded.append(item.id)

    async def mend(self) -> None: ...

    def context(self, role: SenderRole = "", users: Sequence[str] = ()) -> ActionContext:
        return ActionContext(
            session=self.session,
            agent_group=self.bench.group,
            host=cast(Any, self),
            role=role,
            users=tuple(UserId(user) for user in users),
            origin=Address("fake", "fake", "c-1"),
        )

    async def request(self, kind: str = "act", payload: dict[str, Any] | None = None, **more: Any) -> ApprovalTicket:
        context = more.pop("context", None) or self.context()
        request_id = RequestId(more.pop("request_id", None) or new_id("req"))
        return await self.engine.request(
            context, request_id, kind, payload or {"command": "npx"}, fields=more.pop("fields", FIELDS), **more
        )

    async def item(self, id: ApprovalId) -> Approval:
        return await self.engine.get(id)

    async def quiet(self) -> None:
        """Wait until nothing that was spawned runs any more."""
        await self.bench.hub.settle(BOUND)

    async def until(self, condition: Callable[[], bool]) -> None:
        await self.bench.until(condition)

    async def crash(self) -> None:
        """The host dies where it stands; a new life begins, and takes up what was left."""
        tasks = [task for task in self.bench.hub._tasks if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=BOUND)
        self.renew()
        await self.engine.start()

    async def grant(self, user: str, role: RoleName = RoleName.OWNER, *, scoped: bool = False) -> UserId:
        now, id = self.bench.clock.now(), UserId(user)
        group = self.bench.group.id if scoped else None

        def give(db: Any) -> None:
            people.ensure_user(db, id, user.partition(":")[0], None, now)
            people.grant(db, Role(user_id=id, role=role, agent_group_id=group, granted_by=None, granted_at=now))

        await self.bench.hub.store.write(give)
        return id

    async def tamper(self, id: ApprovalId, **columns: str) -> None:
        """Somebody writes into the database while the approval waits."""
        sets = ", ".join(f"{name} = ?" for name in columns)

        def swap(db: Any) -> None:
            db.execute(f"UPDATE approvals SET {sets} WHERE id = ?", (*columns.values(), id))

        await self.bench.hub.store.write(swap)

    def permit(self, **permissions: str) -> None:
        """Write `[permissions]` into the group's `agent.toml`."""
        folder = self.bench.hub.home.groups / self.bench.group.folder
        folder.mkdir(parents=True, exist_ok=True)
        lines = "\n".join(f'{kind} = "{mode}"' for kind, mode in permissions.items())
        (folder / "agent.toml").write_text(f'name = "Helper"\n[permissions]\n{lines}\n')
        self.bench.hub._agents.clear()


@contextlib.asynccontextmanager
async def open_desk(root: Path, can: Capabilities | None = None) -> AsyncIterator[Desk]:
    opened = open_bench(root) if can is None else open_bench(root, can)
    async with opened as bench:
        session = await bench.session(await bench.chat("c-1"))
        yield Desk(bench, session)


class CardChannel(FakeChannel):
    """Opens direct chats for those whom `refuses` does not name, under `dm-<handle>`."""

    def __init__(self, clock: Any, can: Capabilities) -> None:
        super().__init__(clock, can)
        self.refuses: set[str] = set()
        self.unanswerable: Exception | None = None
        self.opened: list[str] = []

    async def answer(self, responder: str, source: MessageRef | None, reply: ActionReply) -> None:
        if self.unanswerable is not None:
            raise self.unanswerable
        await super().answer(responder, source, reply)

    async def open_dm(self, person: Person) -> Address:
        self.opened.append(person.handle)
        if person.handle in self.refuses:
            raise ChatNotFound(f"{person.handle} never wrote")
        return Address("fake", "fake", f"dm-{person.handle}")


@dataclass
class CardDesk(Desk):
    showing: Showing = field(init=False)
    answers: Answers = field(init=False)
    asked_questions: list[object] = field(default_factory=list)

    def renew(self) -> None:
        self.bench.renew()
        hub, directory = self.bench.hub, cast(Any, self.bench.directory)
        self.showing = Showing(hub, directory, self.bench.delivery)
        self.engine = Approvals(hub, cast(Any, self), cast(Any, self), self.showing, nudge=lambda: None)
        self.answers = Answers(hub, directory, self.engine, self.showing, self.bench.delivery, cast(Any, self))

    async def invoked(self, event: ActionInvoked) -> None:
        """As `Questions`."""
        self.asked_questions.append(event)

    async def text_answer(self, event: MessageReceived, user: UserId) -> bool:
        return False

    @property
    def channel(self) -> CardChannel:
        return cast(CardChannel, self.bench.channel)

    def cards(self) -> list[Sent]:
        """The prompts that arrived."""
        return [call for call in self.channel.arrived if call.message.prompt is not None]

    async def click(
        self,
        id: str,
        value: str = "approve",
        handle: str = "olga",
        *,
        chat: str | None = None,
        trust: Trust = Trust.PLATFORM,
        bot: bool = False,
    ) -> tuple[bool, str] | None:
        """Somebody clicks; what they are told."""
        at = Address("fake", "fake", chat or "dm-olga")
        told = len(self.channel.replies)
        await self.answers.invoked(
            ActionInvoked(
                address=at,
                dedupe_key=new_id("kk"),
                occurred_at=self.bench.clock.now(),
                prompt_id=id,
                value=value,
                user=Person(handle, is_bot=bot, trust=trust),
                source=MessageRef(at, ("p-1",)),
                responder="r",
            )
        )
        await self.quiet()
        if len(self.channel.replies) == told:
            return None
        reply = self.channel.replies[-1][1]
        return reply.accepted, reply.text

    async def say(
        self, text: str, handle: str = "olga", *, chat: str = "dm-olga", to: str | None = None, group: bool = False
    ) -> bool:
        """Somebody writes; whether it was an answer."""
        at = Address("fake", "fake", chat)
        event = MessageReceived(
            address=at,
            dedupe_key=new_id("kk"),
            occurred_at=self.bench.clock.now(),
            ref=MessageRef(at, (new_id("m"),)),
            sender=Person(handle),
            text=text,
            is_group=group,
            reply_to=None if to is None else Quote(platform_id=to),
        )
        taken = await self.answers.text_answer(event, UserId(f"fake:{handle}"))
        await self.quiet()
        return taken


@contextlib.asynccontextmanager
async def open_card_desk(root: Path, **can: Any) -> AsyncIterator[CardDesk]:
    chosen = replace(CAPABLE, **{"text_limit": 4000, "open_dm": OpenDm.YES, "prompt_max_choices": 10, **can})
    async with open_bench(root, chosen) as bench:
        bench.channel = CardChannel(bench.clock, chosen)
        bench.directory.instances["fake"].channel = bench.channel
        session = await bench.session(await bench.chat("c-1"))
        yield CardDesk(bench, session)
