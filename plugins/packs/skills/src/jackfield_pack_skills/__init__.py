"""Skills for Jackfield's agents: how to work in a session's sandbox."""
