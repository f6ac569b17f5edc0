"""One worker for each destination: its parts in order, one at a time (architecture 5, rules 5 and 6; C017).

For each part: the intent is recorded, the channel sends, what came of it is recorded; then the next.  What a part's
failure leads to is decided by `retry.after_send`.  No destination waits for another.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from jackfield.api import SendResult
from jackfield.clock import UnixMs
from jackfield.errors import Ambiguous, ChannelError, Conflict, JackfieldError, NotFound, RateLimited
from jackfield.host.channels import ChannelDirectory, ChannelInstance
from jackfield.host.delivery_records import fail_row, follow, give_back, once_more
from jackfield.host.hub import Hub
from jackfield.host.pacing import Pacer, Rate
from jackfield.host.retry import SEND_WINDOW, GiveUp, LookUp, MoveTo, SendAgain, SendPlain, SendState, Wait, after_send
from jackfield.host.sending import PartlySent, Sender
from jackfield.ids import DeliveryId
from jackfield.models import Address, Capabilities, ChannelState, ChannelStatus, Delivery, DeliveryState
from jackfield.points import reach
from jackfield.store import deliveries

__all__ = ["Ended", "Workers"]

log = logging.getLogger(__name__)

LONGEST_SLEEP = 90.0
"""Seconds that a worker waits for a retry itself; a longer wait is the due-timer's."""
PACED_WRITE = 1.0
"""A pause for the rate that is longer than this is written down, so that a crash during it leaves nothing in doubt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A part came to its end."""

    part: Delivery
    state: DeliveryState
    platform_ids: tuple[str, ...] = ()
    reason: str | None = None
    error: str | None = None
    degraded: tuple[str, ...] = ()
    whole: bool = True
    """False when some of its files were refused."""


_Decided = SendAgain | Wait | GiveUp


