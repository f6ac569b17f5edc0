"""What is said about an approval, to agents and to people.  Pure."""

from __future__ import annotations

from jackfield.api import ApprovalState
from jackfield.store.approvals import Approval, DeedOutcome, Via

__all__ = ["outcome_words", "unreachable_words"]


def outcome_words(item: Approval) -> str:
    """What the agent is told of the end of its request."""
    what = f"Your request {item.title!r} ({item.id})"
    note = f": {item.note}" if item.note else ""
    by = f" by {item.decided_by}" if item.decided_by and item.via is not Via.POLICY else ""
    match item.state:
        case ApprovalState.REJECTED:
            return f"{what} was rejected{by}{note}. Nothing was done."
        case ApprovalState.EXPIRED:
            return f"{what} expired: nobody decided it in time. That is neither yes nor no; nothing was done."
        case ApprovalState.CANCELLED:
            return f"{what} was cancelled{by}{note}. That is neither yes nor no; nothing was done."
        case ApprovalState.PENDING:
            return f"{what} waits for a decision."
        case ApprovalState.APPROVED:
            said = "was allowed" if item.via is Via.POLICY else f"was approved{by}{note}"
    result = (item.outcome_text or "").rstrip(".")
    match item.outcome:
        case DeedOutcome.FAILED:
            return f"{what} {said}, but it was not done: {result}."
        case DeedOutcome.INTERRUPTED:
            return f"{what} {said}, but {result}. Look what is there before you ask again."
        case _:
            return f"{what} {said}, and it is done{': ' + result if result else ''}."


def unreachable_words(item: Approval) -> str:
    """What the agent is told when nobody can be asked in a chat."""
    return (
        f"Your request {item.title!r} ({item.id}) waits for a decision, but nobody who may decide it can be reached in "
        f"a chat now. The operator can decide it with `jackfield approval approve {item.id}` or `... reject {item.id}`."
    )
