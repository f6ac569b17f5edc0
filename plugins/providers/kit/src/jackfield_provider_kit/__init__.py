"""What Jackfield's providers share: the loop of plain model APIs, and engines as child processes."""
