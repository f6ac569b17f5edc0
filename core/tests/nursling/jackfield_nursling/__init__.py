"""A runner for tests of the process runtime: it runs the script that its environment holds."""
