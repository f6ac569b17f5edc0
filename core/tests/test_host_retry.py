"""Retrying turns and sends, the stuck rule, pacing."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield.clock import UnixMs
from jackfield.errors import (
    Ambiguous,
    AuthFailed,
    BadContent,
    ChannelError,
    ChatNotFound,
    Migrated,
    NobodyListening,
    RateLimited,
    SendNotAllowed,
    TooLarge,
    Transient,
    Unsupported,
    WindowClosed,
)
from jackfield.host.pacing import Pacer, Rate
from jackfield.host.retry import (
    Complete,
    Fail,
    GiveUp,
    LookUp,
    MoveTo,
    ParkScope,
    ParkSession,
    RetryAt,
    SendAgain,
    SendDecision,
    SendPlain,
    SendState,
    Wait,
    after_crash,
    after_send,
    after_turn,
)
from jackfield.host.stuck import Observed, Silent, StuckClaim, judge
from jackfield.ids import InboundId
from jackfield.models import Ack, AckStatus, RunnerState, TurnError

NOW = UnixMs(1_000_000)


def error(**fields: object) -> TurnError:
    return TurnError(**{"kind": "overloaded", "message": "busy", "retryable": True, **fields})  # type: ignore[arg-type]  # the values' types vary


def test_a_turn_is_retried_five_times_in_growing_distance_and_then_given_up() -> None:
    delays = []
    for attempts in range(1, 7):
        decision = after_turn(error(), attempts, NOW)
        delays.append((decision.at - NOW) / 1000 if isinstance(decision, RetryAt) else type(decision).__name__)
    assert delays == [5, 10, 20, 40, 80, "Fail"]


def test_a_crash_backs_off_in_the_same_way_and_says_so_at_the_end() -> None:
    """C088."""
    delays = []
    for attempts in range(1, 7):
        decision = after_crash(attempts, NOW)
        delays.append((decision.at - NOW) / 1000 if isinstance(decision, RetryAt) else decision.reason)
    assert delays == [5, 10, 20, 40, 80, "crashed"]


def test_a_short_wait_of_the_provider_is_kept_and_a_long_one_parks_the_session() -> None:
    short = after_turn(error(retry_after=31.0), 1, NOW)
    assert isinstance(short, RetryAt) and short.at == NOW + 31_000
    long = after_turn(error(retry_after=2400.0, message_for_user="I must rest."), 1, NOW)
    told = "I must rest. Your message is kept and answered later. That may take about 40 minutes."
    assert long == ParkSession(until=UnixMs(NOW + 2_400_000), reason="overloaded: busy", tell=told)


def test_a_failing_credential_parks_all_that_share_it_also_when_it_must_be_mended_first() -> None:
    parked = after_turn(error(kind="auth", retryable=False, scope="credential"), 1, NOW)
    assert isinstance(parked, ParkScope) and parked.scope == "credential" and parked.until == NOW + 60_000
    assert parked.tell_owner == "auth: busy"
    provider = after_turn(error(scope="provider", retry_after=7.5), 2, NOW)
    assert isinstance(provider, ParkScope) and provider.until == NOW + 7_500


def test_after_tools_ran_the_conversation_is_resumed_and_never_prompted_again() -> None:
    decision = after_turn(error(tools_ran=True), 1, NOW)
    assert isinstance(decision, RetryAt) and decision.resume


def test_what_is_not_retryable_fails_at_once_and_a_cancelled_turn_is_complete() -> None:
    assert isinstance(after_turn(error(retryable=False, kind="refusal"), 1, NOW), Fail)
    assert isinstance(after_turn(error(retryable=False, kind="cancelled"), 1, NOW), Complete)


def test_the_ledger_learns_why_and_the_chat_only_what_kind_of_failure_it_was() -> None:
    failed = after_turn(
        error(retryable=False, kind="invalid_request", message="no model\n'x' for org-7\x1b[0m"), 1, NOW
    )
    assert isinstance(failed, Fail)
    assert failed.reason == "invalid_request: no model 'x' for org-7 [0m"
    assert failed.tell == "The agent could not answer this message (invalid request)."
    long = after_turn(error(message="x" * 5000), 1, NOW)
    assert isinstance(long, RetryAt) and len(long.reason) < 350 and long.reason.endswith("…")
    silent = after_turn(error(message=""), 1, NOW)
    assert isinstance(silent, RetryAt) and silent.reason == "overloaded"


def sent(
    problem: ChannelError, *, idempotent: bool = False, history: bool = False, random: float = 0.0, **state: object
) -> SendDecision:
    before = SendState(**{"attempts": 1, "first_try_at": NOW, **state})  # type: ignore[arg-type]  # the values' types vary
    return after_send(problem, before, NOW, idempotent=idempotent, history=history, random=random)


@given(st.floats(0, 20_000), st.floats(0, 0.999))
def test_a_rate_limit_is_never_tried_again_too_early_and_uses_no_attempt(wait: float, random: float) -> None:
    """C077."""
    decision = sent(RateLimited("slow down", retry_after=wait), random=random)
    assert isinstance(decision, SendAgain)
    assert decision.at >= NOW + wait * 1000 and not decision.counts


def test_a_limit_of_the_account_pauses_the_account() -> None:
    decision = sent(RateLimited("slow down", retry_after=3, scope="account"))
    assert isinstance(decision, SendAgain) and decision.pause == "account"


def test_transient_failures_back_off_from_one_second_to_five_minutes_for_a_day() -> None:
    """C081 (a)."""
    waits = []
    for attempts in range(1, 12):
        decision = sent(Transient("refused"), attempts=attempts)
        assert isinstance(decision, SendAgain) and decision.counts
        waits.append((decision.at - NOW) / 1000)
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    spread = sent(Transient("refused"), attempts=9, random=0.99)
    assert isinstance(spread, SendAgain) and NOW + 256_000 < spread.at <= NOW + 300_000
    assert sent(Transient("refused"), first_try_at=UnixMs(NOW - 86_400_000)) == GiveUp("Transient")


def test_an_unknown_outcome_is_sent_again_under_its_key_where_the_platform_has_one() -> None:
    """C081 (b)."""
    decision = sent(Ambiguous("no answer"), idempotent=True, history=True)
    assert isinstance(decision, SendAgain) and not decision.maybe_duplicate


def test_an_unknown_outcome_is_looked_up_where_the_platform_keeps_a_history() -> None:
    """C081 (b)."""
    decision = sent(Ambiguous("no answer"), history=True)
    assert isinstance(decision, LookUp) and isinstance(decision.otherwise, SendAgain)


def test_an_unknown_outcome_is_else_sent_once_more_and_marked() -> None:
    """C081 (b)."""
    decision = sent(Ambiguous("no answer"))
    assert isinstance(decision, SendAgain) and decision.maybe_duplicate
    assert sent(Ambiguous("no answer"), maybe_duplicate=True) == GiveUp("Ambiguous")


def test_refused_markup_is_sent_plain_once_and_a_moved_chat_followed_once() -> None:
    assert sent(BadContent("no")) == SendPlain()
    assert sent(BadContent("no"), plain=True) == GiveUp("BadContent")
    assert sent(Migrated("moved", new_platform_id="-100")) == MoveTo("-100")
    assert sent(Migrated("moved", new_platform_id="-100"), moved=True) == GiveUp("Migrated")


@pytest.mark.parametrize("kind", [SendNotAllowed, ChatNotFound, TooLarge, WindowClosed, Unsupported, ChannelError])
def test_what_cannot_get_better_is_final_at_once(kind: type[ChannelError]) -> None:
    assert sent(kind("no")) == GiveUp(kind.__name__)


def test_a_chat_without_a_reader_waits_for_ever_and_a_refused_credential_for_the_operator() -> None:
    """C084."""
    assert sent(NobodyListening("nobody")) == Wait("NobodyListening", deadline=False)
    assert sent(AuthFailed("expired")) == Wait("AuthFailed", deadline=True)


def seen(**fields: object) -> Observed:
    usual: dict[str, object] = {
        "epoch": 3,
        "started_at": NOW,
        "heartbeat_at": None,
        "state": RunnerState(),
        "claims": (),
        "silent_ceiling": 1800.0,
        "stuck_claim": 60.0,
    }
    return Observed(**{**usual, **fields})  # type: ignore[arg-type]  # the values' types vary


def claim(at: int, epoch: int = 3) -> Ack:
    return Ack(message_id=InboundId("in_1"), status=AckStatus.PROCESSING, attempt=1, epoch=epoch, at=UnixMs(at))


def after(seconds: float) -> UnixMs:
    return UnixMs(int(NOW + seconds * 1000))


def test_a_runner_without_a_heartbeat_is_as_old_as_its_start() -> None:
    """C095."""
    assert judge(seen(), after(1800)) is None
    assert judge(seen(), after(1800.001)) == Silent(1800.001)
    assert judge(seen(heartbeat_at=UnixMs(NOW - 99_000)), after(1801)) == Silent(1801)
    assert judge(seen(heartbeat_at=after(1000)), after(2000)) is None


def test_a_heartbeat_from_the_future_is_no_sign_of_life() -> None:
    """The clock was set back; else a runner that hangs would be found a day later only."""
    assert judge(seen(heartbeat_at=after(86_400)), after(1801)) == Silent(1801)
    assert judge(seen(heartbeat_at=after(1830)), after(1801)) is None


def test_an_announced_wait_is_no_silence() -> None:
    """C097."""
    waiting = seen(state=RunnerState(waiting_until=after(2400), waiting_for="provider"), claims=[claim(NOW + 1)])
    assert judge(waiting, after(2400)) is None
    assert judge(waiting, after(2401)) is None
    assert isinstance(judge(waiting, after(2400 + 1801)), Silent)


def test_a_claim_without_any_life_since_is_stuck_and_one_with_life_is_not() -> None:
    assert judge(seen(claims=[claim(NOW + 1000)]), after(61)) is None
    assert judge(seen(claims=[claim(NOW + 1000)]), after(61.001)) == StuckClaim("in_1", 60.001)
    assert judge(seen(claims=[claim(NOW + 1000)], heartbeat_at=UnixMs(NOW + 1001)), after(300)) is None


def test_a_claim_of_a_dead_runner_counts_for_nothing() -> None:
    assert judge(seen(claims=[claim(NOW - 500_000, epoch=2)]), after(100)) is None


def test_a_running_tool_may_take_the_time_that_was_declared_for_it() -> None:
    state = RunnerState(tool="Bash", tool_started_at=NOW, tool_deadline_at=after(7200))
    busy = seen(state=state, heartbeat_at=NOW, claims=[claim(NOW)])
    assert judge(busy, after(7200)) is None
    assert isinstance(judge(busy, after(7201)), Silent)


@given(st.integers(1, 60), st.floats(0.1, 50), st.integers(1, 5), st.lists(st.floats(0, 3), max_size=60))
def test_no_more_than_the_rate_leaves_in_any_stretch(count: int, rate: float, burst: int, gaps: list[float]) -> None:
    """C083."""
    pacer, now, times = Pacer(), 100.0, []
    for index in range(count):
        now += gaps[index] if index < len(gaps) else 0.0
        at = pacer.reserve({"chat": Rate(rate, burst)}, now)
        assert at >= now
        times.append(at)
    for index in range(burst, count):
        assert times[index] - times[index - burst] >= 1 / rate - 1e-6 or math.isclose(
            times[index] - times[index - burst], 1 / rate
        )
    assert times[-1] - times[0] >= (count - burst) / rate - 1e-6


def test_twelve_sessions_that_finish_together_leave_one_message_a_second() -> None:
    """C083."""
    pacer = Pacer()
    limits: dict[str, Rate | None] = {"chat": Rate(20 / 60, 1), "account": Rate(1.0, 1)}
    times = [pacer.reserve(limits, 0.0) for _ in range(12)]
    assert times == pytest.approx([3.0 * index for index in range(12)])
    assert pacer.reserve({"other": None, "account": Rate(1.0, 1)}, 0.0) == pytest.approx(34.0)


def test_the_distance_is_kept_from_the_moment_of_the_send_also_when_that_was_late() -> None:
    """C083."""
    pacer = Pacer()
    limits: dict[str, Rate | None] = {"chat": Rate(1.0)}
    assert pacer.reserve(limits, 10.0) == 10.0
    pacer.went(limits, 12.5)
    assert pacer.reserve(limits, 12.6) == 13.5


def test_a_paused_name_stays_shut_and_others_go_on() -> None:
    pacer = Pacer()
    pacer.pause("chat", 31.0, 0.0)
    assert pacer.reserve({"chat": None}, 1.0) == 31.0
    assert pacer.reserve({"other": None}, 1.0) == 1.0
