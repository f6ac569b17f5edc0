"""What `jackfield doctor` looks at: facts are gathered at the edge, and judged by functions from values to findings."""

from __future__ import annotations

from jackfield.host.diagnosis.findings import Finding, Level, error, finding_from, ok, problem_of, warning, worst

__all__ = ["Finding", "Level", "error", "finding_from", "ok", "problem_of", "warning", "worst"]
