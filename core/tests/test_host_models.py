"""Who reaches its model by the gateway, what sessions share, and what a failed turn leads to."""

from __future__ import annotations

import asyncio
from typing import Any, get_args

import pytest
from jackfield.api import Isolation
from jackfield.clock import UnixMs
from jackfield.config import AgentSettings
from jackfield.errors import Conflict, NotFound, ProviderErrorKind
from jackfield.host.models.gateways import IN_CONTAINER, Gateways, Use, provider_secrets, use_of
from jackfield.host.prompts import channel_note
from jackfield.host.retry import (
    HINTS,
    KEPT_TEXT,
    MEND_TRIES,
    NEEDS_OWNER,
    WAIT_TEXT,
    Complete,
    Fail,
    ParkScope,
    ParkSession,
    RetryAt,
    about,
    after_turn,
)
from jackfield.models import Capabilities, Support, TurnError

NOW = UnixMs(1_000_000)
CONTAINER, PROCESS = Isolation.CONTAINER, Isolation.NAMESPACES


class Gateway:
    """One that covers `mock`."""

    def address(self) -> str:
        return "http://127.0.0.1:9"

    def token(self, session_id: str, agent_group_id: str) -> str:
        return f"tok-{session_id}"

    def covers(self, provider: str) -> bool:
        return provider == "mock"

    def credential(self, provider: str) -> str:
        return "main"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...


@pytest.mark.parametrize(
    ("wanted", "isolation", "covered", "has_key", "use"),
    [
        (None, PROCESS, True, True, Use.DIRECT),
        (None, None, True, True, Use.DIRECT),
        (None, CONTAINER, True, True, Use.GATEWAY),
        (None, CONTAINER, True, False, Use.GATEWAY),
        (None, CONTAINER, False, True, Use.REFUSED),
        (None, CONTAINER, False, False, Use.DIRECT),
        (True, PROCESS, True, False, Use.GATEWAY),
        (True, PROCESS, False, False, Use.REFUSED),
        (True, CONTAINER, False, False, Use.REFUSED),
        (False, CONTAINER, True, True, Use.DIRECT),
        (False, PROCESS, False, True, Use.DIRECT),
    ],
)
def test_who_uses_the_gateway(
    wanted: bool | None, isolation: Isolation | None, covered: bool, has_key: bool, use: Use
) -> None:
    """C137: in a container a key is better missing than inside."""
    assert use_of(wanted, isolation, covered=covered, has_key=has_key) is use


def test_a_missing_gateway_tells_nothing_before_the_extensions_have_started() -> None:
    gateways, agent = Gateways(settled=False), AgentSettings(gateway=True)
    assert gateways.serving(agent) is None
    gateways.settled = True
    with pytest.raises(NotFound, match="none runs"):
        gateways.serving(agent)
    mine = Gateway()
    gateways.offer(mine)
    gateways.offer(mine)
    with pytest.raises(Conflict, match="already"):
        gateways.offer(Gateway())
    gateways.withdraw(Gateway())
    assert gateways.serving(agent) is mine and gateways.address(agent, mine) == "http://127.0.0.1:9"
    gateways.levels["process"] = CONTAINER
    assert gateways.address(agent, mine) == IN_CONTAINER
    with pytest.raises(NotFound, match="no upstream"):
        gateways.serving(AgentSettings(gateway=True, provider="other"))
    gateways.withdraw(mine)
    assert gateways.offered is None


def test_the_secrets_of_a_providers_settings_are_found_wherever_they_stand() -> None:
    tables: dict[str, dict[str, Any]] = {
        "mock": {"api_key": "secret:A", "headers": {"x": "Bearer secret:B"}, "list": ["secret:C", 3, "secret:A"]},
        "other": {"api_key": "secret:D"},
    }
    assert provider_secrets(AgentSettings(providers=tables)) == ("A", "B", "C")


def error(kind: ProviderErrorKind, **fields: Any) -> TurnError:
    return TurnError(kind=kind, message="because", **fields)


@pytest.mark.parametrize(
    ("fields", "then"),
    [
        ({"kind": "rate_limited", "retryable": True, "retry_after": 40.0}, "again in 40"),
        ({"kind": "rate_limited", "retryable": True, "retry_after": 3600.0}, "park the session for 3600"),
        (
            {"kind": "rate_limited", "retryable": True, "retry_after": 3600.0, "scope": "credential"},
            "park the credential for 3600",
        ),
        ({"kind": "overloaded", "retryable": True}, "again in 5"),
        ({"kind": "server", "retryable": True, "tools_ran": True}, "again in 5, resumed"),
        ({"kind": "network", "retryable": True}, "again in 5"),
        ({"kind": "stalled", "retryable": True}, "again in 5"),
        ({"kind": "stalled"}, "fail"),
        ({"kind": "auth"}, "park the credential for 60, tell the owner"),
        ({"kind": "auth", "scope": "session"}, "park the credential for 60, tell the owner"),
        ({"kind": "billing"}, "park the credential for 60, tell the owner"),
        ({"kind": "permission"}, "fail"),
        ({"kind": "permission", "scope": "credential"}, "park the credential for 60, tell the owner"),
        ({"kind": "engine_missing", "scope": "provider"}, "park the provider for 60, tell the owner"),
        ({"kind": "model_not_found", "scope": "session"}, "fail"),
        ({"kind": "context_overflow"}, "fail"),
        ({"kind": "context_overflow", "retryable": True}, "again in 5"),
        ({"kind": "output_limit"}, "fail"),
        ({"kind": "refusal"}, "fail"),
        ({"kind": "invalid_request"}, "fail"),
        ({"kind": "continuation_lost", "retryable": True}, "again in 5"),
        ({"kind": "engine_crash", "retryable": True, "scope": "session"}, "again in 5"),
        ({"kind": "protocol", "retryable": True}, "again in 5"),
        ({"kind": "mcp_unavailable", "retryable": True}, "again in 5"),
        ({"kind": "budget"}, "fail"),
        ({"kind": "budget", "retryable": True, "retry_after": 7200.0}, "park the session for 7200"),
        ({"kind": "livelock"}, "fail"),
        ({"kind": "config"}, "fail"),
        ({"kind": "cancelled", "retryable": True}, "complete"),
    ],
)
def test_what_a_failed_turn_leads_to(fields: dict[str, Any], then: str) -> None:
    """Spec/providers.md 7, the waiting rules; architecture 5, rule 5; C090, C091."""
    match after_turn(error(**fields), 1, NOW):
        case RetryAt(at=at, resume=resume):
            assert then == f"again in {(at - NOW) / 1000:g}" + (", resumed" if resume else "")
        case ParkSession(until=until):
            assert then == f"park the session for {(until - NOW) / 1000:g}"
        case ParkScope(scope=scope, until=until, tell_owner=owner):
            told = ", tell the owner" if owner is not None else ""
            assert then == f"park the {scope} for {(until - NOW) / 1000:g}{told}"
        case Fail():
            assert then == "fail"
        case Complete():
            assert then == "complete"


