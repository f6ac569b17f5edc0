"""The host: the one process that owns channels and state.

Read it along the message path: `intake` accepts, `router` finds the sessions, `inbox` writes to them, `supervisor`
gives them runners, `collect` takes over what those committed, `delivery` sends it.  `live` joins these, `application`
owns their life; `services` are the operations of the control socket.  Whatever is decided is decided by a pure module:
`access`, `commands`, `engage`, `pacing`, `parts`, `retry`, `session_keys`, `stuck`.  It never imports the runner.
"""
