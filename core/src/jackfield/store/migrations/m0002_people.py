"""People and time: approvals, direct chats, denials, claims, schedules, chains of agent messages, secrets, activity.

Moments are milliseconds since the epoch.  What is asked while messages flow, and what the timer asks, has an index of
its own; those are partial, so that they stay small however long the history gets.
"""

from __future__ import annotations

__all__ = ["STATEMENTS"]

_LEDGER = (
    # turn: the one that took the message last, by which the host knows who caused what the turn does.
    "ALTER TABLE inbound ADD COLUMN turn TEXT",
    # hops, chain: how many agents handed the message on, and the first message that this one follows from.
    "ALTER TABLE inbound ADD COLUMN hops INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE inbound ADD COLUMN chain TEXT",
    # Ignored messages whose words are kept, since somebody is asked about their sender.
    "CREATE INDEX events_kept ON events (ord) WHERE state = 'ignored' AND body <> ''",
    # source: the session of the agent that wrote the message; NULL for what no agent wrote.
    "ALTER TABLE inbound ADD COLUMN source TEXT",
    "CREATE INDEX inbound_of_agents ON inbound (created_at) WHERE source IS NOT NULL",
    """CREATE INDEX inbound_unanswered ON inbound (updated_at)
        WHERE source IS NOT NULL AND state IN ('failed', 'dropped')""",
    # created_by: the agent group whose agent made this one.
    "ALTER TABLE agent_groups ADD COLUMN created_by TEXT",
    # turn: the one that asked, by which the host knows whether anybody waits for the answer still (C157).
    "ALTER TABLE questions ADD COLUMN turn TEXT",
    """CREATE TABLE chains (
        id TEXT PRIMARY KEY,
        messages INTEGER NOT NULL,
        first_at INTEGER NOT NULL,
        last_at INTEGER NOT NULL,
        stopped TEXT
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX chains_by_time ON chains (last_at)",
    """CREATE TABLE activity (
        ord INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL,
        agent_group_id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        kind TEXT NOT NULL,
        target TEXT NOT NULL,
        summary TEXT NOT NULL,
        at INTEGER NOT NULL,
        UNIQUE (session_id, seq, at)
    ) STRICT""",
    "CREATE INDEX activity_by_group ON activity (agent_group_id, ord)",
    "CREATE INDEX activity_by_time ON activity (at)",
)

_PEOPLE = (
    "ALTER TABLE users ADD COLUMN timezone TEXT",
    # Other names that a channel reported for a person: for finding them, never for permission (C141).
    """CREATE TABLE user_aliases (
        channel_type TEXT NOT NULL,
        alias TEXT NOT NULL,
        user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
        seen_at INTEGER NOT NULL,
        PRIMARY KEY (channel_type, alias, user_id)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE user_dms (
        user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
        channel_type TEXT NOT NULL,
        instance TEXT NOT NULL,
        messaging_group_id TEXT NOT NULL REFERENCES messaging_groups (id) ON DELETE CASCADE,
        resolved_at INTEGER NOT NULL,
        PRIMARY KEY (user_id, channel_type, instance)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE denials (
        messaging_group_id TEXT NOT NULL REFERENCES messaging_groups (id) ON DELETE CASCADE,
        user_id TEXT NOT NULL,
        denied_by TEXT,
        denied_at INTEGER NOT NULL,
        until INTEGER NOT NULL,
        PRIMARY KEY (messaging_group_id, user_id)
    ) STRICT, WITHOUT ROWID""",
    "ALTER TABLE messaging_groups ADD COLUMN denied_by TEXT",
    """CREATE TABLE claims (
        digest TEXT PRIMARY KEY,
        created_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        used_by TEXT,
        used_at INTEGER
    ) STRICT, WITHOUT ROWID""",
)

_APPROVALS = (
    # dedupe_key: what makes a second request the same one; only one of a key may be pending.
    # choices, fields, payload, files: JSON.  outcome: what became of the deed, NULL until one was chosen that does it.
    """CREATE TABLE approvals (
        id TEXT PRIMARY KEY,
        kind TEXT NOT NULL,
        dedupe_key TEXT NOT NULL,
        agent_group_id TEXT,
        session_id TEXT,
        request_id TEXT,
        origin TEXT,
        title TEXT NOT NULL,
        reason TEXT NOT NULL,
        fields TEXT NOT NULL,
        payload TEXT NOT NULL,
        files TEXT NOT NULL,
        digest TEXT NOT NULL,
        choices TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'rejected', 'expired', 'cancelled')),
        value TEXT,
        decided_by TEXT,
        via TEXT CHECK (via IN ('card', 'reply', 'cli', 'policy')),
        note TEXT,
        outcome TEXT CHECK (outcome IN ('running', 'done', 'failed', 'interrupted')),
        outcome_text TEXT,
        created_at INTEGER NOT NULL,
        remind_at INTEGER,
        expires_at INTEGER NOT NULL,
        decided_at INTEGER,
        finished_at INTEGER
    ) STRICT, WITHOUT ROWID""",
    "CREATE UNIQUE INDEX approvals_once ON approvals (kind, dedupe_key) WHERE state = 'pending'",
    "CREATE UNIQUE INDEX approvals_by_request ON approvals (session_id, request_id) WHERE request_id IS NOT NULL",
    "CREATE INDEX approvals_due ON approvals (expires_at) WHERE state = 'pending'",
    "CREATE INDEX approvals_reminders ON approvals (remind_at) WHERE state = 'pending' AND remind_at IS NOT NULL",
    "CREATE INDEX approvals_unfinished ON approvals (decided_at) WHERE state <> 'pending' AND finished_at IS NULL",
    "CREATE INDEX approvals_decided ON approvals (decided_at) WHERE state <> 'pending'",
    # What was shown to whom, and where; shown_as is the state that the card shows, so that a stale one can be mended.
    """CREATE TABLE approval_cards (
        approval_id TEXT NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
        address TEXT NOT NULL,
        user_id TEXT NOT NULL,
        ref TEXT,
        shown_as TEXT,
        created_at INTEGER NOT NULL,
        sent_at INTEGER,
        PRIMARY KEY (approval_id, address)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX approval_cards_by_chat ON approval_cards (address)",
)

_SCHEDULE = (
    # A series.  session_key, session_mode, messaging_group_id, thread_id: the conversation it runs in, made again if
    # it was closed; origin: where its answers go; creator: '<agent group> <session key>' of who scheduled it, NULL for
    # an operator.  next_at: the next occurrence, kept while paused; look_at: when the timer looks at the series, NULL
    # while it is not active or has a run that has not ended; held: it is due, and put off because its session has many
    # runs already.  unsaid: what people have not been told yet.
    """CREATE TABLE tasks (
        id TEXT PRIMARY KEY,
        agent_group_id TEXT NOT NULL REFERENCES agent_groups (id) ON DELETE CASCADE,
        messaging_group_id TEXT REFERENCES messaging_groups (id) ON DELETE SET NULL,
        thread_id TEXT,
        session_key TEXT NOT NULL,
        session_mode TEXT NOT NULL,
        origin TEXT,
        creator TEXT,
        created_by TEXT,
        prompt TEXT NOT NULL,
        script TEXT,
        cron TEXT,
        timezone TEXT NOT NULL,
        catch_up TEXT NOT NULL CHECK (catch_up IN ('latest', 'all', 'skip')),
        state TEXT NOT NULL CHECK (state IN ('active', 'paused', 'done', 'cancelled', 'stopped')),
        reason TEXT,
        next_at INTEGER,
        look_at INTEGER,
        held INTEGER NOT NULL DEFAULT 0,
        failures INTEGER NOT NULL DEFAULT 0,
        script_failures INTEGER NOT NULL DEFAULT 0,
        stop_after INTEGER,
        unsaid TEXT,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        CHECK (look_at IS NULL OR (state = 'active' AND next_at IS NOT NULL))
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX tasks_due ON tasks (look_at, session_key) WHERE look_at IS NOT NULL",
    "CREATE INDEX tasks_by_session ON tasks (agent_group_id, session_key)",
    "CREATE INDEX tasks_held ON tasks (agent_group_id, session_key, next_at) WHERE held = 1",
    "CREATE INDEX tasks_by_creator ON tasks (creator) WHERE creator IS NOT NULL",
    "CREATE INDEX tasks_by_state ON tasks (state)",
    "CREATE INDEX tasks_by_time ON tasks (created_at)",
    "CREATE INDEX tasks_ended ON tasks (updated_at) WHERE state IN ('done', 'cancelled')",
    "CREATE INDEX tasks_unsaid ON tasks (id) WHERE unsaid IS NOT NULL",
    # missed_from: the first of the occurrences that were left out, for which this one stands.  The message of a run has
    # the run's id but for the prefix.  A thousand may fall due at once, so there are no more indexes than must be.
    """CREATE TABLE task_runs (
        id TEXT PRIMARY KEY,
        task_id TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
        due_at INTEGER NOT NULL,
        missed_from INTEGER,
        extra INTEGER NOT NULL DEFAULT 0,
        session_id TEXT,
        state TEXT NOT NULL CHECK (state IN
            ('claimed', 'queued', 'completed', 'failed', 'skipped', 'cancelled', 'unknown')),
        reason TEXT,
        created_at INTEGER NOT NULL,
        finished_at INTEGER,
        UNIQUE (task_id, due_at)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX task_runs_open ON task_runs (session_id, task_id) WHERE state IN ('claimed', 'queued')",
    "CREATE UNIQUE INDEX task_runs_one_open ON task_runs (task_id) WHERE state IN ('claimed', 'queued')",
    "CREATE INDEX task_runs_ended ON task_runs (finished_at) WHERE finished_at IS NOT NULL",
)

_SECRETS = (
    # sealed: nonce, ciphertext and tag; agent_group_id NULL is global.
    """CREATE TABLE secrets (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('generic', 'api-key', 'channel-token')),
        agent_group_id TEXT REFERENCES agent_groups (id) ON DELETE CASCADE,
        key_id TEXT NOT NULL,
        sealed BLOB NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID""",
    "CREATE UNIQUE INDEX secrets_once ON secrets (name, coalesce(agent_group_id, ''))",
    """CREATE TABLE secret_assignments (
        secret_id TEXT NOT NULL REFERENCES secrets (id) ON DELETE CASCADE,
        agent_group_id TEXT NOT NULL REFERENCES agent_groups (id) ON DELETE CASCADE,
        assigned_at INTEGER NOT NULL,
        PRIMARY KEY (secret_id, agent_group_id)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX secret_assignments_by_group ON secret_assignments (agent_group_id)",
)

STATEMENTS = _LEDGER + _PEOPLE + _APPROVALS + _SCHEDULE + _SECRETS
