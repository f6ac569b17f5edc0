"""Bringing an approval before one person who may decide it, and keeping its cards true afterwards (messaging.md 11.4).

A card is entered before it is sent, so that after a crash the same card goes to the same place under the same key.
Whoever can be reached first gets it; as long as nobody could be, the sweep, a channel that becomes ready and a client
that attaches try again.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from weakref import WeakValueDictionary
from zoneinfo import ZoneInfo

from jackfield.api import ApprovalState, SendPath
from jackfield.clock import UnixMs, zone_or_utc
from jackfield.errors import (
    Ambiguous,
    AuthFailed,
    BadContent,
    ChannelError,
    ChatNotFound,
    SendNotAllowed,
    TooLarge,
    Unsupported,
    WindowClosed,
)
from jackfield.host.agents import places
from jackfield.host.approvals import cards, policy
from jackfield.host.approvals.digest import SHOWN
from jackfield.host.approvals.requests import folder_of
from jackfield.host.channels import ChannelDirectory
from jackfield.host.delivery import Delivery
from jackfield.host.dms import DirectChats
from jackfield.host.hub import Hub
from jackfield.ids import ApprovalId, UserId, derive_id
from jackfield.models import Address, MessageRef, OutFile, OutMessage
from jackfield.store import approval_cards, approvals, groups, people, sessions
from jackfield.store.approval_cards import Card
from jackfield.store.approvals import Approval

__all__ = ["LOCAL_OPERATOR", "Showing"]

log = logging.getLogger(__name__)

LOCAL_OPERATOR = "operator"
"""Who decides at the command line, or at the terminal of this machine."""
MENDED = 86_400_000
"""Milliseconds after a decision for which cards that still ask are mended."""
_GONE = (ChatNotFound, SendNotAllowed, WindowClosed)
_FINAL = (*_GONE, AuthFailed, BadContent, TooLarge, Unsupported)


class Showing:
    def __init__(self, hub: Hub, channels: ChannelDirectory, delivery: Delivery) -> None:
        self._hub = hub
        self._channels = channels
        self._delivery = delivery
        self._chats = DirectChats(hub, channels)
        self._locks: WeakValueDictionary[ApprovalId, asyncio.Lock] = WeakValueDictionary()

    # ---- asking

    async def show(self, item: Approval, also: Address | None = None) -> bool:
        """Put its card before one person, unless it lies before one.  False when nobody can be reached.

        `also` is a local chat in which somebody listens now.
        """
        async with self.lock(item.id):
            fresh = await self._hub.store.read(approvals.approval, item.id)
            if fresh is None or fresh.state is not ApprovalState.PENDING:
                return True
            known = await self._hub.store.read(approval_cards.cards_of, item.id)
            if any(card.parts is not None for card in known):
                return True
            for card in known:  # left by a crash or a send of which nobody knows
                if await self._send(fresh, card.address, card.user_id):
                    return True
            async for address, user in self._places(fresh, also):
                if await self._send(fresh, address, user):
                    return True
            return False

    def lock(self, id: ApprovalId) -> asyncio.Lock:
        """Whoever changes an approval's cards holds it."""
        return self._locks.setdefault(id, asyncio.Lock())

    async def _places(self, item: Approval, also: Address | None) -> AsyncIterator[tuple[Address, str]]:
        """Where it can be shown to whom, the best first."""
        origin = item.origin or await self._root_of(item)
        for address in (origin, also):
            if address is not None and self._is_local(address):
                yield address, LOCAL_OPERATOR
        roles = await self._hub.store.read(people.all_roles, item.agent_group_id)
        ready = [(one.type, one.name) for one in self._channels.all() if one.ready.is_set()]
        asked = policy.approvers(roles, item.agent_group_id)
        for user, channel_type, instance in policy.preferred(asked, ready, origin):
            address = await self._chats.ensure(user, channel_type, instance)
            if address is not None:
                yield address, user

    async def _root_of(self, item: Approval) -> Address | None:
        """The chat from which all of it came: also when a task asks, or an agent that was asked by another."""

        def look(db: sqlite3.Connection) -> Address | None:
            session = sessions.session(db, item.session_id) if item.session_id is not None else None
            chat = places.root_chat(db, session) if session is not None else None
            return None if chat is None else chat.address

        return await self._hub.store.read(look)

    def _is_local(self, address: Address) -> bool:
        instance = self._channels.instance(address.channel_type, address.instance)
        return instance is not None and instance.info is not None and instance.info.local

    async def _send(self, item: Approval, address: Address, user: str) -> bool:
        """Whether it lies before that person now, or may."""
        drawn = await self._message(item, address, user)
        if drawn is None:
            log.info("%s can't be shown whole in %s", item.id, address)
            return False
        now = self._hub.clock.now()
        if not await self._hub.store.write(approval_cards.add, item.id, address, user, now):
            return True  # it was decided meanwhile
        try:
            parts = await self._delivery.send_now(
                address, drawn, path=SendPath.CARD, key=derive_id("dl", item.id, str(address))
            )
        except Ambiguous as problem:
            log.warning("nobody knows whether the card of %s arrived in %s: %s", item.id, address, problem)
            return True
        except ChannelError as problem:
            log.info("%s can't be asked about %s in %s: %s", user, item.id, address, problem)
            await self._hub.store.write(approval_cards.remove, item.id, address)
            if isinstance(problem, _GONE) and user != LOCAL_OPERATOR:
                await self._chats.forget(UserId(user), address)
            return False
        await self._hub.store.write(approval_cards.sent, item.id, address, parts, self._hub.clock.now())
        log.info("%s (%s) is shown to %s in %s", item.id, item.kind, user, address)
        again = await self._hub.store.read(approvals.approval, item.id)
        if again is not None and again.state is not ApprovalState.PENDING:
            self._hub.spawn(self.refresh(again), f"card {item.id}")
        return True

    async def _whose(self, item: Approval) -> str:
        if item.agent_group_id is None:
            return ""
        group = await self._hub.store.read(groups.agent_group, item.agent_group_id)
        return "" if group is None else cards.agent(group.name, group.folder)

    async def _zone(self, user: str) -> ZoneInfo:
        """In which somebody is told times: their own, else the host's."""
        known = await self._hub.store.read(people.user, UserId(user)) if user != LOCAL_OPERATOR else None
        return zone_or_utc((known.timezone if known is not None else None) or self._hub.settings.timezone)

    async def _message(self, item: Approval, address: Address, user: str) -> OutMessage | None:
        """The card as that chat can take it; None when not all of it can be shown there."""
        instance = self._channels.instance(address.channel_type, address.instance)
        if instance is None or instance.channel is None:
            return None
        can, whose, zone = instance.channel.capabilities(address), await self._whose(item), await self._zone(user)
        folder = folder_of(self._hub, item.id)
        drawn = cards.draw(item, whose, files=True)
        sizes = [len(text.encode()) for _, text in drawn.files] + [one.size for one in item.files]
        if not sizes or cards.takes_all(can, sizes):
            files = await asyncio.to_thread(_written, folder / SHOWN, drawn.files)
            files += [OutFile(one.name, str(folder / one.name), one.size) for one in item.files]
            return replace(cards.message(item, drawn, zone), files=tuple(files))
        drawn = cards.draw(item, whose, files=False)
        text = drawn.text
        for one in item.files:
            content = await asyncio.to_thread(_text_of, folder / one.name, cards.INLINE)
            if content is None:
                return None
            text += f"\n\n**{cards.label(one.name)}:** {cards.literal(content)}"
        if len(text) > cards.INLINE:
            return None
        return cards.message(item, replace(drawn, text=text), zone)

    # ---- afterwards

    async def refresh(self, item: Approval) -> None:
        """Let its cards say what became of it, as far as their chats allow."""
        async with self.lock(item.id):
            fresh = await self._hub.store.read(approvals.approval, item.id)
            if fresh is None or fresh.state is ApprovalState.PENDING:
                return
            key = cards.state_key(fresh)
            found = await self._hub.store.read(approval_cards.cards_of, item.id)
            for card in found:
                if card.parts is not None and card.shown_as != key:
                    await self._rewrite(fresh, card, key)

    async def _rewrite(self, item: Approval, card: Card, key: str) -> None:
        told: str | None = key
        try:
            await self._put(item, card, key)
        except _FINAL as problem:
            log.info("the card of %s in %s stays as it is: %s", item.id, card.address, problem)
        except ChannelError as problem:
            log.info("the card of %s in %s can't be changed now: %s", item.id, card.address, problem)
            told = None  # the sweep tries again
        await self._hub.store.write(approval_cards.shown_as, item.id, card.address, told)

    async def _put(self, item: Approval, card: Card, key: str) -> None:
        """Its last part had the buttons.  Where messages can't be changed, a new one says what became of it."""
        assert card.parts is not None
        short = OutMessage(text=await self.final_text(item, whole=False))
        ref = MessageRef(card.address, card.parts[-1] if card.parts else ())
        try:
            if len(card.parts) == 1:
                try:
                    await self._delivery.edit_now(ref, OutMessage(text=await self.final_text(item, whole=True)))
                    return
                except (TooLarge, BadContent) as problem:
                    log.info("the card of %s in %s becomes a short one: %s", item.id, card.address, problem)
            await self._delivery.edit_now(ref, short)
        except Unsupported:
            send_key = derive_id("dl", item.id, str(card.address), key)
            await self._delivery.send_now(card.address, short, path=SendPath.NOTICE, key=send_key)

    async def final_text(self, item: Approval, *, whole: bool) -> str:
        """What its card says in the end; `whole` with all that was asked."""
        drawn = cards.draw(item, await self._whose(item), files=bool(item.files)) if whole else None
        return cards.final_text(item, drawn, await self.name_of(item.decided_by))

    async def name_of(self, who: str | None) -> str:
        """How people know whoever decided."""
        if who is None or who == LOCAL_OPERATOR:
            return who or ""
        user = await self._hub.store.read(people.user, UserId(who))
        return who if user is None or user.display_name is None else user.display_name

    async def answered(self, item: Approval, chat: Address) -> None:
        """The channel has put the outcome on the card of that chat itself, as the answer to a click.  The caller holds
        the lock."""
        for card in await self._hub.store.read(approval_cards.cards_of, item.id):
            if card.address.chat == chat.chat:
                key = cards.state_key(item)
                await self._hub.store.write(approval_cards.shown_as, item.id, card.address, key)

    # ---- time

    async def remind(self, item: Approval) -> None:
        """Say once more, where its card lies, that it waits."""
        for card in await self._hub.store.read(approval_cards.cards_of, item.id):
            if not card.parts:
                continue
            reply_to = MessageRef(card.address, card.parts[-1]) if card.parts[-1] else None
            said = OutMessage(text=cards.reminder_text(item, await self._zone(card.user_id)), reply_to=reply_to)
            await self._delivery.send_direct(card.address, said, path=SendPath.NOTICE)

    async def mend(self) -> None:
        """Change the cards that still ask although their approval was decided."""
        since = UnixMs(self._hub.clock.now() - MENDED)
        for id in await self._hub.store.read(approval_cards.stale, since):
            item = await self._hub.store.read(approvals.approval, id)
            if item is not None and item.finished_at is not None:
                await self.refresh(item)


def _written(folder: Path, files: tuple[tuple[str, str], ...]) -> list[OutFile]:
    out = []
    for name, text in files:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = text.encode("utf-8", "replace")
        (folder / name).write_bytes(data)
        out.append(OutFile(name, str(folder / name), len(data), "text/plain"))
    return out


def _text_of(path: Path, limit: int) -> str | None:
    """What a short text file says; None for anything else."""
    try:
        data = path.read_bytes()
        return data.decode() if len(data) <= limit else None
    except (OSError, UnicodeDecodeError):
        return None
