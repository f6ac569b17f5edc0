"""Jackfield's Docker runtime: one hardened container for each session."""
