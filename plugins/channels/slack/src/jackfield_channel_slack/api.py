"""Slack's Web API: its methods over the kit's HTTP client, and what its `ok: false` means."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.clock import Clock
from jackfield.errors import (
    Ambiguous,
    AuthFailed,
    BadContent,
    ChannelError,
    ChatNotFound,
    RateLimited,
    SendNotAllowed,
    TooLarge,
    Transient,
    Unsupported,
    WindowClosed,
)
from jackfield_channel_kit.http import Buckets, Http, Rate, Response, retry_after

__all__ = ["UPLOAD_SECONDS", "Identity", "WebApi", "meaning", "user_of"]

UPLOAD_SECONDS = 110.0
"""How long the upload of a file may take; the core gives a send 120."""
_UNSAID = 30.0
"""Seconds to wait when Slack says "too many" and not how long."""

# About one message a second to each conversation, with short bursts; the others by their tiers, with some room.
_RATES = {"chat.update": (Rate(45, 60.0),), "stream": (Rate(90, 60.0),)}
_MESSAGES = (Rate(5, 5.0),)

_KINDS: dict[type[ChannelError], str] = {
    AuthFailed: "invalid_auth not_authed account_inactive token_revoked token_expired user_removed_from_team"
    " not_allowed_token_type org_login_required app_uninstalled team_access_not_granted",
    ChatNotFound: "channel_not_found message_not_found thread_not_found user_not_found users_not_found file_not_found"
    " file_deleted bad_timestamp invalid_ts invalid_channel",
    TooLarge: "msg_too_long message_too_long msg_blocks_too_long too_long file_upload_size_restricted"
    " post_file_size_too_large",
    BadContent: "invalid_blocks invalid_blocks_format invalid_attachments invalid_arguments invalid_form_data"
    " invalid_json invalid_charset invalid_chunks markdown_text_conflict no_text",
    WindowClosed: "edit_window_closed",
    Unsupported: "invalid_name",
    RateLimited: "ratelimited rate_limited message_limit_exceeded",
    Transient: "service_unavailable request_timeout accesslimited team_added_to_org",
    # Slack says of these that a part of what was asked for may have been done.
    Ambiguous: "internal_error fatal_error",
}
_BY_CODE = {code: kind for kind, codes in _KINDS.items() for code in codes.split()}
_FIXES = {
    "invalid_name": "use an emoji that the workspace has, such as thumbsup, eyes or tada",
    "not_in_channel": "invite the bot: /invite @name in that channel",
    "is_archived": "unarchive the channel, or remove its wiring",
    "missing_scope": "add the scope to the app, and install it again: see `jackfield slack-manifest`",
    "messages_tab_disabled": "App Home of the app: allow messages in its Messages tab",
}
_NEW_TOKEN = "install the app in the workspace again and set the new token"


def meaning(code: str, said: str, *, wait: float | None = None) -> ChannelError:
    """The error of an `ok: false` with this code; one that nobody knows is final."""
    kind = _BY_CODE.get(code, SendNotAllowed)
    if kind is RateLimited:
        return RateLimited(said, retry_after=_UNSAID if wait is None else wait)
    return kind(said, fix=_NEW_TOKEN if kind is AuthFailed else _FIXES.get(code))


@dataclass(frozen=True, slots=True)
class Identity:
    """Who we are in the workspace."""

    user_id: str
    bot_id: str
    team_id: str
    team: str
    enterprise_id: str | None = None
    scopes: frozenset[str] = frozenset()
    """What the token may; empty when Slack does not say."""

    @property
    def realm(self) -> str:
        """Where ids of people are unique: the organisation, or else the workspace."""
        return self.enterprise_id or self.team_id

    def handle(self, user: str) -> str:
        """The permission key of a user's id."""
        return f"{self.realm}.{user}"


def user_of(handle: str) -> str:
    """The user's id in a handle of ours."""
    return handle.rpartition(".")[2]


class WebApi:
    """Calls of one workspace.  A send is tried once; reads a few times."""

    def __init__(
        self, url: str, bot_token: str, *, app_token: str | None = None, redact: Sequence[str] = (), clock: Clock
    ) -> None:
        self._app_token = app_token
        self._clock = clock
        self.url = url
        self.bearer = {"authorization": f"Bearer {bot_token}"}
        """For files, which have addresses of their own."""
        self.http = Http(
            url,
            headers=self.bearer,
            redact=[one for one in (bot_token, app_token, *redact) if one],
            limits=Buckets(lambda key: _RATES.get(key, _MESSAGES)),
            clock=clock,
        )

    async def close(self) -> None:
        await self.http.close()

    async def call(
        self, method: str, fields: Mapping[str, Any], *, key: str | None = None, tolerate: Collection[str] = ()
    ) -> dict[str, Any]:
        """Do something: POST of JSON; fields that are None are left out.  Codes in `tolerate` count as success.

        Raises:
            ChannelError: see `meaning`.
        """
        body = {name: value for name, value in fields.items() if value is not None}
        return self._answer(method, await self.http.request("POST", method, json=body, key=key), tolerate)

    async def read(self, method: str, fields: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Ask for something: GET."""
        params = {name: value for name, value in (fields or {}).items() if value is not None}
        try:
            return self._answer(method, await self.http.request("GET", method, params=params))
        except Ambiguous as problem:  # asking twice does no harm
            raise Transient(problem.message) from None

    async def form(self, method: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Something that Slack takes as a form only, and that may be done twice."""
        answer = await self.http.request("POST", method, data=dict(fields), idempotent=True)
        return self._answer(method, answer)

    async def identity(self) -> Identity:
        answer = await self.http.request("POST", "auth.test", json={}, idempotent=True)
        said = self._answer("auth.test", answer)
        granted = answer.headers.get("x-oauth-scopes", "")
        return Identity(
            user_id=str(said.get("user_id") or ""),
            bot_id=str(said.get("bot_id") or ""),
            team_id=str(said.get("team_id") or ""),
            team=str(said.get("team") or ""),
            enterprise_id=said.get("enterprise_id") or None,
            scopes=frozenset(scope.strip() for scope in granted.split(",") if scope.strip()),
        )

    async def socket_url(self) -> str:
        """A fresh address for one WebSocket; it holds a ticket, so it is not to be shown."""
        bearer = {"authorization": f"Bearer {self._app_token}"}
        answer = await self.http.request("POST", "apps.connections.open", headers=bearer, data={}, idempotent=True)
        url = self._answer("apps.connections.open", answer).get("url")
        if not isinstance(url, str) or not url.startswith(("wss://", "ws://")):
            raise Transient("apps.connections.open: Slack gave no WebSocket address")
        return url

    def _answer(self, method: str, response: Response, tolerate: Collection[str] = ()) -> dict[str, Any]:
        said = response.json()
        if not isinstance(said, dict):
            raise Ambiguous(f"{method}: Slack answered with something else than an object")
        code = str(said.get("error") or "unknown_error")
        if said.get("ok") is True or code in tolerate:
            return said
        more = [str(one) for one in said.get("errors") or ()]
        metadata = said.get("response_metadata")
        more += [str(one) for one in metadata.get("messages") or ()] if isinstance(metadata, dict) else []
        if said.get("needed"):
            more.append(f"needed: {said['needed']}")
        text = f"{method}: {code}" + (f" ({'; '.join(more)[:300]})" if more else "")
        wait = retry_after(response.headers, self._clock.now() / 1000)
        raise meaning(code, self.http.redacted(text), wait=wait)
