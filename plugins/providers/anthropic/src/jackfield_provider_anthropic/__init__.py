"""Jackfield's light provider for Anthropic's Messages API: no engine process."""

__version__ = "0.1.0"
