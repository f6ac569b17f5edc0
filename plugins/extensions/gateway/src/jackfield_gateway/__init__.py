"""Jackfield's model gateway: keys stay in the host, and what models cost is metered and bounded."""
