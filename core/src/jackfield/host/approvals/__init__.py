"""Everything that a person decides: asked, shown, decided exactly once, done at most once (architecture 8)."""

from __future__ import annotations

from jackfield.host.approvals.engine import Approvals
from jackfield.host.approvals.kinds import YES_NO, Decision, HostKind

__all__ = ["YES_NO", "Approvals", "Decision", "HostKind"]
