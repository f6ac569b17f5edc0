"""Jackfield's Telegram channel; its door is `plugin`."""
