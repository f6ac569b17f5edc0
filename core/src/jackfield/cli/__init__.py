"""`jackfield ...`: thin commands over the host's operations (architecture 2 and 11)."""
