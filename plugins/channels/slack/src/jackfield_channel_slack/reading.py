"""Slack's events as the core's: pure functions of what Slack sent and the names that are known.

What identifies a message is its conversation and `ts`, never the event or envelope that brought it: one message comes
as `app_mention` and as `message`, is repeated under other ids, and may be split over sockets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from jackfield.clock import UnixMs
from jackfield.models import (
    ActionInvoked,
    Address,
    Addressed,
    Attachment,
    AttachmentKind,
    ConversationChange,
    ConversationChanged,
    ConversationKind,
    Event,
    MessageDeleted,
    MessageEdited,
    MessageReceived,
    MessageRef,
    Person,
    Quote,
    ReactionChanged,
)
from jackfield_channel_kit.prompt import PromptBook, decode
from jackfield_channel_kit.selfguard import SelfGuard
from jackfield_channel_kit.text.parse import from_slack

from jackfield_channel_slack.api import Identity
from jackfield_channel_slack.emoji import character
from jackfield_channel_slack.names import Known

__all__ = ["Reader", "conversation_of", "people_of"]

_SAID = frozenset({None, "", "file_share", "thread_broadcast", "me_message", "bot_message"})
"""Subtypes of messages that somebody wrote; the others tell what happened to the conversation."""
_MENTION = re.compile(r"<@([A-Z0-9]+)(?:\|[^<>]*)?>")
_CHANGES = {
    "channel_rename": ConversationChange.RENAMED,
    "group_rename": ConversationChange.RENAMED,
    "channel_archive": ConversationChange.ARCHIVED,
    "group_archive": ConversationChange.ARCHIVED,
    "member_joined_channel": ConversationChange.JOINED,
    "member_left_channel": ConversationChange.LEFT,
}


def conversation_of(event: Mapping[str, Any]) -> str | None:
    """The conversation's id, wherever this kind of event has it."""
    found = event.get("channel")
    if isinstance(found, Mapping):
        found = found.get("id")
    if found is None and isinstance(event.get("item"), Mapping):
        found = event["item"].get("channel")
    return found if isinstance(found, str) and found else None


def people_of(event: Mapping[str, Any]) -> set[str]:
    """Ids of the users whose names the event needs."""
    inner = event.get("message") if isinstance(event.get("message"), Mapping) else event
    assert isinstance(inner, Mapping)
    found = {user for user in (inner.get("user"), event.get("user")) if isinstance(user, str)}
    return found | set(_MENTION.findall(_raw_text(inner))[:50])


