"""`make bench B=startup`: what the quick commands cost over a bare interpreter, with fifty plugins installed.

`jackfield --version` and `jackfield plugin list --json` run as whole processes, with a warm cache and compiled modules
as an installation has them, each in turn with `python -c pass`.  Ends with the larger difference of the medians in
milliseconds; the target is at most 120.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jackfield.testing.distributions import make_distribution, manifest_text, settle

PLUGINS = 50
RUNS = int(os.environ.get("BENCH_RUNS", "25"))
START = "import sys; from jackfield.cli.main import main; sys.exit(main())"
"""What the installed `jackfield` script does."""
COMMANDS = {"jackfield --version": ["--version"], "jackfield plugin list --json": ["plugin", "list", "--json"]}


def install_dummies(packages: Path) -> None:
    """Fifty small plugins; importing any of them would be seen, since it ends the process."""
    for number in range(PLUGINS):
        module = f"jackfield_tools_dummy_{number}"
        make_distribution(
            packages,
            f"jackfield-tools-dummy-{number}",
            entry_points={"jackfield.tools": {f"dummy-{number}": f"{module}.plugin"}},
            files={
                f"{module}/__init__.py": "import os\nos._exit(99)\n",
                f"{module}/plugin.py": "",
                f"{module}/jackfield-plugin.toml": manifest_text(
                    "tools", title=f"Dummy {number}", more='description = "Does nothing."\n'
                ),
            },
        )
    settle(packages)


def environment(root: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {
        "PYTHONPATH": str(root / "site-packages"),
        "PYTHONPYCACHEPREFIX": str(root / "compiled"),
        "JACKFIELD_HOME": str(root / "home"),
        "XDG_CACHE_HOME": str(root / "cache"),
    }


def seconds(arguments: list[str], env: dict[str, str], folder: Path) -> float:
    began = time.perf_counter()
    ran = subprocess.run([sys.executable, *arguments], env=env, cwd=folder, stdout=subprocess.PIPE, check=True)
    took = time.perf_counter() - began
    if "list" in arguments and ran.stdout.count(b'"dummy-') != PLUGINS:
        raise SystemExit(f"the list does not hold {PLUGINS} dummies")
    return took


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "home").mkdir()
        (root / "home" / "jackfield.toml").touch()
        install_dummies(root / "site-packages")
        env = environment(root)
        every = {"python -c pass": ["-c", "pass"]} | {name: ["-c", START, *words] for name, words in COMMANDS.items()}
        for arguments in every.values():  # compiles, and fills the cache
            seconds(arguments, env, root)
        took: dict[str, list[float]] = {name: [] for name in every}
        for _ in range(RUNS):
            for name, arguments in every.items():
                took[name].append(seconds(arguments, env, root))
    medians = {name: statistics.median(values) * 1000 for name, values in took.items()}
    bare = medians.pop("python -c pass")
    print(f"{PLUGINS} plugins installed, {RUNS} runs; python -c pass: median {bare:.1f} ms")
    for name, median in medians.items():
        fastest = (min(took[name]) - min(took["python -c pass"])) * 1000
        print(f"{name}: median {median:.1f} ms, {median - bare:.1f} ms over it (fastest runs: {fastest:.1f} ms)")
    print(f"over a bare interpreter, ms (target at most 120): {max(medians.values()) - bare:.1f}")


if __name__ == "__main__":
    main()
