"""The tools with which an agent schedules work: once, or again and again."""
