"""Jackfield's runtime for Apple's `container` command: one light virtual machine for each session."""
