"""Which session a message belongs to (messaging.md 2.5).  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from jackfield.errors import MalformedData
from jackfield.ids import MessagingGroupId
from jackfield.models import SessionMode

__all__ = ["SessionKey", "effective_mode", "session_key"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKey:
    """`key` is unique among an agent group's active sessions; the mode is part of it, so that no session of one mode is
    ever found for another."""

    key: str
    mode: SessionMode
    messaging_group_id: MessagingGroupId | None
    thread_id: str | None


def effective_mode(mode: SessionMode, *, threaded: bool, is_group: bool) -> SessionMode:
    """The wiring's mode; but a group chat on a channel with threads has a session for each thread, unless the agent
    shares one over all chats.  In a direct chat threads follow the wiring's mode."""
    if threaded and is_group and mode is not SessionMode.AGENT_SHARED:
        return SessionMode.PER_THREAD
    return mode


def session_key(mode: SessionMode, messaging_group_id: MessagingGroupId | None, thread_id: str | None) -> SessionKey:
    """The key under which the session is found or made.  `mode` is the effective one.

    A thread id counts in `per-thread` only; there None means the chat outside of any thread.

    Raises:
        MalformedData: no chat is given for a mode that needs one; a key is never made from missing parts (C126).
    """
    if mode is SessionMode.AGENT_SHARED:
        return SessionKey(key="agent-shared", mode=mode, messaging_group_id=messaging_group_id, thread_id=None)
    if messaging_group_id is None or not messaging_group_id.strip():
        raise MalformedData(f"a {mode} session needs a chat, got {messaging_group_id!r}")
    if mode is SessionMode.SHARED:
        return SessionKey(
            key=f"shared:{messaging_group_id}", mode=mode, messaging_group_id=messaging_group_id, thread_id=None
        )
    if thread_id is not None and not thread_id.strip():
        raise MalformedData(f"{thread_id!r} is no thread id; a message outside of threads has none")
    suffix = "" if thread_id is None else f":{thread_id}"
    return SessionKey(
        key=f"per-thread:{messaging_group_id}{suffix}",
        mode=mode,
        messaging_group_id=messaging_group_id,
        thread_id=thread_id,
    )
