"""The first schema.

Entities refer to each other by foreign keys.  The ledger (`events`, `inbound`, `deliveries`, `questions`) has none: it
is the history of what happened and outlives what it names.

Moments are milliseconds since the epoch.  Every question that is asked while messages flow has an index of its own;
those over unfinished work are partial, so that they stay small however long the history gets.
"""

from __future__ import annotations

__all__ = ["STATEMENTS"]

_ENTITIES = (
    """CREATE TABLE agent_groups (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        folder TEXT NOT NULL UNIQUE,
        created_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE messaging_groups (
        id TEXT PRIMARY KEY,
        channel_type TEXT NOT NULL,
        instance TEXT NOT NULL,
        platform_id TEXT NOT NULL,
        name TEXT,
        is_group INTEGER NOT NULL,
        unknown_sender_policy TEXT NOT NULL CHECK (unknown_sender_policy IN ('strict', 'request_approval', 'public')),
        denied_at INTEGER,
        created_at INTEGER NOT NULL,
        UNIQUE (channel_type, instance, platform_id)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE wirings (
        id TEXT PRIMARY KEY,
        messaging_group_id TEXT NOT NULL REFERENCES messaging_groups (id),
        agent_group_id TEXT NOT NULL REFERENCES agent_groups (id),
        engage_mode TEXT NOT NULL CHECK (engage_mode IN ('always', 'pattern', 'mention', 'mention-sticky')),
        engage_pattern TEXT,
        sender_scope TEXT NOT NULL CHECK (sender_scope IN ('all', 'known')),
        ignored_policy TEXT NOT NULL CHECK (ignored_policy IN ('drop', 'accumulate')),
        session_mode TEXT NOT NULL CHECK (session_mode IN ('shared', 'per-thread', 'agent-shared')),
        priority INTEGER NOT NULL,
        origin TEXT NOT NULL CHECK (origin IN ('trusted', 'cautious')),
        created_at INTEGER NOT NULL,
        UNIQUE (messaging_group_id, agent_group_id)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX wirings_by_group ON wirings (agent_group_id)",
    # thread_key: '' for no thread, '=' and the thread's id otherwise; NULLs would never conflict in a key.
    """CREATE TABLE sticky (
        wiring_id TEXT NOT NULL REFERENCES wirings (id) ON DELETE CASCADE,
        thread_key TEXT NOT NULL,
        since INTEGER NOT NULL,
        until INTEGER NOT NULL,
        PRIMARY KEY (wiring_id, thread_key)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX sticky_by_end ON sticky (until)",
    """CREATE TABLE destinations (
        agent_group_id TEXT NOT NULL REFERENCES agent_groups (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        messaging_group_id TEXT REFERENCES messaging_groups (id) ON DELETE CASCADE,
        target_group_id TEXT REFERENCES agent_groups (id) ON DELETE CASCADE,
        created_at INTEGER NOT NULL,
        PRIMARY KEY (agent_group_id, name),
        CHECK ((messaging_group_id IS NULL) <> (target_group_id IS NULL))
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX destinations_by_chat ON destinations (messaging_group_id, agent_group_id)",
    "CREATE INDEX destinations_by_target ON destinations (target_group_id)",
    """CREATE TABLE users (
        id TEXT PRIMARY KEY,
        channel_type TEXT NOT NULL,
        display_name TEXT,
        created_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE roles (
        user_id TEXT NOT NULL REFERENCES users (id),
        role TEXT NOT NULL CHECK (role IN ('owner', 'admin')),
        agent_group_id TEXT REFERENCES agent_groups (id) ON DELETE CASCADE,
        granted_by TEXT,
        granted_at INTEGER NOT NULL,
        CHECK (role <> 'owner' OR agent_group_id IS NULL)
    ) STRICT""",
    "CREATE UNIQUE INDEX roles_once ON roles (user_id, role, coalesce(agent_group_id, ''))",
    "CREATE INDEX roles_by_group ON roles (agent_group_id)",
    """CREATE TABLE members (
        agent_group_id TEXT NOT NULL REFERENCES agent_groups (id) ON DELETE CASCADE,
        user_id TEXT NOT NULL REFERENCES users (id),
        added_by TEXT,
        added_at INTEGER NOT NULL,
        PRIMARY KEY (agent_group_id, user_id)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX members_by_user ON members (user_id)",
)

_SESSIONS = (
    """CREATE TABLE sessions (
        id TEXT PRIMARY KEY,
        agent_group_id TEXT NOT NULL REFERENCES agent_groups (id) ON DELETE CASCADE,
        key TEXT NOT NULL CHECK (key <> ''),
        mode TEXT NOT NULL CHECK (mode IN ('shared', 'per-thread', 'agent-shared')),
        messaging_group_id TEXT REFERENCES messaging_groups (id) ON DELETE SET NULL,
        thread_id TEXT,
        status TEXT NOT NULL CHECK (status IN ('active', 'closed')),
        epoch INTEGER NOT NULL DEFAULT 0,
        parked_until INTEGER,
        parked_reason TEXT,
        created_at INTEGER NOT NULL,
        last_active_at INTEGER NOT NULL,
        seq_cursor INTEGER NOT NULL DEFAULT 0,
        change_cursor INTEGER NOT NULL DEFAULT 0,
        activity_cursor INTEGER NOT NULL DEFAULT 0
    ) STRICT, WITHOUT ROWID""",
    "CREATE UNIQUE INDEX sessions_by_key ON sessions (agent_group_id, key) WHERE status = 'active'",
    "CREATE INDEX sessions_by_group ON sessions (agent_group_id, created_at)",
    "CREATE INDEX sessions_by_chat ON sessions (messaging_group_id)",
    "CREATE INDEX sessions_by_status ON sessions (status, last_active_at)",
    "CREATE INDEX sessions_parked ON sessions (parked_until) WHERE parked_until IS NOT NULL",
    """CREATE TABLE parked_scopes (
        scope TEXT NOT NULL CHECK (scope IN ('credential', 'provider')),
        key TEXT NOT NULL,
        until INTEGER NOT NULL,
        reason TEXT NOT NULL,
        PRIMARY KEY (scope, key)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX parked_scopes_by_end ON parked_scopes (until)",
)

_LEDGER = (
    """CREATE TABLE events (
        ord INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        channel_type TEXT NOT NULL,
        instance TEXT NOT NULL,
        dedupe_key TEXT NOT NULL,
        type TEXT NOT NULL,
        body TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('received', 'routed', 'ignored', 'failed')),
        reason TEXT,
        received_at INTEGER NOT NULL,
        finished_at INTEGER,
        UNIQUE (channel_type, instance, dedupe_key)
    ) STRICT""",
    "CREATE INDEX events_unfinished ON events (ord) WHERE state = 'received'",
    "CREATE INDEX events_finished ON events (received_at) WHERE state <> 'received'",
    """CREATE TABLE cursors (
        channel_type TEXT NOT NULL,
        instance TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (channel_type, instance, key)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE drops (
        channel_type TEXT NOT NULL,
        instance TEXT NOT NULL,
        platform_id TEXT NOT NULL,
        sender TEXT NOT NULL,
        reason TEXT NOT NULL,
        sender_name TEXT,
        agent_group_id TEXT,
        count INTEGER NOT NULL,
        first_at INTEGER NOT NULL,
        last_at INTEGER NOT NULL,
        PRIMARY KEY (channel_type, instance, platform_id, sender, reason)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX drops_by_time ON drops (last_at)",
    """CREATE TABLE inbound (
        ord INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        event_id TEXT,
        wiring_id TEXT,
        session_id TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN
            ('queued', 'claimed', 'retrying', 'parked', 'context', 'completed', 'failed', 'dropped', 'refused')),
        attempts INTEGER NOT NULL DEFAULT 0,
        next_try_at INTEGER,
        reason TEXT,
        preview TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL
    ) STRICT""",
    "CREATE INDEX inbound_by_session ON inbound (session_id, ord)",
    "CREATE INDEX inbound_by_state ON inbound (state, ord)",
    """CREATE INDEX inbound_open ON inbound (session_id, ord)
        WHERE state IN ('queued', 'claimed', 'retrying', 'parked', 'context')""",
    """CREATE INDEX inbound_active_by_wiring ON inbound (wiring_id)
        WHERE state IN ('queued', 'claimed', 'retrying', 'parked')""",
    "CREATE INDEX inbound_due ON inbound (next_try_at) WHERE next_try_at IS NOT NULL",
    # ord: commit order over all sessions.  head_at: the next try's moment, only while the part is the oldest
    # unfinished one of its destination and nobody is sending it; so what is due can be asked without a look at queues.
    """CREATE TABLE deliveries (
        ord INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        session_id TEXT NOT NULL,
        out_seq INTEGER NOT NULL,
        out_id TEXT NOT NULL,
        part INTEGER NOT NULL CHECK (part >= 1),
        parts INTEGER NOT NULL,
        kind TEXT NOT NULL,
        destination TEXT NOT NULL,
        content TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN
            ('pending', 'sending', 'retrying', 'waiting', 'accepted', 'sent', 'failed', 'dropped', 'blocked')),
        attempts INTEGER NOT NULL,
        next_try_at INTEGER NOT NULL,
        first_try_at INTEGER,
        platform_ids TEXT NOT NULL,
        reason TEXT,
        last_error TEXT,
        maybe_duplicate INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        head_at INTEGER,
        UNIQUE (session_id, out_seq, part)
    ) STRICT""",
    """CREATE INDEX deliveries_open ON deliveries (destination, ord)
        WHERE state IN ('pending', 'sending', 'retrying', 'waiting')""",
    "CREATE INDEX deliveries_by_state ON deliveries (state, ord)",
    "CREATE INDEX deliveries_heads ON deliveries (head_at) WHERE head_at IS NOT NULL",
    "CREATE INDEX deliveries_retries ON deliveries (head_at) WHERE head_at IS NOT NULL AND state = 'retrying'",
    """CREATE TABLE sent_messages (
        channel_type TEXT NOT NULL,
        instance TEXT NOT NULL,
        message_id TEXT NOT NULL,
        chat TEXT NOT NULL,
        delivery_ord INTEGER NOT NULL REFERENCES deliveries (ord) ON DELETE CASCADE,
        PRIMARY KEY (channel_type, instance, message_id, chat, delivery_ord)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX sent_messages_by_delivery ON sent_messages (delivery_ord)",
    """CREATE TABLE questions (
        id TEXT PRIMARY KEY,
        session_id TEXT NOT NULL,
        out_seq INTEGER NOT NULL,
        address TEXT NOT NULL,
        prompt TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('open', 'decided', 'expired')),
        value TEXT,
        decided_by TEXT,
        created_at INTEGER NOT NULL,
        expires_at INTEGER,
        decided_at INTEGER
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX questions_by_session ON questions (session_id, created_at)",
    "CREATE INDEX questions_due ON questions (expires_at) WHERE state = 'open' AND expires_at IS NOT NULL",
    """CREATE TABLE notes (
        key TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) STRICT, WITHOUT ROWID""",
)

STATEMENTS = _ENTITIES + _SESSIONS + _LEDGER
