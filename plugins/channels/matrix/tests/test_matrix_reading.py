"""What Matrix events and contents are taken for, without a homeserver."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield.clock import UnixMs
from jackfield.errors import (
    AuthFailed,
    BadContent,
    ChannelError,
    ChatNotFound,
    RateLimited,
    SendNotAllowed,
    TooLarge,
    Transient,
    Unsupported,
)
from jackfield.models import AttachmentKind, OutMessage
from jackfield_channel_kit.responses import Response
from jackfield_channel_matrix.content import TEXT_LIMIT, edited, pieces, related, text_content
from jackfield_channel_matrix.homeserver import EVENT_BYTES, meaning
from jackfield_channel_matrix.intake import since_invited
from jackfield_channel_matrix.outgoing import with_text
from jackfield_channel_matrix.reading import (
    attachments,
    content_of,
    fallback_removed,
    in_reply_to,
    mentioned,
    occurred_at,
    relation,
    text_of,
    thread_of,
)
from jackfield_channel_matrix.settings import MatrixSettings
from pydantic import ValidationError

US = "@andy:hs.example"
NAMES = ("Andy", "andy")


def said(body: str, **more: Any) -> dict[str, Any]:
    return {"msgtype": "m.text", "body": body, **more}


def html(markup: str, body: str = "x") -> dict[str, Any]:
    return said(body, format="org.matrix.custom.html", formatted_body=markup)


# ---- mentions


def test_a_client_that_says_whom_it_means_is_believed() -> None:
    """C046: `m.mentions` decides, also against the text."""
    assert mentioned(said("hi", **{"m.mentions": {"user_ids": [US, "@bo:x"]}}), US, NAMES) == ((US, "@bo:x"), True)
    assert mentioned(said("Andy, hi", **{"m.mentions": {}}), US, NAMES) == ((), False)


def test_a_pill_is_a_mention_where_the_client_says_nothing() -> None:
    """C046."""
    for target in (US, US.replace(":", "%3A"), "%40andy:hs.example", f"{US}?via=hs.example"):
        content = html(f'<a href="https://matrix.to/#/{target}">Somebody</a>: hi')
        assert mentioned(content, US, ())[1], target
    assert not mentioned(html('<a href="https://matrix.to/#/@bo:x">Bo</a>'), US, ())[1]


@pytest.mark.parametrize(
    ("body", "meant"),
    [
        ("@bo Andy, what now?", True),
        ("hey ANDY!", True),
        ("@andy:hs.example: hello", True),
        ("andyish", False),
        ("mail to x@andy.example", False),
        ("`@Andy`", False),
        ("https://h.example/@Andy", False),
        ("> <@bo:x> Andy is nice\n\nreally?", False),
    ],
)
def test_a_name_counts_as_a_whole_word_where_the_client_says_nothing(body: str, meant: bool) -> None:
    """C044."""
    assert mentioned(said(body), US, NAMES)[1] is meant


# ---- texts


def test_html_is_read_as_markdown_and_a_pill_as_a_name() -> None:
    pill = '<a href="https://matrix.to/#/@andy:hs.example">Andy</a>'
    assert text_of(html(f"{pill}: <strong>bold</strong> <code>x*y</code>")) == "@Andy: **bold** `x*y`"


def test_a_reply_is_read_without_the_quote_before_it() -> None:
    quote = {"m.relates_to": {"m.in_reply_to": {"event_id": "$one"}}}
    assert text_of(said("> <@bo:x> first\n> second\n\nyes", **quote)) == "yes"
    assert text_of(said("> a quote of my own")) == "> a quote of my own"
    assert fallback_removed("> * <@bo:x> waves\n\nhello") == "hello"
    assert text_of(html("<mx-reply><blockquote>old</blockquote></mx-reply>new") | quote) == "new"


def test_a_thread_s_message_names_the_one_before_it_only_for_old_clients() -> None:
    falling = {"rel_type": "m.thread", "event_id": "$root", "is_falling_back": True}
    relates = {"m.relates_to": {**falling, "m.in_reply_to": {"event_id": "$last"}}}
    assert (thread_of(relates), in_reply_to(relates)) == ("$root", None)
    relates["m.relates_to"]["is_falling_back"] = False
    assert (thread_of(relates), in_reply_to(relates)) == ("$root", "$last")


def test_a_file_s_caption_is_its_text_and_its_name_is_none() -> None:
    file = {"msgtype": "m.image", "url": "mxc://hs/abc", "info": {"mimetype": "image/png", "size": 3}}
    alone = attachments({}, {**file, "body": "cat.png"})[0]
    assert (alone.name, alone.kind, alone.size, alone.caption) == ("cat.png", AttachmentKind.IMAGE, 3, None)
    captioned = {**file, "body": "my cat", "filename": "cat.png"}
    assert (text_of(captioned), attachments({}, captioned)[0].name) == ("my cat", "cat.png")
    assert text_of({**file, "body": "cat.png"}) == ""


def test_a_voice_message_and_a_sticker_are_told_apart() -> None:
    voice = {"msgtype": "m.audio", "body": "v", "url": "mxc://hs/v", "org.matrix.msc3245.voice": {}}
    assert attachments({}, voice)[0].kind is AttachmentKind.VOICE
    assert attachments({"type": "m.sticker"}, {"body": "s", "url": "mxc://hs/s"})[0].kind is AttachmentKind.STICKER


def test_only_addresses_in_the_media_repository_are_files() -> None:
    for url in ("https://evil.example/x", "file:///etc/passwd", "", 7, None):
        assert attachments({}, {"msgtype": "m.file", "body": "x", "url": url}) == ()


_keys = st.sampled_from(
    ["body", "msgtype", "m.relates_to", "rel_type", "event_id", "m.in_reply_to", "key", "m.mentions", "user_ids",
     "info", "size", "mimetype", "file", "url", "hashes", "format", "formatted_body", "m.new_content", "filename"]
)  # fmt: skip
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=12,
)


@given(content=_json, stamp=_json)
def test_a_stranger_s_event_of_any_shape_harms_nobody(content: Any, stamp: Any) -> None:
    event = {"content": content, "origin_server_ts": stamp, "type": "m.room.message"}
    read = content_of(event)
    text_of(read)
    mentioned(read, US, NAMES)
    attachments(event, read)
    relation(read)
    thread_of(read)
    in_reply_to(read)
    assert 10**12 < occurred_at(event, UnixMs(1_700_000_000_000)) < 10**13


def test_reading_hostile_html_takes_linear_time() -> None:
    """C217."""
    for markup in ('<a href="https://matrix.to/#/@' + "a" * 60_000, "<a " + "href=" * 12_000, "<a>" * 20_000):
        began = time.process_time()
        mentioned(html(markup), US, ())
        text_of(html(markup))
        assert time.process_time() - began < 5.0


# ---- contents


def test_a_plain_sentence_has_no_html_and_notifies_nobody() -> None:
    assert text_content("hello people") == {"msgtype": "m.text", "body": "hello people", "m.mentions": {}}


def test_markup_is_sent_as_html_with_its_source_beside_it() -> None:
    content = text_content("**bold** and\n\n- one")
    assert content["body"] == "**bold** and\n\n- one"
    assert content["formatted_body"] == "<p><strong>bold</strong> and</p>\n<ul><li>one</li></ul>"
    assert "formatted_body" not in text_content("**bold**", plain=True)


def test_a_user_id_becomes_a_pill_and_a_notification_but_not_in_code() -> None:
    content = text_content("ask @ann:hs.example, not `@bo:hs.example`, mail x@cy:hs.example")
    assert content["m.mentions"] == {"user_ids": ["@ann:hs.example"]}
    assert '<a href="https://matrix.to/#/@ann:hs.example">@ann:hs.example</a>' in content["formatted_body"]


def test_everybody_in_the_room_is_never_notified() -> None:
    content = text_content("hey @room")
    assert "@room" not in content["body"] and content["m.mentions"] == {}


def test_a_text_of_the_limit_goes_into_an_event_also_as_an_encrypted_edit() -> None:
    """C025: what is measured is what is sent."""
    for text in ("word & <tag> " * 4000, "é" * 20_000, "```py\n" + 'x = "1"\n' * 4000 + "```", "**ab** " * 5000):
        for piece in pieces(text):
            content = edited(text_content(piece), "$" + "x" * 43)
            size = len(json.dumps(content, ensure_ascii=False).encode())
            assert size * 4 / 3 + 1500 < EVENT_BYTES, size
            assert len(text_content(piece).get("formatted_body", "").encode()) <= TEXT_LIMIT


def test_a_thread_and_a_reply_are_told_apart_for_old_clients() -> None:
    thread = related({}, thread="$root", reply_to=None, latest="$last")["m.relates_to"]
    assert thread["is_falling_back"] and thread["m.in_reply_to"] == {"event_id": "$last"}
    reply = related({}, thread="$root", reply_to="$one")["m.relates_to"]
    assert not reply["is_falling_back"] and reply["m.in_reply_to"] == {"event_id": "$one"}
    assert related({}, thread=None, reply_to=None) == {}


def test_files_go_with_the_last_part() -> None:
    parts = with_text(OutMessage(text="ab"), ["a", "b"])
    assert [part.text for part in parts] == ["a", "b"]


# ---- answers of the homeserver


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, {"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 31_000}, RateLimited),
        (401, {"errcode": "M_UNKNOWN_TOKEN"}, AuthFailed),
        (403, {"errcode": "M_FORBIDDEN"}, SendNotAllowed),
        (404, {"errcode": "M_NOT_FOUND"}, ChatNotFound),
        (404, {"errcode": "M_UNRECOGNIZED"}, Unsupported),
        (413, {"errcode": "M_TOO_LARGE"}, TooLarge),
        (400, {"errcode": "M_BAD_JSON"}, BadContent),
        (502, {}, Transient),
        (504, {}, Transient),
        (500, {"errcode": "M_UNKNOWN"}, Transient),
    ],
)
def test_what_the_homeserver_says_becomes_the_error_that_tells_what_to_do(
    status: int, body: dict[str, Any], kind: type[ChannelError]
) -> None:
    error = meaning(Response(status, {}, json.dumps(body).encode()), now=0.0)
    assert type(error) is kind
    if isinstance(error, RateLimited):
        assert error.retry_after == 31.0


def test_the_longer_of_two_waits_is_believed() -> None:
    """C077: in the header as seconds, in the body as milliseconds, or nowhere."""
    limited = json.dumps({"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 350}).encode()
    waits = [({"retry-after": "12"}, limited, 12.0), ({}, limited, 0.35), ({}, b"{}", 5.0)]
    for headers, body, wait in waits:
        error = meaning(Response(429, headers, body), now=0.0)
        assert isinstance(error, RateLimited) and error.retry_after == wait


# ---- history


def _member(membership: str, before: str | None = None, user: str = US) -> dict[str, Any]:
    unsigned = {} if before is None else {"prev_content": {"membership": before}}
    return {"type": "m.room.member", "state_key": user, "content": {"membership": membership}, "unsigned": unsigned}


def test_what_was_written_before_we_were_invited_is_history() -> None:
    """What came between the invitation and our joining was written to us."""
    old, hello, later = ({"type": "m.room.message", "n": n} for n in range(3))
    events = [old, _member("invite"), hello, _member("join", "invite"), later, _member("join", "join")]
    assert since_invited(events, US) == events[1:]
    events = [old, _member("join"), later]
    assert since_invited(events, US) == events[1:]
    events = [old, _member("join", user="@bo:x"), later]
    assert since_invited(events, US) == events


# ---- settings


def test_invitations_are_accepted_from_those_who_are_named() -> None:
    def settings(*invites: str) -> MatrixSettings:
        return MatrixSettings(homeserver="https://hs.example", token="t", invites=invites)

    assert not settings().invited_by("@ann:hs.example")
    assert settings("@ann:hs.example").invited_by("@ann:hs.example")
    assert not settings("@ann:hs.example").invited_by("@ann:hs.example.evil")
    assert settings("*:hs.example").invited_by("@bo:hs.example")
    assert not settings("*:hs.example").invited_by("@bo:evil.example")
    assert settings("*").invited_by("@bo:evil.example")


@pytest.mark.parametrize(
    "wrong",
    [
        {"homeserver": "matrix.example"},
        {"homeserver": "https://user:pw@matrix.example"},
        {"token": None},
        {"password": "p"},
        {"token": None, "password": "p"},
        {"token": None, "password": "p", "user": "andy"},
        {"invites": ["ann"]},
    ],
)
def test_settings_that_can_t_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        MatrixSettings.model_validate({"homeserver": "https://hs.example", "token": "t", **wrong})
