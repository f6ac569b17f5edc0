"""Run one check of a contract against something wrong, and expect a refusal."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest
from jackfield.testing.contracts import PluginContract, checks_of

__all__ = ["refusal"]


async def refusal(contract: type[PluginContract], id: str, tmp_path: Path, **given: Any) -> str:
    """The message with which this check refuses."""
    (found,) = (one for one in checks_of(contract) if one.id == id)
    method = getattr(contract(), found.name)
    fixtures = {"tmp_path": tmp_path, **given}
    needed = {name: fixtures[name] for name in inspect.signature(method).parameters}
    try:
        with pytest.raises((AssertionError, pytest.fail.Exception)) as caught:
            if inspect.iscoroutinefunction(method):
                await method(**needed)
            else:
                await asyncio.to_thread(method, **needed)
    except pytest.skip.Exception as skipped:
        raise AssertionError(f"{id} was skipped instead of refused: {skipped}") from None
    return str(caught.value)
