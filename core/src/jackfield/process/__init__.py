"""The built-in `process` runtime: each runner is a process of this machine, confined as well as the machine allows.

Its rooms: `runtime` (the contract of `jackfield.api.runtimes`), `handle` (one live runner), `view` and `environment`
(what a runner may see), `accounts` and `ownership` (as whom it runs), `probe` (what all that is worth here), `spawn`
and `nursery` (how its process comes to be), and `launch`, a package of its own that runs between the host and the
runner and imports the standard library only.

This module imports nothing, because `launch` is imported through it.
"""
