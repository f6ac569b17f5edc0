"""The kit for plugin authors: fixtures, recorders and one contract suite for each kind of plugin.

Load it explicitly: install `jackfield[testing]` and run `pytest -p jackfield.testing.pytest`.  `distributions` and
`clock` need no pytest; `contracts` and `pytest` do, and nothing is imported before it is asked for (marketplace.md 5.2).
"""
