"""Jackfield's provider for the Codex engine, by its app-server."""
