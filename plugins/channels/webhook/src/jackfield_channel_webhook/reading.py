"""From a proved delivery to what the agent reads: the rules of `map`, and what holds without them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jackfield.api import RawRequest

from jackfield_channel_webhook.rules import BadBody, Rule, parse_body, shown

__all__ = ["Reading", "read"]

KEY_LIMIT = 200
"""Characters of an id, a thread, a chat or a person's id; what is longer is cut, with a hash of all of it."""
NAME_LIMIT = 100

_PRIVATE = ("authorization", "cookie", "proxy-authorization")
"""Headers that no template sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a delivery says.  Empty means that it does not say."""

    text: str
    id: str = ""
    thread: str = ""
    chat: str = ""
    user: str = ""
    user_name: str = ""
    bot: bool = False


def read(request: RawRequest, rules: Mapping[str, Rule]) -> Reading:
    """Parse and map.  Takes a moment: not on the event loop.

    Raises:
        BadBody: the body is none that is taken here.
        ValueError: a template failed.
    """
    headers = {name.lower(): value for name, value in request.headers}
    body = _body(request, headers.get("content-type", ""))
    visible = {name: value for name, value in headers.items() if name not in _PRIVATE and "signature" not in name}

    def said(name: str) -> str:
        rule = rules.get(name)
        return rule(body, visible) if rule is not None else ""

    return Reading(
        text=said("text") if "text" in rules else _own_text(body),
        id=_key(said("id")),
        thread=_key(said("thread")),
        chat=_key(said("chat")),
        user=_key(said("user")),
        user_name=said("user_name")[:NAME_LIMIT],
        bot=said("bot").strip().lower() in ("true", "yes", "1", "bot"),
    )


def _body(request: RawRequest, content_type: str) -> Any:
    if content_type.partition(";")[0].strip().lower() == "text/plain":
        try:
            return {"text": request.body.decode("utf-8-sig")}
        except UnicodeDecodeError:
            raise BadBody("it is no UTF-8") from None
    return parse_body(request.body)


def _own_text(body: Any) -> str:
    if isinstance(body, dict) and isinstance(body.get("text"), str):
        return shown(body["text"])
    if isinstance(body, str):
        return shown(body)
    # Four backticks: a fence of three may be in a text of the body.
    pretty = json.dumps(body, ensure_ascii=False, indent=2).encode("utf-8", "replace").decode()
    return f"````json\n{pretty}\n````"


def _key(text: str) -> str:
    text = " ".join(text.split())
    if len(text) <= KEY_LIMIT:
        return text
    return text[: KEY_LIMIT - 41] + "~" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:40]
