"""The state machine of approvals: whatever comes in whatever order, each is decided once and done once (C153)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule
from jackfield.api.approvals import ApprovalChoice, ApprovalField, ApprovalState
from jackfield.clock import SystemClock, UnixMs
from jackfield.ids import AgentGroupId, ApprovalId, RequestId, SessionId, new_id
from jackfield.models import Address
from jackfield.store import approvals
from jackfield.store.approvals import Approval, ApprovedFile, DeedOutcome, Via
from jackfield.store.opening import open_database

LASTS = 1000
SESSION = SessionId("ses_1")


def made(now: UnixMs, *, key: str, request: str | None = None) -> Approval:
    return Approval(
        id=ApprovalId(new_id("ap")),
        kind="act",
        dedupe_key=key,
        agent_group_id=AgentGroupId("ag_1"),
        session_id=SESSION,
        request_id=None if request is None else RequestId(request),
        origin=Address("fake", "fake", "c:1", "t"),
        title="Do it",
        reason="why \ud800",
        fields=(ApprovalField(label="what", value="x \u202e y"),),
        payload="{}",
        files=(ApprovedFile("a.sh", "00", 1),),
        digest="d",
        choices=(
            ApprovalChoice(value="yes", label="Yes", approves=True),
            ApprovalChoice(value="no", label="No", approves=False, selected_label="Not so"),
        ),
        state=ApprovalState.PENDING,
        created_at=now,
        expires_at=UnixMs(now + LASTS),
        remind_at=UnixMs(now + LASTS // 2),
    )


class Approvals(RuleBasedStateMachine):
    ids: Bundle[ApprovalId] = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        place = Path(self.folder.name)
        self.db = open_database(place / "state.db", SystemClock(), backups=place)
        self.now = UnixMs(1)
        self.ended: dict[ApprovalId, ApprovalState] = {}
        self.begun: dict[ApprovalId, int] = {}
        self.reminded: dict[ApprovalId, int] = {}
        self.results: dict[ApprovalId, DeedOutcome] = {}

    def teardown(self) -> None:
        self.db.close()
        self.folder.cleanup()

    @rule(target=ids, key=st.sampled_from("ab"), request=st.sampled_from([None, "req_1", "req_2"]))
    def ask(self, key: str, request: str | None) -> ApprovalId:
        wish = made(self.now, key=key, request=request)
        kept, fresh = approvals.add(self.db, wish)
        assert fresh == (kept.id == wish.id)
        again, once_more = approvals.add(self.db, wish)
        assert not once_more or again.id == wish.id
        return kept.id

    @rule(id=ids, state=st.sampled_from(list(ApprovalState)[1:]))
    def decide(self, id: ApprovalId, state: ApprovalState) -> None:
        before = approvals.approval(self.db, id)
        assert before is not None
        late = before.expires_at <= self.now and state in (ApprovalState.APPROVED, ApprovalState.REJECTED)
        done = approvals.decide(self.db, id, state, self.now, value="yes", by="x:1", via=Via.CARD)
        assert (done is not None) == (before.state is ApprovalState.PENDING and not late)
        if done is not None:
            assert id not in self.ended
            self.ended[id] = done.state

    @rule(later=st.integers(1, 800))
    def wait(self, later: int) -> None:
        self.now = UnixMs(self.now + later)

    @rule()
    def look_at_the_clock(self) -> None:
        due = approvals.any_due(self.db, self.now)
        expired = approvals.expire_due(self.db, self.now)
        for item in expired:
            assert item.id not in self.ended and item.expires_at <= self.now
            self.ended[item.id] = item.state
        reminded = approvals.remind_due(self.db, self.now)
        for item in reminded:
            self.reminded[item.id] = self.reminded.get(item.id, 0) + 1
        assert due == bool(expired or reminded)
        assert not approvals.any_due(self.db, self.now)

    @rule(id=ids, again=st.booleans())
    def begin(self, id: ApprovalId, again: bool) -> None:
        before = approvals.approval(self.db, id)
        assert before is not None
        if approvals.begin_deed(self.db, id, again=again):
            assert before.state in (ApprovalState.APPROVED, ApprovalState.REJECTED)
            assert before.outcome is (DeedOutcome.RUNNING if again else None)
            if not again:
                self.begun[id] = self.begun.get(id, 0) + 1

    @rule(id=ids, outcome=st.sampled_from([DeedOutcome.DONE, DeedOutcome.FAILED, DeedOutcome.INTERRUPTED]))
    def end(self, id: ApprovalId, outcome: DeedOutcome) -> None:
        if approvals.end_deed(self.db, id, outcome, "so"):
            assert id in self.begun and id not in self.results
            self.results[id] = outcome

    @rule(id=ids)
    def finish(self, id: ApprovalId) -> None:
        approvals.finish(self.db, id, self.now)

    @invariant()
    def what_ended_stays_as_it_ended(self) -> None:
        for id, state in self.ended.items():
            item = approvals.approval(self.db, id)
            assert item is not None and item.state is state
        for id, outcome in self.results.items():
            item = approvals.approval(self.db, id)
            assert item is not None and item.outcome is outcome

    @invariant()
    def each_deed_begins_once_and_each_reminder_comes_once(self) -> None:
        assert set(self.begun.values()) <= {1}
        assert set(self.reminded.values()) <= {1}

    @invariant()
    def one_of_a_key_waits(self) -> None:
        waiting = [one.dedupe_key for one in approvals.approvals(self.db, ApprovalState.PENDING)]
        assert len(waiting) == len(set(waiting))

    @invariant()
    def what_is_not_finished_is_known(self) -> None:
        open_ones = {item.id for item in approvals.unfinished(self.db)}
        every = approvals.approvals(self.db, limit=10_000)
        assert open_ones == {one.id for one in every if one.state is not ApprovalState.PENDING and not one.finished_at}


Approvals.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestApprovals = Approvals.TestCase


def test_what_is_stored_comes_back_as_it_was(tmp_path: Path) -> None:
    db = open_database(tmp_path / "state.db", SystemClock(), backups=tmp_path)
    try:
        wish = made(UnixMs(5), key="k", request="req_9")
        approvals.add(db, wish)
        found = approvals.by_request(db, SESSION, RequestId("req_9"))
        assert found is not None and found.reason == "why ?"
        assert (found.fields, found.files, found.choices, found.origin) == (
            wish.fields, wish.files, wish.choices, wish.origin,
        )  # fmt: skip
        assert approvals.pending_alike(db, AgentGroupId("ag_1"), by_agent=True) == 1
        assert approvals.counts(db) == {"pending": 1}
    finally:
        db.close()