class Reader:
    """For one instance.  `read` and `click` give None for what is not for us to tell."""

    def __init__(
        self, instance: str, me: Identity, own: SelfGuard, *, thread_replies: bool, prompts: PromptBook
    ) -> None:
        self._instance = instance
        self._me = me
        self._own = own
        self._thread_replies = thread_replies
        self._prompts = prompts
        called = re.escape(me.user_id)
        self._leading = re.compile(rf"\s*(?:<@{called}(?:\|[^<>]*)?>[\s,:]*)+")

    def read(self, event: Mapping[str, Any], known: Known, *, now: UnixMs, redelivered: bool = False) -> Event | None:
        """An event of the Events API, from whichever way it came."""
        kind = event.get("type")
        conversation = conversation_of(event)
        if conversation is None or not isinstance(kind, str):
            return None
        if kind in ("message", "app_mention"):
            subtype = event.get("subtype")
            if subtype == "message_changed":
                return self._changed(event, conversation, known, now)
            if subtype == "message_deleted":
                return self._deleted(conversation, event.get("previous_message") or {}, event.get("deleted_ts"), now)
            return self.message(event, conversation, known, now=now, redelivered=redelivered)
        if kind in ("reaction_added", "reaction_removed"):
            return self._reaction(event, conversation, known, now)
        if kind in _CHANGES:
            return self._conversation(event, conversation, _CHANGES[kind], now)
        return None

    def is_own(self, message: Mapping[str, Any], conversation: str) -> bool:
        """Whether our bot wrote it: by its sender, or because we sent it."""
        sent = f"{conversation}:{message.get('ts')}"
        return self._own.is_own(message.get("user"), sent) or self._own.is_own(message.get("bot_id") or None)

    def message(
        self,
        event: Mapping[str, Any],
        conversation: str,
        known: Known,
        *,
        now: UnixMs,
        redelivered: bool = False,
        history: bool = False,
    ) -> MessageReceived | None:
        """Something that somebody wrote.  Our own is told from the history only."""
        ts = event.get("ts")
        own = self.is_own(event, conversation)
        if event.get("subtype") not in _SAID or not isinstance(ts, str) or (own and not history):
            return None
        raw = _raw_text(event)
        mentioned = event.get("type") == "app_mention" or self._me.user_id in _MENTION.findall(raw)
        thread = event.get("thread_ts") if event.get("thread_ts") != ts else None
        kind = self._kind(event, conversation, known)
        address = self._address(conversation, ts, event, mentioned=mentioned and kind is not ConversationKind.DM)
        sender = self._person(event, known, own=own)
        if sender is None:
            return None
        if kind is ConversationKind.DM:
            addressed = Addressed.DM
        elif mentioned:
            addressed = Addressed.MENTION
        else:
            replied = thread is not None and event.get("parent_user_id") == self._me.user_id
            addressed = Addressed.REPLY if replied and not sender.is_bot else Addressed.NONE  # C228
        attachments = tuple(_attachments(event))
        text = self._text(raw, known)
        if not text.strip() and not attachments:
            return None
        return MessageReceived(
            address=address,
            dedupe_key=f"message:{conversation}:{ts}",
            occurred_at=_moment(ts, now),
            ref=MessageRef(address, (ts,)),
            sender=sender,
            text=text,
            kind=kind,
            is_group=kind is not ConversationKind.DM,
            addressed=addressed,
            mentions=tuple(dict.fromkeys(self._me.handle(user) for user in _MENTION.findall(raw))),
            reply_to=Quote(platform_id=thread, sender=self._parent(event)) if thread is not None else None,
            attachments=attachments,
            conversation_name=known.conversation.name if known.conversation is not None else None,
            redelivered=redelivered,
            backfill=history,
        )

    def click(self, payload: Mapping[str, Any], *, now: UnixMs) -> ActionInvoked | None:
        """A button of a prompt of ours; None for a link button, or one that another app made."""
        actions = payload.get("actions") or ()
        action = next((one for one in actions if isinstance(one, Mapping)), None)
        chosen = decode(str(action.get("value") or "")) if action is not None else None
        container = payload.get("container") or {}
        conversation = conversation_of(payload) or container.get("channel_id")
        ts = container.get("message_ts") or (payload.get("message") or {}).get("ts")
        user = payload.get("user") or {}
        if action is None or chosen is None or not conversation or not ts or not user.get("id"):
            return None
        prompt_id, index = chosen
        thread = (payload.get("message") or {}).get("thread_ts") or container.get("thread_ts")
        address = Address("slack", self._instance, conversation, thread if thread != ts else None)
        hidden = bool(container.get("is_ephemeral"))
        return ActionInvoked(
            address=address,
            dedupe_key=f"action:{conversation}:{ts}:{user['id']}:{action.get('action_ts')}",
            occurred_at=_moment(str(action.get("action_ts") or ""), now),
            prompt_id=prompt_id,
            value=self._prompts.value(prompt_id, index),
            user=Person(self._me.handle(user["id"]), user.get("name") or user.get("username")),
            source=MessageRef(address, (ts,)),
            responder=json.dumps([conversation, ts, user["id"], address.thread_id, hidden]),
        )

    # ---- kinds

    def _changed(
        self, event: Mapping[str, Any], conversation: str, known: Known, now: UnixMs
    ) -> MessageEdited | MessageDeleted | None:
        message, before = event.get("message") or {}, event.get("previous_message") or {}
        ts = message.get("ts")
        if not isinstance(ts, str) or self.is_own(message, conversation):
            return None
        if message.get("subtype") == "tombstone":  # deleted, but others had answered in its thread
            return self._deleted(conversation, before, ts, now)
        raw = _raw_text(message)
        sender = self._person(message, known)
        if message.get("subtype") not in _SAID or sender is None or raw == _raw_text(before):
            return None  # a preview of a link was added, or an answer counted
        version = str((message.get("edited") or {}).get("ts") or event.get("ts") or "")
        mentioned = not conversation.startswith("D") and self._me.user_id in _MENTION.findall(raw)
        address = self._address(conversation, ts, message, mentioned=mentioned)
        return MessageEdited(
            address=address,
            dedupe_key=f"edit:{conversation}:{ts}:{version}",
            occurred_at=_moment(version, now),
            ref=MessageRef(address, (ts,)),
            sender=sender,
            text=self._text(raw, known),
            version=version,
        )

    def _deleted(self, conversation: str, before: Mapping[str, Any], ts: object, now: UnixMs) -> MessageDeleted | None:
        if not isinstance(ts, str) or self.is_own(before, conversation):
            return None
        mentioned = not conversation.startswith("D") and self._me.user_id in _MENTION.findall(_raw_text(before))
        address = self._address(conversation, ts, before, mentioned=mentioned)
        return MessageDeleted(
            address=address, dedupe_key=f"delete:{conversation}:{ts}", occurred_at=now, ref=MessageRef(address, (ts,))
        )

    def _reaction(
        self, event: Mapping[str, Any], conversation: str, known: Known, now: UnixMs
    ) -> ReactionChanged | None:
        item, user, name = event.get("item") or {}, event.get("user"), event.get("reaction")
        ts, at = item.get("ts"), str(event.get("event_ts") or "")
        if item.get("type") != "message" or not ts or not user or not name or user == self._me.user_id:
            return None
        person = self._person(event, known)
        if person is None:
            return None
        added = event["type"] == "reaction_added"
        address = Address("slack", self._instance, conversation)
        return ReactionChanged(
            address=address,
            dedupe_key=f"reaction:{conversation}:{ts}:{user}:{name}:{'+' if added else '-'}:{at}",
            occurred_at=_moment(at, now),
            ref=MessageRef(address, (ts,)),
            user=person,
            emoji=character(str(name)),
            added=added,
        )

    def _conversation(
        self, event: Mapping[str, Any], conversation: str, change: ConversationChange, now: UnixMs
    ) -> ConversationChanged | None:
        at = str(event.get("event_ts") or "")
        if event["type"].startswith("member_"):
            if event.get("user") != self._me.user_id:
                return None
            joined = change is ConversationChange.JOINED
            change = ConversationChange.ADDED if joined else ConversationChange.REMOVED
        channel = event.get("channel")
        return ConversationChanged(
            address=Address("slack", self._instance, conversation),
            dedupe_key=f"conversation:{conversation}:{change}:{at}",
            occurred_at=_moment(at, now),
            change=change,
            name=channel.get("name") if isinstance(channel, Mapping) else None,
        )

    # ---- parts

    def _address(self, conversation: str, ts: str, message: Mapping[str, Any], *, mentioned: bool) -> Address:
        thread = message.get("thread_ts")
        if (thread is None or thread == ts) and not (mentioned and self._thread_replies):
            return Address("slack", self._instance, conversation)
        return Address("slack", self._instance, conversation, str(thread or ts))

    @staticmethod
    def _kind(event: Mapping[str, Any], conversation: str, known: Known) -> ConversationKind:
        said = event.get("channel_type")
        if said == "im" or conversation.startswith("D"):
            return ConversationKind.DM
        if said == "mpim":
            return ConversationKind.GROUP
        return known.conversation.kind if known.conversation is not None else ConversationKind.CHANNEL

    def _person(self, event: Mapping[str, Any], known: Known, *, own: bool = False) -> Person | None:
        user, bot = event.get("user"), event.get("bot_id")
        who = user or bot
        if not isinstance(who, str):
            return None
        found = known.users.get(who)
        profile = event.get("bot_profile") or {}
        name = found.name if found is not None else event.get("username") or profile.get("name")
        is_bot = bool(bot) or who == "USLACKBOT" or (found is not None and found.is_bot)
        return Person(self._me.handle(who), name, is_bot=is_bot, is_self=own)

    def _parent(self, event: Mapping[str, Any]) -> str | None:
        parent = event.get("parent_user_id")
        return self._me.handle(parent) if isinstance(parent, str) else None

    def _text(self, raw: str, known: Known) -> str:
        """What was said to the bot, without the mention that calls it, unless that is all."""
        said = self._leading.match(raw)
        rest = raw[said.end() :] if said is not None else raw
        return from_slack(rest if rest.strip() else raw, users=known.names, channels={})


