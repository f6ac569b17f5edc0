"""The terminal as a channel: people on the host's own machine talk to their agents from a shell."""