class Workers:
    """Starts and ends the workers, and remembers what lies only in memory: who is being sent to, who is deaf."""

    def __init__(
        self,
        hub: Hub,
        channels: ChannelDirectory,
        sender: Sender,
        pacer: Pacer,
        *,
        on_end: Callable[[Ended], Awaitable[None]],
        on_settled: Callable[[], None],
    ) -> None:
        self._hub = hub
        self._channels = channels
        self._sender = sender
        self._pacer = pacer
        sender.on_leave = self._leaves
        self._on_end = on_end
        self._on_settled = on_settled
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._in_flight: set[str] = set()
        self._deaf: set[str] = set()
        self._woken: dict[str, int] = {}
        self._unrecorded: dict[DeliveryId, SendResult] = {}
        """Sends that the platform took and the store could not record yet: recorded later, never sent again."""
        self.left: dict[DeliveryId, str] = {}
        """Parts that an earlier life of the host left in doubt, and their destinations."""
        self.troubled: set[str] = set()
        """Destinations whose worker could not go on; the next round starts it again."""
        self.closing = False

    # ---- from outside

    def busy(self, destination: str) -> bool:
        return destination in self._tasks

    def deaf(self, destination: str) -> bool:
        return destination in self._deaf

    def kick(self, destination: str, first: Delivery | None = None) -> None:
        """See whether something can be sent there; `first` is its oldest part, if that was recorded just now."""
        if self.closing:
            return
        if destination in self._tasks:
            self._again.add(destination)
            return
        self.troubled.discard(destination)
        self._tasks[destination] = self._hub.spawn(self._run(destination, first), f"deliver {destination}")

    def listening(self, prefix: str) -> None:
        """A channel began anew: whoever was deaf there may hear again."""
        self._deaf = {destination for destination in self._deaf if not destination.startswith(prefix)}

    def wake(self, chat: Address) -> None:
        """Somebody listens in that chat now."""
        name = str(chat.chat)
        self._woken[name] = self._woken.get(name, 0) + 1
        for destination in [deaf for deaf in self._deaf if deaf == name or deaf.startswith(name + ":")]:
            self._deaf.discard(destination)
            self.kick(destination)

    async def stop(self, grace: float) -> None:
        """Let what is being sent end; nothing new begins.  What was promised but not begun is given back."""
        self.closing = True
        for destination, task in list(self._tasks.items()):
            if destination not in self._in_flight:
                task.cancel()
        tasks = list(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=5)
        doubtful, now = set(self._in_flight), self._hub.clock.now()
        try:
            await self._hub.store.write(give_back, doubtful, self.left, now)
        except JackfieldError as problem:
            log.warning("what was not begun stays in doubt until the next start: %s", problem)

    # ---- one destination

    async def _run(self, destination: str, first: Delivery | None) -> None:
        try:
            while not self.closing:
                self._again.discard(destination)
                await self._drain(destination, first)
                first = None
                if destination not in self._again:
                    break
        except JackfieldError as problem:
            # The store is in trouble; the timer's next round tries again.
            self._hub.trouble("delivery")
            self.troubled.add(destination)
            log.warning("nothing can be sent to %s now: %s", destination, problem)
        except Exception:
            self._hub.trouble("delivery")
            self.troubled.add(destination)
            log.exception("the worker of %s failed", destination)
        finally:
            if not self.closing:
                self._in_flight.discard(destination)
            del self._tasks[destination]
            self._on_settled()

    async def _drain(self, destination: str, first: Delivery | None) -> None:
        clock, store = self._hub.clock, self._hub.store
        part = first or store.peek(deliveries.next_for, destination, clock.now())
        paced: DeliveryId | None = None
        while part is not None and not self.closing:
            now = clock.now()
            if part.state is not DeliveryState.SENDING and part.next_try_at > now:
                wait = (part.next_try_at - now) / 1000
                if wait > LONGEST_SLEEP:
                    return
                await clock.sleep(wait)
                part = await store.read(deliveries.next_for, destination, clock.now())
                continue
            instance = self._channels.instance(part.address.channel_type, part.address.instance)
            if instance is None or instance.channel is None or not instance.ready.is_set():
                if await self._not_ready(part, instance):
                    part = await store.read(deliveries.next_for, destination, clock.now())
                    continue
                return
            if destination in self._deaf:
                return
            can = instance.channel.capabilities(part.address)
            in_doubt = part.id in self.left
            if not in_doubt and paced != part.id:
                paced = part.id
                wait = self._pace(part, can)
                if wait > PACED_WRITE and part.state is DeliveryState.SENDING:
                    until = UnixMs(now + round(wait * 1000))
                    await store.write(deliveries.retry_at, part.id, until, "Paced", None, now, counts=False)
                if wait > 0:
                    await clock.sleep(wait)
                    part = await store.read(deliveries.next_for, destination, clock.now())
                    if part is None or part.id != paced:
                        continue
            reach("host.deliver.before_intent")
            if part.state is not DeliveryState.SENDING:
                begun = await store.write(deliveries.intent, part.id, clock.now())
                if begun is None:
                    part = await store.read(deliveries.next_for, destination, clock.now())
                    continue
                part = begun
            reach("host.deliver.after_intent")
            part = await self._send(destination, part, instance, can, in_doubt)

    def _pace(self, part: Delivery, can: Capabilities) -> float:
        """Seconds until the part may leave under all rates that it falls under."""
        now = self._hub.clock.monotonic()
        return self._pacer.reserve(self._limits(part, can), now) - now

    def _limits(self, part: Delivery, can: Capabilities) -> dict[str, Rate | None]:
        return {
            f"chat {part.address.chat}": Rate(can.rate_per_chat) if can.rate_per_chat else None,
            _account(part.address): Rate(can.rate_global) if can.rate_global else None,
            # Only a runaway agent meets this one (messaging.md 8.2).
            f"session {part.session_id}": Rate.per_minute(self._hub.settings.messages_per_minute),
        }

    def _leaves(self, part: Delivery) -> None:
        instance = self._channels.instance(part.address.channel_type, part.address.instance)
        if instance is not None and instance.channel is not None:
            can = instance.channel.capabilities(part.address)
            now = self._hub.clock.monotonic()
            self._pacer.went(self._limits(part, can), now)
            self._hub.loops.say(part.address, now)

    async def _not_ready(self, part: Delivery, instance: ChannelInstance | None) -> bool:
        """Wait for the channel, up to the window; whether the part came to its end instead (C084)."""
        now = self._hub.clock.now()
        reason = "ChannelMissing" if instance is None else "ChannelNotReady"
        if now - part.created_at > SEND_WINDOW * 1000:
            detail = instance.status.detail if instance is not None else "it is not configured any more"
            await self._fail(part, reason, f"the channel was not ready for {SEND_WINDOW / 3600:g} hours: {detail}")
            return True
        if part.state is not DeliveryState.WAITING and part.id not in self.left:
            await self._hub.store.write(deliveries.waiting, part.id, now, reason)
        return False

    # ---- one part

    async def _send(
        self, destination: str, part: Delivery, instance: ChannelInstance, can: Capabilities, in_doubt: bool
    ) -> Delivery | None:
        """Send one part and record what came of it; the next part to look at."""
        woken = self._woken.get(str(part.address.chat), 0)
        self._in_flight.add(destination)
        outcome: SendResult | _Decided
        known = self._unrecorded.get(part.id)
        if known is not None:
            outcome, problem = known, None
        else:
            outcome, problem = await self._attempt(part, instance, can, in_doubt)
        store, clock = self._hub.store, self._hub.clock
        now = clock.now()
        match outcome:
            case SendResult():
                self._unrecorded[part.id] = outcome
                reach("host.deliver.after_send")
                state = DeliveryState.SENT if outcome.final else DeliveryState.ACCEPTED
                start_next = not (self.closing or can.rate_per_chat or can.rate_global)
                refused = outcome.refused if isinstance(outcome, PartlySent) else ()
                following = await store.write(
                    deliveries.sent, part.id, outcome.ids, state, now, start_next=start_next,
                    missing="\n".join(refused)[:1000] or None,
                )  # fmt: skip
                reach("host.deliver.after_record")
                del self._unrecorded[part.id]
                self.left.pop(part.id, None)
                self._in_flight.discard(destination)
                await self._on_end(
                    Ended(
                        part=part, state=state, platform_ids=outcome.ids, degraded=outcome.degraded, whole=not refused
                    )
                )
                return following
            case SendAgain():
                self._slow_down(part, outcome, now)
                await store.write(
                    deliveries.retry_at,
                    part.id,
                    outcome.at,
                    outcome.reason,
                    str(problem)[:1000],
                    now,
                    counts=outcome.counts,
                    maybe_duplicate=outcome.maybe_duplicate,
                )
            case Wait(reason=reason, deadline=deadline):
                await store.write(deliveries.waiting, part.id, now, reason)
                if deadline:
                    instance.report(ChannelStatus(state=ChannelState.AUTH_FAILED, detail=str(problem)))
                elif self._woken.get(str(part.address.chat), 0) == woken:
                    self._deaf.add(destination)
            case GiveUp(reason=reason):
                await self._fail(part, reason, str(problem))
        self.left.pop(part.id, None)
        self._in_flight.discard(destination)
        return await store.read(deliveries.next_for, destination, clock.now())

    async def _attempt(
        self, part: Delivery, instance: ChannelInstance, can: Capabilities, in_doubt: bool
    ) -> tuple[SendResult | _Decided, ChannelError | None]:
        """Try until it is sent or the next step lies outside of this moment."""
        state = SendState(
            attempts=part.attempts,
            first_try_at=part.first_try_at or self._hub.clock.now(),
            maybe_duplicate=part.maybe_duplicate,
        )
        problem: ChannelError | None = None
        if in_doubt:
            problem = Ambiguous("the host ended while it was being sent")
        while True:
            if problem is None:
                try:
                    return await self._sender.send(part, instance, plain=state.plain), None
                except ChannelError as error:
                    problem = error
            now = self._hub.clock.now()
            decision = after_send(
                problem,
                state,
                now,
                idempotent=can.idempotent_send or part.kind in ("edit", "reaction"),
                history=self._sender.has_history(part, instance, can),
                random=random.random(),
            )
            if isinstance(decision, LookUp):
                found = await self._sender.find(part, instance)
                if found is not None:
                    return SendResult(ids=found), None
                decision = decision.otherwise
            match decision:
                case SendPlain():
                    state = replace(state, plain=True)
                case MoveTo(new_platform_id=new):
                    state = replace(state, moved=True)
                    part = await self._moved(part, new)
                case SendAgain() if in_doubt:
                    # It waited through a restart already.
                    in_doubt = False
                    if decision.maybe_duplicate:
                        state = replace(state, maybe_duplicate=True)
                        part = replace(part, maybe_duplicate=True)
                        await self._hub.store.write(once_more, part.id, str(problem), now)
                case _:
                    return decision, problem
            problem = None

    async def _moved(self, part: Delivery, new_platform_id: str) -> Delivery:
        """The chat has a new id: what is wired to it follows, and this part goes there."""
        new = replace(part.address, platform_id=new_platform_id)
        log.info("chat %s has moved to %s", part.address.chat, new.chat)
        try:
            await self._hub.store.write(follow, part.address.chat, new.chat)
        except (Conflict, NotFound) as problem:
            self._hub.trouble("chat moved")
            log.warning("what is wired to %s could not follow it to %s: %s", part.address.chat, new.chat, problem)
        return replace(part, address=new)

    def _slow_down(self, part: Delivery, again: SendAgain, now: UnixMs) -> None:
        if again.reason != RateLimited.__name__:
            return
        name = _account(part.address) if again.pause == "account" else f"chat {part.address.chat}"
        monotonic = self._hub.clock.monotonic()
        self._pacer.pause(name, monotonic + (again.at - now) / 1000, monotonic)

    async def _fail(self, part: Delivery, reason: str, error: str) -> None:
        """The end of this part and, with it, of what is left of its row: half a message is told of, not finished.

        Only where files alone were refused does the rest of the row go on (C075).
        """
        now = self._hub.clock.now()
        await self._hub.store.write(fail_row, part, reason, error[:1000], now)
        self.left.pop(part.id, None)
        log.warning("part %d of %d of %s to %s failed: %s", part.part, part.parts, part.out_id, part.address, reason)
        await self._on_end(Ended(part=part, state=DeliveryState.FAILED, reason=reason, error=error))


def _account(address: Address) -> str:
    return f"account {address.channel_type} {address.instance}"
