"""What the host notes about each live runner, so that the next host finds it again (C099)."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from jackfield.ids import SessionId, is_id
from jackfield.process import proc
from jackfield.process.environment import mark_of

__all__ = ["Records", "RunnerRecord"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerRecord:
    """`started` is in clock ticks since the boot that `boot` names; both are zero and empty where unknown."""

    install_id: str
    session_id: SessionId
    epoch: int
    pid: int
    started: int
    boot: str
    uid: int | None
    namespaces: bool

    @property
    def mark(self) -> str:
        return mark_of(self.install_id, self.session_id, self.epoch)

    def alive(self) -> bool:
        """Whether exactly this process still runs: same boot, id and start time, and not marked as another's."""
        if self.boot != proc.boot_id():
            return False
        found = proc.entry(self.pid)
        if found is None:
            return not proc.HAS_PROC and _answers(self.pid)
        return (
            found.started == self.started and found.state not in "ZX" and proc.carries(self.pid, self.mark) is not False
        )


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class Records:
    """One small file a runner, in a folder that only the host can write."""

    def __init__(self, folder: Path, install_id: str) -> None:
        self.folder = folder
        self.install_id = install_id

    def path(self, session_id: SessionId) -> Path:
        return self.folder / f"{session_id}.json"

    def write(self, record: RunnerRecord) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        target = self.path(record.session_id)
        fresh = target.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(record)), encoding="utf-8")
        fresh.replace(target)

    def remove(self, session_id: SessionId) -> None:
        self.path(session_id).unlink(missing_ok=True)

    def read(self, session_id: SessionId) -> RunnerRecord | None:
        """The record, or None when there is none, it can't be read, or it is another install's."""
        path = self.path(session_id)
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            record = RunnerRecord(
                install_id=str(raw["install_id"]),
                session_id=SessionId(str(raw["session_id"])),
                epoch=int(raw["epoch"]),
                pid=int(raw["pid"]),
                started=int(raw["started"]),
                boot=str(raw["boot"]),
                uid=None if raw["uid"] is None else int(raw["uid"]),
                namespaces=bool(raw["namespaces"]),
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s is no record of a runner: %s", path, error)
            return None
        return record if record.install_id == self.install_id and record.session_id == session_id else None

    def all(self) -> list[RunnerRecord]:
        if not self.folder.is_dir():
            return []
        names = sorted(path.stem for path in self.folder.glob("*.json"))
        found = [self.read(SessionId(name)) for name in names if is_id(name)]
        return [record for record in found if record is not None]
