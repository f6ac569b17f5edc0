"""What runs between the host and a runner: take a plan, confine this process by it, become the runner.

Started as ``python -I -S -c ...`` for every runner, so it has 20 ms: it imports nothing outside this package but a few
light modules of the standard library, not even `json` (17 ms without `site`) or `typing`.
"""
