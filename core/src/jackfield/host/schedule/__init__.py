"""Work that an agent does at a time of its own: series, their occurrences, and what becomes of each run."""
