"""The agent's side of a session: one process that takes messages from the mailbox and lets a provider answer them.

Started as `python -m jackfield.runner <session folder>`.  This module imports nothing, so that the first heartbeat (and
the stdio shim) come as early as they can (architecture, section 3).
"""
