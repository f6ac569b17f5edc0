"""What a model API said when it failed, as a `ProviderError` (spec/providers.md 7, "waiting rules").

    failure(status=429, type="rate_limit_error", message="...", headers={"retry-after": "12"})
    failure_of(exception)        # what an SDK or an HTTP client raised

Everything goes by what the failure says of itself, in this order: its code, its type, its status, its words.  An SSE
`error` event in the middle of a stream has status 200, and `insufficient_quota` comes as 429: a status alone misleads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from jackfield.errors import ProviderError, ProviderErrorKind, ProviderScope

from jackfield_provider_kit.waits import wait_of

__all__ = ["failure", "failure_of", "kind_of", "wait_of"]


class _Rule(NamedTuple):
    """What a kind means for whoever decides what comes next."""

    retryable: bool = False
    scope: ProviderScope = "turn"
    user: str | None = None
    fix: str | None = None


_RULES: dict[ProviderErrorKind, _Rule] = {
    "auth": _Rule(
        scope="credential",
        user="I can't reach my model: it does not accept my key. My operator has to look at it.",
        fix="set the key again (`jackfield secret set`), or correct it in the group's agent.toml",
    ),
    "permission": _Rule(
        scope="credential",
        user="I'm not allowed to use my model. My operator has to look at it.",
        fix="give this key access to the model, or name another model in the group's agent.toml",
    ),
    "billing": _Rule(
        scope="credential",
        user="My model's account is out of credit. My operator has to look at it.",
        fix="pay for the account at the model's provider, or raise its spending limit",
    ),
    "model_not_found": _Rule(
        scope="session",
        user="The model that I'm set to does not exist. My operator has to look at it.",
        fix="name another model in the group's agent.toml",
    ),
    "rate_limited": _Rule(retryable=True, user="My model has no room for me at the moment."),
    "overloaded": _Rule(retryable=True, user="My model is overloaded at the moment."),
    "server": _Rule(retryable=True, user="My model has a fault at the moment."),
    "network": _Rule(retryable=True, user="I can't reach my model at the moment."),
    "stalled": _Rule(retryable=True, user="My model stopped in the middle of an answer."),
    "context_overflow": _Rule(scope="session", user="This conversation has become too long for my model."),
    "output_limit": _Rule(user="My answer became too long for my model."),
    "refusal": _Rule(user="My model refuses to answer this."),
    "invalid_request": _Rule(user="My model could not read this request."),
    "continuation_lost": _Rule(scope="session"),
    "engine_missing": _Rule(scope="provider", user="My model's program is not installed. My operator has to look."),
    "engine_crash": _Rule(retryable=True, scope="session"),
    "protocol": _Rule(retryable=True),
    "mcp_unavailable": _Rule(retryable=True, scope="session"),
    "budget": _Rule(user="I have used up what I may spend on this."),
    "livelock": _Rule(scope="session", user="I was going round in circles, and stopped."),
    "config": _Rule(scope="session", user="I'm not set up correctly. My operator has to look at it."),
    "cancelled": _Rule(),
}  # fmt: skip

_CODES: dict[str, ProviderErrorKind] = {
    "insufficient_quota": "billing",
    "billing_hard_limit_reached": "billing",
    "enforced_spend_limit_reached": "billing",
    "billing_not_active": "billing",
    "invalid_api_key": "auth",
    "account_deactivated": "auth",
    "context_length_exceeded": "context_overflow",
    "string_above_max_length": "invalid_request",
    "content_filter": "refusal",
    "content_policy_violation": "refusal",
    "model_not_found": "model_not_found",
    "rate_limit_exceeded": "rate_limited",
    "server_is_overloaded": "overloaded",
    "slow_down": "overloaded",
}
_TYPES: dict[str, ProviderErrorKind] = {
    **_CODES,
    "authentication_error": "auth",
    "permission_error": "permission",
    "billing_error": "billing",
    "rate_limit_error": "rate_limited",
    "overloaded_error": "overloaded",
    "api_error": "server",
    "timeout_error": "server",
    "server_error": "server",
    "request_too_large": "invalid_request",
}
_STATUSES: dict[int, ProviderErrorKind] = {
    401: "auth",
    402: "billing",
    403: "permission",
    408: "server",
    409: "server",
    413: "invalid_request",
    429: "rate_limited",
    503: "overloaded",
    529: "overloaded",
}
_OVERFLOW = re.compile(
    r"prompt is too long|maximum context length|context[ _](length|window|size)|input is too long"
    r"|exceeds? (the )?(maximum|available) (number of )?(context|tokens)|too many (input )?tokens",
    re.IGNORECASE,
)
_CREDIT = re.compile(r"credit balance|insufficient (credit|fund|quota)|spend(ing)? limit|payment required", re.I)
_MODEL = re.compile(r"\bmodel\b", re.IGNORECASE)
_SHOWN = 500
"""Characters of a server's own words that a message holds."""