def test_every_kind_has_a_row_in_the_table() -> None:
    mark = next(mark for mark in test_what_a_failed_turn_leads_to.pytestmark if mark.name == "parametrize")
    assert {fields["kind"] for fields, _ in mark.args[1]} == set(get_args(ProviderErrorKind))


@pytest.mark.parametrize(
    ("fields", "runs"),
    [
        ({"kind": "overloaded", "retryable": True}, 6),
        ({"kind": "engine_crash", "retryable": True}, 4),
        ({"kind": "protocol", "retryable": True}, 4),
        ({"kind": "context_overflow", "retryable": True}, 2),
        ({"kind": "continuation_lost", "retryable": True}, 2),
        ({"kind": "auth", "scope": "credential"}, MEND_TRIES + 1),
        ({"kind": "rate_limited", "retryable": True, "retry_after": 9.0, "scope": "credential"}, 6),
    ],
)
def test_every_failure_has_an_end(fields: dict[str, Any], runs: int) -> None:
    decisions = [after_turn(error(**fields), attempts, NOW) for attempts in range(1, runs + 1)]
    assert isinstance(decisions[-1], Fail) and not any(isinstance(one, Fail) for one in decisions[:-1])


def test_what_an_owner_must_mend_is_tried_again_hourly_for_three_days() -> None:
    waits = []
    for attempts in range(1, MEND_TRIES + 1):
        decision = after_turn(error("auth"), attempts, NOW)
        assert isinstance(decision, ParkScope)
        waits.append((decision.until - NOW) / 1000)
    assert waits[:7] == [60, 120, 240, 480, 960, 1920, 3600] and set(waits[7:]) == {3600}
    assert 72 <= sum(waits) / 3600 <= 76


def test_those_who_share_a_limit_do_not_come_back_in_the_same_moment() -> None:
    limited = error("rate_limited", retryable=True, retry_after=3600.0, scope="credential")
    untils = {
        decision.until - NOW
        for random in (0.0, 0.5, 0.99)
        if isinstance(decision := after_turn(limited, 1, NOW, random=random), ParkScope)
    }
    assert len(untils) == 3 and min(untils) == 3_600_000 and max(untils) < 3_630_000


def test_people_are_told_what_helps_them_and_nothing_of_the_operators() -> None:
    for kind in get_args(ProviderErrorKind):
        decision = after_turn(error(kind, retryable=False), 99, NOW)
        if isinstance(decision, Fail):
            assert kind.replace("_", " ") in decision.tell and "because" not in decision.tell
            assert decision.tell.endswith(HINTS.get(kind, ")."))
    waiting = after_turn(error("auth", message_for_user="My key is refused."), 1, NOW)
    assert isinstance(waiting, ParkScope) and waiting.tell == f"My key is refused. {KEPT_TEXT}"
    long = after_turn(error("rate_limited", retryable=True, retry_after=5400.0), 1, NOW)
    assert isinstance(long, ParkSession) and long.tell == f"{WAIT_TEXT} That may take about 2 hours."
    assert set(get_args(ProviderErrorKind)) >= NEEDS_OWNER


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (3, "a moment"), (50, "a minute"), (100, "2 minutes"), (1500, "25 minutes"), (3000, "an hour"),
        (7200, "2 hours"), (80_000, "a day"), (200_000, "2 days"),
    ],
)  # fmt: skip
def test_durations_are_told_as_people_say_them(seconds: float, text: str) -> None:
    assert about(seconds) == text


def test_a_channels_note_tells_what_an_agent_should_know() -> None:
    plain = channel_note(Capabilities(dialect="plain", text_limit=400))
    assert plain == (
        "plain text only; a text over 400 characters becomes several messages; no files; no reactions; "
        "what is sent can't be changed."
    )
    rich = Capabilities(
        tables=Support.NATIVE,
        files=Support.NATIVE,
        file_max_bytes=50 * 2**20,
        react=Support.NATIVE,
        edit=Support.NATIVE,
    )
    assert channel_note(rich) == "Markdown; files up to 50 MiB; reactions; messages can be changed."
