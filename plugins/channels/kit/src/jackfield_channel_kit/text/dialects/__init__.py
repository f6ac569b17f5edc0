"""One class a dialect, each over markdown-it's tokens."""
