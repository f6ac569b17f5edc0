"""What runs between the host and a runner: take a plan, confine this process by it, become the runner.

`main` is started as ``python -I -S -c ...`` for one process, so it has 20 ms: it imports nothing outside this package
but a few light modules of the standard library, not even `json` (17 ms without `site`) or `typing`.  `nursery` is
started once and forks runners.  Both take the same `steps`.
"""
