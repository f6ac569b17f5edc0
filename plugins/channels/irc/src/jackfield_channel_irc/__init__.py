"""Jackfield's IRC channel."""
