"""Jackfield's provider for the opencode engine, by `opencode serve`."""
