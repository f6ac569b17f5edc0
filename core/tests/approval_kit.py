"""A bench for approvals: the real engine over a real store, with a kind that notes what it did."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from delivery_kit import BOUND, Bench, open_bench
from jackfield.api import ActionContext, ApprovalField, ApprovalKind, ApprovalTicket
from jackfield.host.approvals import Approvals
from jackfield.ids import ApprovalId, RequestId, UserId, new_id
from jackfield.models import Address, Capabilities, Role, RoleName, Session
from jackfield.models.commands import SenderRole
from jackfield.store import people
from jackfield.store.approvals import Approval

__all__ = ["FIELDS", "Desk", "open_desk"]

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
        self.engine = Approvals(
            self.bench.hub, cast(Any, self), cast(Any, self), nudge=lambda: None, show=self._show, refresh=self._refresh
        )

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

    async def _show(self, item: Approval) -> bool:
        self.shown.append(item.id)
        return self.reachable

    async def _refresh(self, item: Approval) -> None:
        self.refreshed.append(item)

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
