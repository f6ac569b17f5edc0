"""Jackfield's light provider for Anthropic's Messages API: no engine process."""
