"""Making a request out of what somebody asks for: checked, its files copied, bound to its digest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jackfield.api import ApprovalChoice, ApprovalField, ApprovalState
from jackfield.clock import UnixMs
from jackfield.errors import MalformedData, TooLarge
from jackfield.host.approvals.digest import MAX_PAYLOAD, canonical, digest_of, keep_copies
from jackfield.host.approvals.kinds import YES_NO
from jackfield.host.hub import Hub
from jackfield.ids import AgentGroupId, ApprovalId, RequestId, SessionId, new_id
from jackfield.models import Address
from jackfield.store.approvals import Approval

__all__ = ["Wish", "draft", "folder_of"]

MAX_FIELDS = 60
MAX_VALUE = 64 * 1024
MAX_REASON = 2000
MAX_CHOICES = 40
MAX_FILES_SIZE = 20 * 1024 * 1024
"""Bytes of all files together: what an agent names costs the host as much, for each request that waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is asked for, before it is checked."""

    kind: str
    title: str
    payload: dict[str, Any]
    fields: Sequence[ApprovalField]
    reason: str = ""
    choices: Sequence[ApprovalChoice] = YES_NO
    key: str | None = None
    """What makes a second request the same one; by default its whole content."""
    agent_group_id: AgentGroupId | None = None
    session_id: SessionId | None = None
    request_id: RequestId | None = None
    origin: Address | None = None
    files: Sequence[Path] = ()
    roots: Sequence[Path] = ()
    """Where `files` may lie."""


def folder_of(hub: Hub, id: ApprovalId) -> Path:
    """Where the copies of an approval's files lie."""
    return hub.home.root / "approvals" / id


async def draft(hub: Hub, wish: Wish, now: UnixMs) -> Approval:
    """The pending approval that the wish becomes.  Copies its files; whoever doesn't keep it forgets them.

    Raises:
        MalformedData, TooLarge: it can't be asked about.
    """
    _check(wish)
    payload = canonical(wish.payload)
    if len(payload) > MAX_PAYLOAD:
        raise TooLarge(f"what is asked for has more than {MAX_PAYLOAD:,} bytes", limit=MAX_PAYLOAD)
    settings = hub.configuration.approvals
    lasts = settings.hours * 3_600_000
    id = ApprovalId(new_id("ap", now))
    item = Approval(
        id=id,
        kind=wish.kind,
        dedupe_key="",
        agent_group_id=wish.agent_group_id,
        session_id=wish.session_id,
        request_id=wish.request_id,
        origin=wish.origin,
        title=" ".join(wish.title.split())[:200] or wish.kind,
        reason=wish.reason.strip()[:MAX_REASON],
        fields=tuple(wish.fields),
        payload=payload,
        files=(),
        digest="",
        choices=tuple(wish.choices),
        state=ApprovalState.PENDING,
        created_at=now,
        expires_at=UnixMs(now + round(lasts)),
        remind_at=UnixMs(now + round(lasts * settings.remind)) if settings.remind else None,
    )
    if wish.files:
        folder, limit = folder_of(hub, id), min(hub.settings.file_limit, MAX_FILES_SIZE)
        item = replace(item, files=await asyncio.to_thread(keep_copies, wish.files, wish.roots, folder, limit))
    digest = digest_of(item)
    return replace(item, digest=digest, dedupe_key=wish.key if wish.key is not None else digest)


def _check(wish: Wish) -> None:
    if not 1 <= len(wish.fields) <= MAX_FIELDS:
        raise MalformedData(f"a person must be shown 1 to {MAX_FIELDS} fields, not {len(wish.fields)}")
    for field in wish.fields:
        if not field.label.strip() or len(field.label) > 100:
            raise MalformedData(f"a field's label needs 1 to 100 characters, got {field.label[:120]!r}")
        if len(field.value) > MAX_VALUE:
            raise TooLarge(f"the field {field.label} has more than {MAX_VALUE:,} characters", limit=MAX_VALUE)
        try:
            field.value.encode()
            field.label.encode()
        except UnicodeEncodeError:
            raise MalformedData(f"the field {field.label!r} holds half a character") from None
    if not 1 <= len(wish.choices) <= MAX_CHOICES or len({one.value for one in wish.choices}) != len(wish.choices):
        raise MalformedData(f"a decision needs 1 to {MAX_CHOICES} choices with different values")
