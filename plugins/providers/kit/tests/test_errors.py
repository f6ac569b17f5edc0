"""Failures of model APIs become the errors that section 7 of the providers' specification wants."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield.errors import ProviderError, ProviderErrorKind
from jackfield_provider_kit.errors import failure, failure_of, kind_of, wait_of
from jackfield_provider_kit.waits import backoff

NOW = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"status": 401, "type": "authentication_error", "message": "invalid x-api-key"}, "auth"),
        ({"status": 401}, "auth"),
        ({"status": 403, "type": "permission_error"}, "permission"),
        ({"status": 402}, "billing"),
        ({"status": 400, "type": "invalid_request_error", "message": "Your credit balance is too low"}, "billing"),
        ({"status": 429, "type": "insufficient_quota", "code": "insufficient_quota"}, "billing"),
        ({"status": 429, "type": "rate_limit_error", "code": "enforced_spend_limit_reached"}, "billing"),
        ({"status": 404, "type": "not_found_error", "message": "model: claude-none"}, "model_not_found"),
        ({"status": 404, "message": "page not found"}, "config"),
        ({"status": 404, "code": "model_not_found"}, "model_not_found"),
        ({"status": 429, "type": "rate_limit_error"}, "rate_limited"),
        ({"status": 429, "type": "tokens", "code": "rate_limit_exceeded"}, "rate_limited"),
        ({"status": 529, "type": "overloaded_error"}, "overloaded"),
        ({"status": 200, "type": "overloaded_error"}, "overloaded"),
        ({"status": 503}, "overloaded"),
        ({"status": 500, "type": "api_error"}, "server"),
        ({"status": 504, "type": "timeout_error"}, "server"),
        ({"status": 502}, "server"),
        (
            {"status": 400, "type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"},
            "context_overflow",
        ),
        ({"status": 400, "code": "context_length_exceeded"}, "context_overflow"),
        ({"status": 400, "message": "This model's maximum context length is 8192 tokens."}, "context_overflow"),
        ({"status": 500, "message": "the request exceeds the available context size"}, "context_overflow"),
        ({"status": 413, "type": "request_too_large"}, "invalid_request"),
        ({"status": 400, "type": "invalid_request_error", "message": "messages.1: bad"}, "invalid_request"),
        ({"status": 400, "code": "content_filter"}, "refusal"),
        ({}, "server"),
    ],
)
def test_a_failure_is_told_by_what_it_says_of_itself(said: dict[str, object], kind: str) -> None:
    assert kind_of(**said) == kind  # type: ignore[arg-type]  # the values' types vary


def test_only_what_passes_by_itself_may_be_tried_again() -> None:
    """Every row of the waiting table has its answer."""
    retryable = {kind for kind in get_args(ProviderErrorKind) if failure(kind).retryable}
    assert retryable == {
        "rate_limited", "overloaded", "server", "network", "stalled", "engine_crash", "protocol", "mcp_unavailable",
    }  # fmt: skip
    assert failure("auth").scope == failure("billing").scope == "credential"
    assert failure("auth").fix and failure("auth").message_for_user


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "12"}, 12.0),
        ({"retry-after": "3600"}, 3600.0),
        ({"retry-after": "Fri, 15 Jan 2027 08:01:30 GMT"}, 90.0),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"anthropic-ratelimit-requests-reset": "2027-01-15T08:00:20Z"}, 20.0),
        (
            {
                "anthropic-ratelimit-requests-reset": "2027-01-15T08:00:20Z",
                "anthropic-ratelimit-requests-remaining": "7",
                "anthropic-ratelimit-input-tokens-reset": "2027-01-15T08:00:50Z",
                "anthropic-ratelimit-input-tokens-remaining": "0",
            },
            50.0,
        ),
        (
            {
                "anthropic-ratelimit-unified-5h-reset": "1800007200",
                "anthropic-ratelimit-unified-5h-status": "rejected",
                "anthropic-ratelimit-unified-7d-reset": "1800100000",
                "anthropic-ratelimit-unified-7d-status": "allowed",
            },
            7200.0,
        ),
        ({"x-ratelimit-reset-requests": "1m30s", "x-ratelimit-remaining-requests": "0"}, 90.0),
        ({"x-ratelimit-reset-tokens": "120ms"}, 0.12),
        ({"x-ratelimit-reset": "1800000030000"}, 30.0),
        ({}, None),
    ],
)
def test_a_wait_is_read_in_all_forms(headers: dict[str, str], wait: float | None) -> None:
    assert wait_of(headers, now=NOW) == pytest.approx(wait) if wait is not None else wait_of(headers, now=NOW) is None
    assert failure(status=429, headers=headers, now=NOW).retry_after == (pytest.approx(wait) if wait else wait)


@given(st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms", "x-ratelimit-reset-a"]), st.text()))
def test_no_header_can_break_it(headers: dict[str, str]) -> None:
    wait = wait_of(headers, now=NOW)
    assert wait is None or 0 <= wait <= 31 * 86400


def test_waits_grow_and_are_bounded() -> None:
    assert [backoff(attempt, 1.0) for attempt in (1, 2, 3, 7, 100)] == [1, 2, 4, 60, 60]
    assert backoff(5, 0.0) == 0


def test_a_server_says_only_so_much() -> None:
    error = failure(status=400, message="x\n" * 10_000)
    assert len(error.message) < 600 and "\n" not in error.message


def test_the_errors_of_sdks_are_understood() -> None:
    """With the real packages: they raise what a fake of them would not (an SSE error has status 200)."""
    anthropic = pytest.importorskip("anthropic")
    openai = pytest.importorskip("openai")
    import httpx2

    request = httpx2.Request("POST", "http://127.0.0.1/v1/messages")
    response = httpx2.Response(429, headers={"retry-after": "5"}, request=request)
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
    error = failure_of(anthropic.RateLimitError("slow down", response=response, body=body))
    assert (error.kind, error.retry_after, error.status) == ("rate_limited", 5.0, 429)
    streamed = httpx2.Response(200, request=request)
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    assert failure_of(anthropic.APIStatusError("busy", response=streamed, body=body)).kind == "overloaded"
    assert failure_of(anthropic.APIConnectionError(request=request)).kind == "network"
    assert failure_of(httpx2.RemoteProtocolError("peer closed connection")).kind == "network"
    timeout = anthropic.APITimeoutError(request=request)
    timeout.__cause__ = httpx2.ReadTimeout("read")
    assert failure_of(timeout).kind == "stalled"
    assert failure_of(ConnectionRefusedError(111, "refused")).kind == "network"
    assert failure_of(ValueError("nonsense")).kind == "protocol"
    other = openai.APIError("quota", request=request, body={"message": "no", "code": "insufficient_quota"})
    assert failure_of(other).kind == "billing"
    assert failure_of(openai.APIConnectionError(request=request)).kind == "network"


def test_an_error_that_is_one_stays_one() -> None:
    error = ProviderError("x", kind="refusal")
    assert failure_of(error, tools_ran=True) is error
    assert error.tools_ran
