"""The check of the master key and of the secrets that it should open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jackfield.host.diagnosis.findings import Finding, ok, problem_of, warning
from jackfield.redaction import LEAST

if TYPE_CHECKING:
    from jackfield.host.services.context import ServiceContext

__all__ = ["secrets"]


async def secrets(context: ServiceContext, subject: str) -> list[Finding]:
    vault = context.hub.vault
    if vault.problem is not None:
        return [problem_of("secrets", vault.problem)]
    if not vault.held:
        return [ok("secrets", "there are none, so no master key is needed")]
    findings = []
    lost = [one.row.name for one in vault.held if one.value is None]
    if lost:
        text = f"{', '.join(lost)} can't be read: sealed with another master key; kept as they are"
        fix = "put their key back and `jackfield secret accept-key`; or `secret remove --force`, and set them again"
        findings.append(warning("secrets", text, fix))
    short = [one.row.name for one in vault.held if one.value is not None and len(one.value) < LEAST]
    if short:
        text = f"{', '.join(short)} are shorter than {LEAST} characters, and so not masked in logs and chats"
        findings.append(warning("secrets", text, "use longer ones where the service lets you"))
    return findings or [ok("secrets", f"master.key opens all {len(vault.held)}")]
