"""Everything that a person decides: asked, shown, decided exactly once, done at most once (architecture 8)."""

from __future__ import annotations

from jackfield.host.approvals.answers import Answers
from jackfield.host.approvals.engine import Approvals
from jackfield.host.approvals.kinds import YES_NO, Decision, HostKind
from jackfield.host.approvals.showing import LOCAL_OPERATOR, Showing

__all__ = ["LOCAL_OPERATOR", "YES_NO", "Answers", "Approvals", "Decision", "HostKind", "Showing"]