def _raw_text(message: Mapping[str, Any]) -> str:
    """A message's mrkdwn.  Other apps, and who forwards, put it into `attachments`."""
    text = message.get("text")
    if isinstance(text, str) and text.strip():
        return text
    lines = []
    for one in message.get("attachments") or ():
        if isinstance(one, Mapping):
            parts = [one.get("pretext"), one.get("title"), one.get("text")]
            said = [part for part in parts if isinstance(part, str) and part]
            lines += said or [part for part in (one.get("fallback"),) if isinstance(part, str)]
    return "\n".join(lines)


def _attachments(message: Mapping[str, Any]) -> Iterator[Attachment]:
    for one in message.get("files") or ():
        if not isinstance(one, Mapping) or not isinstance(one.get("id"), str):
            continue
        if one.get("mode") in ("tombstone", "hidden_by_limit"):
            continue
        mime = one.get("mimetype") if isinstance(one.get("mimetype"), str) else None
        major = (mime or "").partition("/")[0]
        kind = {"image": AttachmentKind.IMAGE, "audio": AttachmentKind.AUDIO, "video": AttachmentKind.VIDEO}.get(
            major, AttachmentKind.FILE
        )
        size = one.get("size")
        yield Attachment(
            id=one["id"],
            name=str(one.get("name") or one.get("title") or one["id"]),
            kind=AttachmentKind.VOICE if one.get("subtype") == "slack_audio" else kind,
            mime=mime,
            size=size if isinstance(size, int) else None,
            token=one["id"],
        )


def _moment(ts: str, now: UnixMs) -> UnixMs:
    """Milliseconds of a `ts`, which is a name with a time in it; now for one that holds none."""
    seconds, _, rest = ts.partition(".")
    if not (seconds.isascii() and seconds.isdigit() and len(seconds) <= 11):
        return now
    millis = (rest + "000")[:3]
    return UnixMs(int(seconds) * 1000 + (int(millis) if millis.isascii() and millis.isdigit() else 0))
