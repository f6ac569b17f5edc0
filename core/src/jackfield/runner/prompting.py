"""The text of one turn's prompt, with what the runner itself has to tell.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jackfield.ids import InboundId
from jackfield.models import InboundRow, MessageContent, OutboundRow, RunnerSpec
from jackfield.runner.addressing import CURRENT, known_names
from jackfield.runner.batch import Batch
from jackfield.runner.intake import Scene
from jackfield.runner.output import Segment
from jackfield.runner.prompt import format_prompt, notice

__all__ = ["correction", "prompt_of", "rows_prompt"]

_SHOWN = 200


def rows_prompt(spec: RunnerSpec, scene: Scene, rows: Sequence[InboundRow], notices: Sequence[str] = ()) -> str:
    """Rows that join a running turn."""
    return format_prompt(
        rows,
        timezone=spec.timezone,
        destinations=scene.destinations,
        session=spec.paths.session,
        notices=notices,
    )


def prompt_of(
    spec: RunnerSpec,
    scene: Scene,
    batch: Batch,
    *,
    resumes: bool,
    notices: Sequence[str] = (),
    script_output: Mapping[str, str] | None = None,
) -> str:
    """The prompt that starts a turn.

    `resumes` says that the conversation still knows what it was asked.  Then rows whose turn broke off after tools had
    run are not told again, only named (architecture 5, rule 5).
    """
    told = list(notices)
    rows = list(batch.rows)
    if batch.skipped:
        told.append(notice(f"{len(batch.skipped)} earlier messages of this conversation are not shown.", "history"))
    carried = scene.carried
    if carried is not None:
        known: set[InboundId] = set()
        if resumes and carried.tools_ran and carried.reason != "crash":
            known = {row.id for row in rows if row.id in carried.rows}
        numbers = ", ".join(f"#{row.seq}" for row in rows if row.id in known)
        rows = [row for row in rows if row.id not in known]
        told.append(notice(_broken(numbers, scene.sent_before), "recovery"))
    return format_prompt(
        rows,
        timezone=spec.timezone,
        destinations=scene.destinations,
        session=spec.paths.session,
        notices=told,
        script_output=script_output,
    )


def correction(unknown: Sequence[Segment], unwrapped: Sequence[str], scene: Scene) -> str:
    """What the agent is told about texts that have no place (C005)."""
    names = known_names(scene.destinations, scene.origin)
    lines = [
        f'Your text for "{segment.to}" was not sent: there is no destination of that name. It began: '
        f"{_short(segment.text)}"
        for segment in unknown
    ]
    if unwrapped:
        lines.append(
            'Your text was not sent, because it stands outside of a <message to="name"> block. It began: '
            + _short(" ".join(unwrapped))
        )
    lines.append(f"Known destinations are: {names}. Send what should be sent again, addressed to one of them.")
    return notice("\n".join(lines), "delivery")


def _broken(numbers: str, sent: Sequence[OutboundRow]) -> str:
    lines = ["The turn that was answering these messages was broken off before it ended."]
    if numbers:
        lines = [f"The turn that was answering {numbers} was broken off after you had begun to act. Go on from there."]
    if not sent:
        lines.append("It had sent no message.")
    else:
        lines.append("It had already sent the following; don't send it again:")
        lines += [f"#{row.seq} to {row.destination or CURRENT}: {_content(row)}" for row in sent]
    return "\n".join(lines)


def _content(row: OutboundRow) -> str:
    content = row.content
    if not isinstance(content, MessageContent):
        return f"({row.kind.value})"
    files = f" with {', '.join(content.files)}" if content.files else ""
    return _short(content.text) + files


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "…"
