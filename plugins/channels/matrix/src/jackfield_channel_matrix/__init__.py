"""Jackfield's Matrix channel."""
