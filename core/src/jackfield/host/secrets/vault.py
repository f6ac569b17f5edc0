"""The vault: the one place that knows the master key, and keeps the secrets for channels and runners.

It reads the store once and again after each of its own changes; only the owner of the home's lock has one.  With no
secret in the store it needs no key and loads no cryptography.  When the key is not the right one (`problem`), all rows
stay as they are and count as unreadable, and whatever would write or use one refuses.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from jackfield.clock import Clock
from jackfield.config.home import Home
from jackfield.errors import Conflict, NotFound, SecretsLocked, StoreError, UsageError
from jackfield.host.secrets import keyfile
from jackfield.host.secrets.held import Given, HeldSecret, Mode, check_name, given_to, global_one, variable
from jackfield.host.secrets.opening import KEY_NOTE, fitting, opened, settle
from jackfield.host.secrets.sealing import Sealer, key_id
from jackfield.ids import AgentGroupId, SecretId, new_id
from jackfield.redaction import REDACTOR
from jackfield.store import Store, notes, secrets
from jackfield.store.secrets import SealedSecret, SecretKind

__all__ = ["VALUE_LIMIT", "NewSecret", "Vault"]

log = logging.getLogger(__name__)

T = TypeVar("T")
VALUE_LIMIT = 32_768
"""Bytes of one value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSecret:
    name: str
    value: str
    kind: SecretKind | None = None
    """None leaves it as it is; generic for a new one."""
    group: AgentGroupId | None = None

    def __repr__(self) -> str:
        return f"NewSecret({self.name!r})"


@dataclass(frozen=True, slots=True)
class _Stored:
    rows: list[SealedSecret]
    assigned: dict[SecretId, frozenset[AgentGroupId]]
    key_id: str | None


