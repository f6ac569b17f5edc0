"""From facts to findings, and the checks that a plugin or a platform can hold up."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest
from jackfield.api import ChannelContext, Completed, Health, Isolation, RuntimeHealth
from jackfield.clock import UnixMs
from jackfield.config import Home, Problem, Severity
from jackfield.errors import AuthFailed, MalformedData, NotFound
from jackfield.host.diagnosis import (
    Finding,
    Level,
    error,
    finding_from,
    judging,
    ok,
    problem_of,
    reach,
    threads,
    warning,
    worst,
)
from jackfield.host.diagnosis.credentials import CheckContext, check_channel
from jackfield.host.diagnosis.looking import look_at_home
from jackfield.host.diagnosis.threads import in_thread, within
from jackfield.models import ChannelState, ChannelStatus
from jackfield.store import health
from jackfield.store.health import Waiting

NOW = UnixMs(1_800_000_000_000)
MINUTE = 60_000
GOOD = {name: {"ok": True, "detail": "well"} for name in reach.TITLES}


def levels(findings: list[Finding]) -> list[Level]:
    return [finding.level for finding in findings]


# ---- findings


def test_findings_survive_the_socket_and_the_worst_one_counts() -> None:
    findings = [ok("a", "fine"), warning("b", "soon", "look"), error("c", "no", "do\nthis")]
    assert [finding_from(one.as_json()) for one in findings] == findings
    assert findings[2].fix == "do this"
    assert [worst(findings[:count]) for count in range(4)] == [Level.OK, Level.OK, Level.WARNING, Level.ERROR]


@pytest.mark.parametrize("value", [None, [], {}, {"check": "a", "level": "awful", "text": "x"}, {"level": "ok"}])
def test_what_is_no_finding_is_refused(value: object) -> None:
    with pytest.raises(MalformedData):
        finding_from(value)


def test_an_exception_without_a_fix_gets_one() -> None:
    assert problem_of("a", NotFound("gone")).fix
    assert problem_of("a", NotFound("gone", fix="look there")).fix == "look there"


# ---- the home


def entry(mode: int, *, kind: int = stat.S_IFDIR, uid: int = 1000) -> judging.Entry:
    return judging.Entry("/h/x", kind | mode, uid, secret=kind == stat.S_IFREG)


@pytest.mark.parametrize(
    ("found", "level"),
    [
        (entry(0o700), Level.OK),
        (entry(0o711), Level.OK),
        (entry(0o755), Level.WARNING),
        (entry(0o700, uid=5), Level.ERROR),
        (entry(0o600, kind=stat.S_IFREG), Level.OK),
        (entry(0o640, kind=stat.S_IFREG), Level.ERROR),
        (entry(0o601, kind=stat.S_IFREG), Level.ERROR),
    ],
)
def test_others_may_pass_through_the_home_and_neither_list_nor_read_it(found: judging.Entry, level: Level) -> None:
    assert levels(judging.permissions([found], 1000)) == [level]


def test_a_key_that_others_may_read_and_a_file_that_nothing_reads_are_told(tmp_path: Path) -> None:
    home = Home(tmp_path / "h")
    home.create()
    assert levels(look_at_home(home)) == [Level.OK]
    home.master_key.write_bytes(b"k" * 32)
    home.master_key.chmod(0o644)
    found = look_at_home(home)
    assert levels(found) == [Level.ERROR]
    assert "chmod 600" in str(found[0].fix)
    home.master_key.chmod(0o600)
    (home.root / "secrets.toml").write_text('a = "b"')
    found = look_at_home(home)
    assert levels(found) == [Level.OK, Level.WARNING]
    assert "secret import" in str(found[1].fix)


@pytest.mark.parametrize(("free", "level"), [(50, Level.ERROR), (500, Level.WARNING), (5000, Level.OK)])
def test_a_full_disk_is_told_before_it_is_full(free: int, level: Level) -> None:
    """C213."""
    assert judging.disk(free * judging.MiB, 10_000 * judging.MiB).level is level


@pytest.mark.parametrize(
    ("now", "newest", "skew", "expected"),
    [
        (NOW, NOW, 0.1, [Level.OK]),
        (NOW, NOW + MINUTE // 2, None, [Level.OK]),
        (NOW, NOW + 2 * MINUTE, 0.0, [Level.WARNING]),
        (NOW, 0, 30.0, [Level.ERROR]),
        (NOW, 0, -30.0, [Level.ERROR]),
        (0, NOW, 0.0, [Level.ERROR]),
    ],
)
def test_a_wrong_clock_is_found(now: int, newest: int, skew: float | None, expected: list[Level]) -> None:
    assert levels(judging.clock(UnixMs(now), UnixMs(newest), skew)) == expected


# ---- configuration, store, ledger


def test_every_problem_of_the_configuration_is_a_finding_with_a_fix() -> None:
    """C200."""
    file = Path("/h/jackfield.toml")
    unknown = Problem(
        file=file, line=3, key="chanels", message="unknown", severity=Severity.WARNING, suggestion="channels"
    )
    bad = Problem(file=file, line=4, key="host.x", message="wrong", severity=Severity.ERROR, allowed="1 to 5")
    found = judging.configuration([unknown, bad], True)
    assert levels(found) == [Level.WARNING, Level.ERROR]
    assert "channels" in str(found[0].fix) and "1 to 5" in str(found[1].fix)
    assert levels(judging.configuration([unknown], False)) == [Level.ERROR]
    assert levels(judging.configuration([], True)) == [Level.OK]


def test_a_damaged_store_a_failing_write_and_a_huge_log_are_told() -> None:
    assert levels(judging.store([], 1, 0, None)) == [Level.OK]
    assert levels(judging.store(None, 1, 0, None)) == [Level.WARNING]
    assert levels(judging.store(["row 1 missing"], 1, 0, None)) == [Level.ERROR]
    assert levels(judging.store([], 1, 300 * judging.MiB, "disk full")) == [Level.ERROR, Level.WARNING]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (Waiting("out", "pending", 2, UnixMs(NOW - MINUTE), 2), False),
        (Waiting("out", "pending", 2, UnixMs(NOW - 11 * MINUTE), 0), True),
        (Waiting("out", "waiting", 1, NOW, 1), True),
        (Waiting("out", "failed", 7, UnixMs(0), 0), False),
        (Waiting("out", "failed", 7, UnixMs(0), 1), True),
        (Waiting("in", "parked", 1, NOW, 1), True),
        (Waiting("in", "claimed", 1, UnixMs(NOW - 30 * MINUTE), 1), False),
    ],
)
def test_what_is_stuck_parked_or_dead_is_told_and_what_works_is_not(row: Waiting, told: bool) -> None:
    assert levels(judging.ledger([row], NOW, [])) == [Level.WARNING if told else Level.OK]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (ChannelState.READY, []),
        (ChannelState.DEGRADED, [Level.WARNING]),
        (ChannelState.RECONNECTING, [Level.WARNING]),
        (ChannelState.AUTH_FAILED, [Level.ERROR]),
        (ChannelState.NEEDS_LOGIN, [Level.ERROR]),
        (ChannelState.STOPPED, [Level.ERROR]),
        (ChannelState.FAILED, [Level.ERROR]),
    ],
)
def test_a_channel_that_is_silently_broken_is_told(state: ChannelState, expected: list[Level]) -> None:
    """C234, C236."""
    assert levels(judging.channel_state("channel:work", ChannelStatus(state=state))) == expected


def test_no_isolation_is_a_warning_and_a_dead_runtime_an_error() -> None:
    def level(*, works: bool, isolation: Isolation) -> Level:
        return judging.runtime("process", RuntimeHealth(ok=works, isolation=isolation))[0].level

    assert level(works=True, isolation=Isolation.NAMESPACES) is Level.OK
    assert level(works=True, isolation=Isolation.NONE) is Level.WARNING
    assert level(works=False, isolation=Isolation.NONE) is Level.ERROR


# ---- reach


def reached(
    report: object = GOOD, *, code: int = 0, isolation: Isolation = Isolation.NAMESPACES, rang: bool = True,
    answered: bool = True, late: bool = False,
) -> list[Finding]:  # fmt: skip
    printed = report if isinstance(report, bytes) else json.dumps(report).encode()
    done = Completed(exit_code=code, stdout=b"a line\n" + printed, stderr=b"Traceback\nno module", timed_out=late)
    return reach.judge(
        "reach:andy",
        reach.Reach(completed=done, isolation=isolation, rang=rang, answered=answered, seconds=1.0),
    )


def test_all_proofs_are_one_good_finding() -> None:
    assert levels(reached()) == [Level.OK]


def test_a_server_that_was_not_tried_is_named_although_all_is_well() -> None:
    (found,) = reached({**GOOD, "servers": {"ok": True, "detail": "shop needs a secret and was not tried"}})
    assert found.level is Level.OK and "MCP servers: shop needs a secret and was not tried" in found.text


@pytest.mark.parametrize("name", sorted(set(reach.TITLES) - {"doorbell", "servers"}))
def test_each_proof_that_fails_is_an_error_of_its_own(name: str) -> None:
    found = reached({**GOOD, name: {"ok": False, "detail": "refused", "fix": "open it"}})
    assert [(one.level, one.fix) for one in found] == [(Level.ERROR, "open it")]
    assert "refused" in found[0].text


def test_a_mute_doorbell_is_a_warning_because_the_runner_looks_by_itself() -> None:
    for name in ("doorbell", "servers"):
        assert levels(reached({**GOOD, name: {"ok": False, "detail": "no sockets"}})) == [Level.WARNING]
    assert levels(reached(rang=False)) == [Level.WARNING]


def test_open_walls_are_no_error_where_none_were_promised() -> None:
    open_walls = {**GOOD, "forbidden": {"ok": False, "detail": "could read state.db"}}
    assert levels(reached(open_walls)) == [Level.ERROR]
    assert levels(reached(open_walls, isolation=Isolation.NONE)) == [Level.WARNING]


def test_the_host_believes_what_it_sees_and_not_what_the_sandbox_says() -> None:
    assert levels(reached(answered=False)) == [Level.ERROR]


@pytest.mark.parametrize(
    "report", [b"", b"no json", b"[]", b"5", b'{"mailbox": true}', b"[" * 5000, b'{"mailbox": {"ok": "yes"}}']
)
def test_a_report_of_another_shape_is_an_error_and_no_crash(report: bytes) -> None:
    assert worst(reached(report)) is Level.ERROR


def test_a_trial_runner_that_ends_badly_or_never_shows_its_last_line() -> None:
    assert "no module" in reached(code=1)[0].text
    assert "still busy" in reached(late=True)[0].text


def test_what_a_killed_trial_left_goes_after_an_hour(tmp_path: Path) -> None:
    home = Home(tmp_path)
    old, fresh, session = (home.sessions / "ag_1" / name for name in ("reach-ses_1", "reach-ses_2", "ses_3"))
    for folder in (old, fresh, session):
        (folder / "outbox").mkdir(parents=True)
    for folder in (old, session):
        os.utime(folder, (0, 0))
    reach.clear_leftovers(home)
    assert [folder.exists() for folder in (old, fresh, session)] == [False, True, True]


def test_the_look_at_a_store_ends_in_time(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "x.db")
    try:
        db.execute("CREATE TABLE t (x TEXT)")
        db.executemany("INSERT INTO t VALUES (?)", [("y" * 50,)] * 50_000)
        db.commit()
        assert health.quick_check(db, 60.0) == []
        assert health.quick_check(db, -1.0) is None
        assert db.execute("SELECT count(*) FROM t").fetchone() == (50_000,)
    finally:
        db.close()


# ---- credentials


class Asked:
    """A channel of which only `check` is used."""

    def __init__(self, outcome: Health | Exception | None) -> None:
        self.outcome = outcome

    async def check(self, context: ChannelContext) -> Health:
        if self.outcome is None:
            await asyncio.Event().wait()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        assert self.outcome is not None
        return self.outcome


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Health(ok=True, detail="signed in"), "signed in"),
        (AuthFailed("no such token", fix="a new one"), "no such token"),
        (RuntimeError("bug"), "bug"),
        (None, "did not answer"),
    ],
)
async def test_a_check_always_answers_whatever_the_plugin_does(
    outcome: Health | Exception | None, said: str, tmp_path: Path
) -> None:
    """C179, C185."""

    async def secret(name: str) -> str | None:
        return None

    context = CheckContext(Home(tmp_path), "work", secret=secret)
    health = await check_channel(Asked(outcome), context, patience=0.05)  # type: ignore[arg-type]  # no whole channel is needed
    assert said in health.detail
    assert health.ok == isinstance(outcome, Health)


class Blurts:
    """A channel whose failure repeats its secret."""

    async def check(self, context: ChannelContext) -> Health:
        raise AuthFailed(f"not {await context.secret('key')}", fix=f"replace {await context.secret('key')}")


async def test_a_check_that_repeats_its_secret_does_not_give_it_away(tmp_path: Path) -> None:
    async def secret(name: str) -> str | None:
        return "hush-hush-5512"

    health = await check_channel(Blurts(), CheckContext(Home(tmp_path), "work", secret=secret))  # type: ignore[arg-type]  # no whole channel is needed
    assert not health.ok
    assert "hush" not in f"{health.detail}{health.fix}"


# ---- what never ends


async def test_work_that_hangs_is_left_behind_and_what_it_raises_comes_back() -> None:
    """C185."""
    go = threading.Event()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await in_thread(go.wait, 30)
    assert await in_thread(lambda: 5) == 5
    with pytest.raises(NotFound):
        await in_thread(_raise, NotFound("gone"))
    with pytest.raises(SystemExit):
        await in_thread(_raise, SystemExit(3))
    with pytest.raises(RuntimeError):
        await in_thread(_raise, StopIteration())
    go.set()


def _raise(problem: BaseException) -> None:
    raise problem


async def test_what_goes_on_although_it_was_cancelled_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "GRACE", 0.01)
    free = asyncio.Event()

    async def deaf() -> str:
        try:
            await free.wait()
        except asyncio.CancelledError:
            await free.wait()
        return "at last"

    with pytest.raises(TimeoutError):
        await within(0.01, deaf())
    free.set()
    assert await within(30, deaf()) == "at last"
