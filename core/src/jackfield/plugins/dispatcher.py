"""Calls the hooks on the message path: one by one, in pluggy's order, each isolated and bounded in time.

pluggy finds and orders the implementations; calling them is ours, because they are async and because one plugin's
error must neither end the others' calls nor pass for an answer (architecture 4; C187).

An implementation that blocks the thread can't be cut: asyncio runs nothing else meanwhile.  Its time is measured all
the same, and one that took longer than the bound counts as failed, whatever it returned.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from jackfield.errors import HookFailed
from jackfield.plugins.files import one_line

if TYPE_CHECKING:
    from pluggy import PluginManager

__all__ = ["HOOK_SECONDS", "PAUSE_AFTER", "PAUSE_SECONDS", "HookDispatcher"]

_log = logging.getLogger(__name__)
T = TypeVar("T")

HOOK_SECONDS = 5.0
"""The bound of one call."""
PAUSE_AFTER = 3
"""An observing hook that ran out of time this often in a row is left out for `PAUSE_SECONDS`: it must not slow every
message down.  Deciding and composing hooks are never left out, since that would change an answer."""
PAUSE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class _Implementation:
    plugin: str
    function: Callable[..., Coroutine[Any, Any, Any]]
    arguments: tuple[str, ...]


class HookDispatcher:
    """The message path's hooks over all loaded plugins.

    Observable state: `failures` counts raised, late and wrongly typed answers by (plugin, hook).
    """

    def __init__(self, *, seconds: float = HOOK_SECONDS, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.failures: Counter[tuple[str, str]] = Counter()
        self._seconds = seconds
        self._monotonic = monotonic
        self._implementations: dict[str, tuple[_Implementation, ...]] = {}
        self._answers: dict[str, tuple[type, ...]] = {}
        self._late: Counter[tuple[str, str]] = Counter()
        self._paused: dict[tuple[str, str], float] = {}
        self._abandoned: set[asyncio.Task[Any]] = set()

    def use(self, manager: PluginManager) -> None:
        """Take over pluggy's implementations, in the order in which pluggy would call them."""
        from jackfield.api.hookspecs import HOOKS, HookKind

        found: dict[str, tuple[_Implementation, ...]] = {}
        for hook, kind in HOOKS.items():
            caller = getattr(manager.hook, hook, None)
            if kind is HookKind.REGISTRATION or caller is None:
                continue
            order = tuple(
                _Implementation(one.plugin_name, one.function, tuple(one.argnames))
                for one in reversed(caller.get_hookimpls())
            )
            if order:
                found[hook] = order
        self._implementations = found

    def has(self, hook: str) -> bool:
        """Whether any loaded plugin implements it; one look into a dict."""
        return hook in self._implementations

    async def first(self, hook: str, /, **arguments: Any) -> Any | None:
        """Ask each in order until one answers with something else than None.

        Raises:
            HookFailed: one raised, took longer than its bound, or answered with another type.  Take it as "no".
        """
        for one in self._implementations.get(hook, ()):
            answer = await self._call(one, hook, arguments, self._expected(hook))
            if answer is not None:
                return answer
        return None

    async def notify(self, hook: str, /, **arguments: Any) -> None:
        """Tell all at once, and wait for them, within the bound.  Never raises; failures are logged and counted."""
        implementations = self._implementations.get(hook)
        if implementations is None:
            return
        await asyncio.gather(*(self._tell(one, hook, arguments) for one in implementations))

    async def compose(self, hook: str, value_name: str, value: T, /, **arguments: Any) -> T:
        """Hand the value from one to the next, as the argument `value_name`.  A failing one is passed over."""
        for one in self._implementations.get(hook, ()):
            try:
                value = await self._call(one, hook, {**arguments, value_name: value}, self._expected(hook))
            except HookFailed:
                continue  # counted and logged where it was raised; the last good value goes on (C187)
        return value

    async def close(self) -> None:
        """End the calls that were abandoned when their time was up."""
        waiting = set(self._abandoned)
        for task in waiting:
            task.cancel()
        if waiting:
            await asyncio.wait(waiting, timeout=1.0)

    async def _tell(self, one: _Implementation, hook: str, arguments: dict[str, Any]) -> None:
        key = (one.plugin, hook)
        if self._paused.get(key, 0.0) > self._monotonic():
            return
        late = self._late[key]
        try:
            await self._call(one, hook, arguments, None)
        except HookFailed:
            if self._late[key] >= PAUSE_AFTER and self._late[key] > late:
                self._paused[key] = self._monotonic() + PAUSE_SECONDS
                self._late[key] = 0
                _log.warning(
                    "plugin %s: hook %s took too long %d times in a row; it is left out for %d s",
                    one.plugin, hook, PAUSE_AFTER, PAUSE_SECONDS,
                )  # fmt: skip
            return
        self._late[key] = 0

    async def _call(
        self, one: _Implementation, hook: str, arguments: dict[str, Any], expected: tuple[type, ...] | None
    ) -> Any:
        """One implementation, in a task of its own: so that it can be left behind even when it ignores being cancelled.

        `expected` are the types that it may answer with; None means any.
        """
        chosen = {name: arguments[name] for name in one.arguments if name in arguments}
        began = self._monotonic()
        task = asyncio.create_task(_guarded(one.function, chosen), name=f"hook {hook} of {one.plugin}")
        try:
            await asyncio.wait({task}, timeout=self._seconds)
        except asyncio.CancelledError:
            self._abandon(task)
            raise
        took = self._monotonic() - began
        if not task.done():
            self._abandon(task)
            raise self._late_failure(one, hook, f"did not answer within {self._seconds:g} s")
        if task.cancelled():
            raise self._failure(one, hook, "cancelled itself", None)
        answer, problem = task.result()
        if problem is not None:
            raise self._failure(one, hook, f"{type(problem).__name__}: {one_line(str(problem))}", problem)
        if took > self._seconds:
            raise self._late_failure(
                one, hook, f"blocked everything for {took:.1f} s; the bound is {self._seconds:g} s"
            )
        if expected is not None and not isinstance(answer, expected):
            wanted = " or ".join(kind.__name__ for kind in expected if kind is not type(None))
            raise self._failure(one, hook, f"answered with {type(answer).__name__}, not with {wanted}", None)
        return answer

    def _abandon(self, task: asyncio.Task[Any]) -> None:
        task.cancel()
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)

    def _late_failure(self, one: _Implementation, hook: str, reason: str) -> HookFailed:
        self._late[(one.plugin, hook)] += 1
        return self._failure(one, hook, reason, None)

    def _failure(self, one: _Implementation, hook: str, reason: str, problem: BaseException | None) -> HookFailed:
        self.failures[(one.plugin, hook)] += 1
        _log.error("plugin %s: hook %s: %s", one.plugin, hook, reason, exc_info=problem)
        failure = HookFailed(one.plugin, hook, reason)
        failure.__cause__ = problem
        return failure

    def _expected(self, hook: str) -> tuple[type, ...]:
        """The types that the hook's specification allows as an answer, None among them."""
        if hook not in self._answers:
            from jackfield import api, models
            from jackfield.api import hookspecs

            # The specifications name their types without importing them.
            known = {name: getattr(room, name) for room in (models, api) for name in room.__all__}
            answer = get_type_hints(getattr(hookspecs.HookSpecs, hook), {**known, **vars(hookspecs)})["return"]
            self._answers[hook] = tuple(get_args(answer)) or (answer,)
        return self._answers[hook]


async def _guarded(
    function: Callable[..., Coroutine[Any, Any, Any]], arguments: dict[str, Any]
) -> tuple[Any, BaseException | None]:
    """The answer, or what was raised.  A SystemExit that left a task would end the event loop, and the host with it."""
    try:
        return await function(**arguments), None
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as problem:  # noqa: BLE001 - handed to the caller, who logs and counts it
        return None, problem