class Vault:
    def __init__(self, home: Home, store: Store, clock: Clock) -> None:
        self._home = home
        self._store = store
        self._clock = clock
        self._sealer: Sealer | None = None
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[object]] = set()
        self.problem: SecretsLocked | None = None
        """Why the secrets can't be read; None when they can, or there are none."""
        self.held: tuple[HeldSecret, ...] = ()
        self.revision = 0
        """Rises with every change."""

    async def refresh(self) -> None:
        """Read the store again, after a group and its secrets went."""
        await self._whole(self._reload())

    async def open(self) -> None:
        """Read the store and the key.  A key that does not fit becomes `problem`; nothing is written because of it."""
        await self._reload()
        if self._sealer is not None:
            needed = {one.row.key_id for one in self.held}
            if await asyncio.to_thread(settle, self._home, self._sealer.key_id, needed):
                log.warning("a rotation of the master key was broken off; it is brought to its end")

    # ---- using them

    def find(self, name: str) -> str | None:
        """A channel's secret: from the environment, else the global one of that name.

        Raises:
            SecretsLocked: it would have to come from the store, and can't be read.
        """
        found = os.environ.get(variable(name))
        if found is not None:
            REDACTOR.register(found)
            return found
        one = global_one(self.held, name)
        if one is not None and one.value is not None:
            return one.value
        self.require()
        if one is not None:
            raise _unreadable(one)
        return None

    def given_to(self, group_id: AgentGroupId, mode: Mode) -> dict[str, str]:
        """What a runner of the group is given, by name; one that can't be read is left out, and logged."""
        found: dict[str, str] = {}
        for name, given in given_to(self.held, group_id, mode).items():
            if given.secret.value is None:
                log.error("secret %s can't be read, so agents of group %s do not get it", name, group_id)
            else:
                found[name] = given.secret.value
        return found

    def versions(self, group_id: AgentGroupId, mode: Mode) -> dict[str, str]:
        """What tells apart two states of `given_to`, without a value."""
        return {
            name: f"{given.secret.row.id}@{given.secret.row.updated_at}"
            for name, given in given_to(self.held, group_id, mode).items()
            if given.secret.value is not None
        }

    def visible_to(self, group_id: AgentGroupId, mode: Mode) -> dict[str, Given]:
        return dict(given_to(self.held, group_id, mode))

    def complaints(self) -> list[str]:
        """What an operator should know, for `status`; nothing when all can be read."""
        if self.problem is not None:
            return [str(self.problem)]
        lost = [one.row.name for one in self.held if one.value is None]
        return [f"secrets that can't be read with the present master key: {', '.join(lost)}"] if lost else []

    def require(self) -> None:
        """Raises:
        SecretsLocked: the key is not the one that the store needs.
        """
        if self.problem is not None:
            raise self.problem

    def at(self, name: str, group: AgentGroupId | None) -> HeldSecret:
        """The secret of that name and scope.

        Raises:
            NotFound: there is none.
        """
        for one in self.held:
            if one.row.name == name and one.row.agent_group_id == group:
                return one
        near = sorted({one.row.name for one in self.held if one.row.agent_group_id == group})
        where = "" if group is None else " of that group"
        raise NotFound(
            f"there is no secret {name!r}{where}",
            fix=f"there are: {', '.join(near[:20])}" if near else "see `jackfield secret list`",
        )

    # ---- changing them

    async def put(self, new: Sequence[NewSecret]) -> list[bool]:
        """Store values, all or none; for each, whether it was new.  The key is made with the first one.

        Raises:
            SecretsLocked: the key is not the right one; nothing was changed.
            Conflict: one is there that can't be read; it is kept (C139).
            UsageError: a name or a value can't be one.
        """
        return await self._whole(self._put(new))

    async def _put(self, new: Sequence[NewSecret]) -> list[bool]:
        self.require()
        found = [(self._existing(one), one) for one in new]
        for existing, one in found:
            _check(one, existing)
            if existing is not None and existing.value is None:
                raise Conflict(
                    f"there is a secret {one.name!r} that can't be read with the present master key; it is kept",
                    fix="put its key back; or, to give it up, `jackfield secret remove NAME --force` first",
                )
        REDACTOR.register(*(one.value for one in new))
        sealer = await asyncio.to_thread(self._sealer_or_new)
        rows = [self._row(sealer, existing, one) for existing, one in found]

        def write(db: sqlite3.Connection) -> None:
            for row in rows:
                secrets.put(db, row)
            notes.set(db, KEY_NOTE, sealer.key_id)

        await self._write(write)
        return [existing is None for existing, _ in found]

    async def remove(self, secret: HeldSecret, *, force: bool = False) -> None:
        """Raises:
        Conflict: it can't be read, and `force` is not set (C139).
        """
        if secret.value is None and not force:
            raise Conflict(
                f"the secret {secret.row.name!r} can't be read now, but could when its master key returns",
                fix="--force removes it all the same",
            )
        await self._whole(self._write(lambda db: secrets.remove(db, secret.row.id)))

    async def assign(self, secret: HeldSecret, group: AgentGroupId) -> bool:
        """Whether that is new.

        Raises:
            UsageError: it is a channel's, or of another group.
        """
        row = secret.row
        if row.kind is SecretKind.CHANNEL_TOKEN:
            raise UsageError(
                f"{row.name!r} is a channel's secret, and those never reach an agent",
                fix="store the value again under another name and kind if an agent needs it",
            )
        if row.agent_group_id not in (None, group):
            raise UsageError(f"{row.name!r} belongs to another group", fix="store it for this one with --group")
        return await self._whole(self._write(lambda db: secrets.assign(db, row.id, group, self._clock.now())))

    async def unassign(self, secret: HeldSecret, group: AgentGroupId) -> bool:
        """Whether it was assigned."""
        return await self._whole(self._write(lambda db: secrets.unassign(db, secret.row.id, group)))

    async def rotate(self) -> int:
        """A new master key: every readable secret is sealed anew in one transaction.  How many there were.

        The old key file stays until all were read with the new one; whenever this is killed, the next start finds a key
        that fits and ends what was begun.

        Raises:
            SecretsLocked: the key is not the right one.
            NotFound: there is no secret.
            StoreError: it could not be stored; the old key counts.
        """
        return await self._whole(self._rotate())

    async def _rotate(self) -> int:
        self.require()
        if self._sealer is None:
            raise NotFound("there is no secret, so there is no key to replace", fix="the first one makes a key")
        old = (await asyncio.to_thread(self._sealer_or_new)).key_id
        master = await asyncio.to_thread(keyfile.prepare, self._home)
        sealer = Sealer.of(master)
        rows = []
        for one in self.held:
            if one.value is not None:
                rows.append(replace(one.row, key_id=sealer.key_id, sealed=sealer.seal(one.row, one.value)))

        def write(db: sqlite3.Connection) -> None:
            secrets.reseal(db, rows)
            notes.set(db, KEY_NOTE, sealer.key_id)

        try:
            await self._store.write(write)
        except StoreError:
            if await self._store.read(notes.get, KEY_NOTE) in (None, old):
                await asyncio.to_thread(keyfile.tidy, self._home)
            raise
        await asyncio.to_thread(keyfile.finish, self._home)
        await self._reload()
        self.require()
        await asyncio.to_thread(keyfile.tidy, self._home)
        return len(rows)

    async def accept_key(self) -> tuple[int, int]:
        """Go on with the key that lies there, or a new one where none does: how many secrets it reads, how many not.

        Those that it can't read stay as they are, and are readable again once their own key is back and accepted.

        Raises:
            SecretsLocked: the file that lies there is no key, or others may read it.
        """
        return await self._whole(self._accept_key())

    async def _accept_key(self) -> tuple[int, int]:
        master = await asyncio.to_thread(keyfile.read, self._home.master_key)
        if master is None:
            master = await asyncio.to_thread(keyfile.make, self._home)
        accepted = key_id(master)
        await self._write(lambda db: notes.set(db, KEY_NOTE, accepted))
        readable = sum(one.value is not None for one in self.held)
        return readable, len(self.held) - readable

    # ---- parts

    async def _whole(self, work: Coroutine[object, object, T]) -> T:
        """Do it to its end, also when whoever asked goes away: half of a change must not stay in this process."""

        async def alone() -> T:
            async with self._changing:
                return await work

        task = asyncio.get_running_loop().create_task(alone())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    def _existing(self, new: NewSecret) -> HeldSecret | None:
        try:
            return self.at(new.name, new.group)
        except NotFound:
            return None

    def _row(self, sealer: Sealer, existing: HeldSecret | None, new: NewSecret) -> SealedSecret:
        now = self._clock.now()
        if existing is None:
            row = SealedSecret(
                id=SecretId(new_id("sec", now)),
                name=new.name,
                kind=new.kind or SecretKind.GENERIC,
                agent_group_id=new.group,
                key_id=sealer.key_id,
                sealed=b"",
                created_at=now,
                updated_at=now,
            )
        else:
            # Two changes within one millisecond are two versions all the same.
            then = max(now, type(now)(existing.row.updated_at + 1))
            row = replace(existing.row, kind=new.kind or existing.row.kind, key_id=sealer.key_id, updated_at=then)
        return replace(row, sealed=sealer.seal(row, new.value))

    def _sealer_or_new(self) -> Sealer:
        if self._sealer is not None:
            return fitting(self._home, self._sealer.key_id)  # it may have been lost since it was read
        master = keyfile.read(self._home.master_key) or keyfile.make(self._home)
        return Sealer.of(master)  # no secret yet: any key that lies there will do

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        done = await self._store.write(work)
        await self._reload()
        return done

    async def _reload(self) -> None:
        def look(db: sqlite3.Connection) -> _Stored:
            return _Stored(secrets.all_secrets(db), secrets.assignments(db), notes.get(db, KEY_NOTE))

        await asyncio.to_thread(self._hold, await self._store.read(look))

    def _hold(self, stored: _Stored) -> None:
        known, self._sealer, self.problem = self._sealer, None, None
        wanted = stored.key_id or (stored.rows[0].key_id if stored.rows else None)
        try:
            if stored.rows and wanted is not None:
                self._sealer = fitting(self._home, wanted)
            else:
                keyfile.read(self._home.master_key)  # one that others may read is refused before it is of use
        except SecretsLocked as problem:
            self.problem = problem
            if known is not None and known.key_id == wanted:
                self._sealer = known  # the file was lost since: what was read goes on working, until the next start
        held = [
            HeldSecret(row, opened(self._sealer, row), stored.assigned.get(row.id, frozenset())) for row in stored.rows
        ]
        REDACTOR.register(*(one.value for one in held if one.value))
        self.held = tuple(held)
        self.revision += 1


def _check(new: NewSecret, existing: HeldSecret | None) -> None:
    """Raises:
    UsageError: its name, its value, or the two with its kind and scope can't be so.
    """
    kind = new.kind or (existing.row.kind if existing is not None else SecretKind.GENERIC)
    check_name(new.name, kind)
    if kind is SecretKind.CHANNEL_TOKEN and new.group is not None:
        raise UsageError(
            f"{new.name!r} is to be a channel's secret, and those belong to no agent group",
            fix="leave --group out, or --kind channel-token",
        )
    if not new.value:
        raise UsageError(f"the secret {new.name!r} is empty", fix="give its value, not an empty line")
    if len(new.value.encode()) > VALUE_LIMIT or "\0" in new.value:
        raise UsageError(
            f"the value of {new.name!r} is over {VALUE_LIMIT:,} bytes, or holds a NUL",
            fix="a secret is a text; keep files in the group's folder",
        )


def _unreadable(one: HeldSecret) -> SecretsLocked:
    return SecretsLocked(
        f"the secret {one.row.name!r} can't be read with the present master key",
        fix=f"set it again: `jackfield secret remove {one.row.name} --force`, "
        f"then `jackfield secret set {one.row.name}`; or put the key back that it was sealed with",
    )
