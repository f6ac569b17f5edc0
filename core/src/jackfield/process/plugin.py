"""The entry point `process` of `jackfield.runtimes`: the built-in runtime, registered like any other."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.api import RuntimeContext, RuntimeType, hookimpl
from jackfield.process.runtime import ProcessRuntime
from jackfield.process.settings import ProcessSettings

__all__ = ["register_runtimes"]


def _create(context: RuntimeContext, settings: ProcessSettings | None) -> ProcessRuntime:
    return ProcessRuntime(context, settings or ProcessSettings())


@hookimpl
def register_runtimes() -> Sequence[RuntimeType]:
    """One: processes of this machine, as isolated as it allows."""
    return [RuntimeType(name="process", title="Processes of this machine", create=_create, settings=ProcessSettings)]
