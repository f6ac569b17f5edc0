"""Jackfield's provider for the Claude engine, by claude-agent-sdk."""