def kind_of(*, status: int | None = None, type: str = "", code: str = "", message: str = "") -> ProviderErrorKind:
    """The kind of a failure; `server` where nothing says more."""
    for known, word in ((_CODES, code), (_CODES, type)):
        if word in known:
            return known[word]
    if _CREDIT.search(message):
        return "billing"
    if (status in (None, 200, 400, 413, 422, 500) or type == "invalid_request_error") and _OVERFLOW.search(message):
        return "context_overflow"
    if type in _TYPES:
        return _TYPES[type]
    if status == 404 or type == "not_found_error":
        return "model_not_found" if not message or _MODEL.search(message) else "config"
    if status in _STATUSES:
        return _STATUSES[status]
    if type == "invalid_request_error" or (status is not None and 400 <= status < 500):
        return "invalid_request"
    return "server"


def failure(
    kind: ProviderErrorKind | None = None,
    *,
    status: int | None = None,
    type: str = "",
    code: str = "",
    message: str = "",
    headers: Mapping[str, str] | None = None,
    retry_after: float | None = None,
    tools_ran: bool = False,
    now: float | None = None,
) -> ProviderError:
    """The error of a failed request.  `kind` where the caller knows better than the response's words.

    `headers` are looked through for a wait, unless `retry_after` (seconds) says it; `now` is the time in seconds since
    1970 that dates in them are compared with.  A rate limit that says how long it lasts holds for its whole credential.
    """
    found = kind or kind_of(status=status, type=type, code=code, message=message)
    rule = _RULES[found]
    if retry_after is None and headers is not None and found in ("rate_limited", "overloaded", "server"):
        retry_after = wait_of(headers, now=now)
    shared = found == "rate_limited" and retry_after is not None
    said = " ".join(message.split())[:_SHOWN]
    where = " ".join(word for word in (str(status) if status is not None else "", code or type) if word)
    return ProviderError(
        said if said and not where else f"the model's API answered {where}: {said}" if said else f"{found} ({where})",
        kind=found,
        retryable=rule.retryable,
        retry_after=retry_after,
        status=status,
        scope="credential" if shared else rule.scope,
        tools_ran=tools_ran,
        message_for_user=rule.user,
        fix=rule.fix,
    )


def failure_of(problem: BaseException, *, tools_ran: bool = False, now: float | None = None) -> ProviderError:
    """The error of what an SDK (anthropic, openai) or an HTTP client (httpx, httpx2) raised; none of them is imported.

    The SDKs' errors with a response carry `status_code`, `type` or `code`, and `response.headers`; the others are told
    by the names of their classes.  A `ProviderError` comes back as it is.
    """
    if isinstance(problem, ProviderError):
        problem.tools_ran = problem.tools_ran or tools_ran
        return problem
    status = getattr(problem, "status_code", None)
    names = {each.__name__ for each in type(problem).__mro__}
    words = str(getattr(problem, "message", "") or problem) or type(problem).__name__
    if isinstance(status, int) or ("APIError" in names and "APIConnectionError" not in names):
        inner = getattr(problem, "body", None)
        if isinstance(inner, Mapping) and "error" in inner:
            inner = inner["error"]
        if not isinstance(inner, Mapping):
            inner = {"message": inner}
        response = getattr(problem, "response", None)
        return failure(
            status=status if isinstance(status, int) else None,
            type=_word(inner.get("type"), getattr(problem, "type", None)),
            code=_word(inner.get("code"), getattr(problem, "error_code", None), getattr(problem, "code", None)),
            message=_word(inner.get("message")) or words,
            headers=getattr(response, "headers", None),
            tools_ran=tools_ran,
            now=now,
        )
    if isinstance(problem, TimeoutError) or any("Timeout" in name for name in names):
        slow = names & {"ReadTimeout", "TimeoutError"} or _cause_is(problem, "ReadTimeout")
        return failure("stalled" if slow else "network", message=f"no answer in time ({words})", tools_ran=tools_ran)
    if isinstance(problem, OSError) or names & {"APIConnectionError", "TransportError", "RemoteProtocolError"}:
        return failure("network", message=f"the connection failed: {_root(problem)}", tools_ran=tools_ran)
    return failure("protocol", message=f"the model's answer can't be read: {problem!r}", tools_ran=tools_ran)


def _word(*values: object) -> str:
    return next((str(value) for value in values if isinstance(value, (str, int)) and value != ""), "")


def _cause_is(problem: BaseException, name: str) -> bool:
    cause = problem.__cause__
    return cause is not None and any(each.__name__ == name for each in type(cause).__mro__)


def _root(problem: BaseException) -> str:
    """The words of the first cause: SDKs say no more than "Connection error."."""
    while problem.__cause__ is not None:
        problem = problem.__cause__
    return f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
