"""Install what tests talk to, below .engines/ and nowhere else: `python scripts/engines.py [NAME...]`.

What can't be had on a machine is said in one line and its tests skip with that reason; only `--strict` fails.  Nothing
here needs root: Debian packages are unpacked, not installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(os.environ.get("JACKFIELD_ENGINES", ROOT / ".engines"))
SECONDS = 600.0


class Unavailable(Exception):
    """This machine can't have it; the message says why."""


def run(*command: str, cwd: Path | None = None) -> None:
    """Run an installer quietly.

    Raises:
        Unavailable: it failed; with its last line.
    """
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise Unavailable(f"{command[0]}: {problem}") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[-1]
        raise Unavailable(f"{' '.join(command[:3])} ...: {said}")


def python(module: str, *requirements: str) -> Callable[[Path], None]:
    """Python packages in an environment of their own: their pins must not meet ours.  `module` proves them."""

    def install(target: Path) -> None:
        run(sys.executable, "-m", "venv", "--without-pip", str(target))
        program = str(target / "bin" / "python")
        uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
        if uv is None:
            raise Unavailable("uv is missing; run make setup first")
        run(uv, "pip", "install", "--quiet", "--only-binary", ":all:", "--compile-bytecode", "--python", program,
            *requirements)  # fmt: skip
        run(program, "-c", f"import {module}")

    return install


def debian(program: str, *packages: str) -> Callable[[Path], None]:
    """A server from Debian packages, unpacked; `bin/<program>` starts it with the libraries that came along."""

    def install(target: Path) -> None:
        for tool in ("apt-get", "dpkg"):
            if shutil.which(tool) is None:
                raise Unavailable(f"no {tool} here, and no {program} on PATH")
        with tempfile.TemporaryDirectory() as folder:
            try:
                run("apt-get", "download", *packages, cwd=Path(folder))
            except Unavailable:
                run("apt-get", "update", "-qq")  # a fresh machine has no lists, and only root may fetch them
                run("apt-get", "download", *packages, cwd=Path(folder))
            for package in sorted(Path(folder).glob("*.deb")):
                run("dpkg", "-x", str(package), str(target / "root"))
        found = next((target / "root").glob(f"usr/sbin/{program}"), None) or target / "root/usr/bin" / program
        libraries = sorted((target / "root/usr/lib").glob("*-linux-gnu*"))
        start = target / "bin" / program
        start.parent.mkdir(parents=True)
        path = ":".join(map(str, libraries))
        start.write_text(f'#!/bin/sh\nexport LD_LIBRARY_PATH="{path}"\nexec "{found}" "$@"\n', encoding="utf-8")
        start.chmod(0o755)
        run(str(start), "--version")

    return install


ENGINES: dict[str, Callable[[Path], None]] = {
    "synapse": python("synapse.app.homeserver", "matrix-synapse==1.163.2"),
    "ngircd": debian("ngircd", "ngircd", "libident"),
    "inspircd": debian("inspircd", "inspircd", "libtre5", "libargon2-1", "libhttp-parser2.9", "libre2-9"),
    "telegram-clients": python("aiogram, telegram.ext", "aiogram==3.31.0", "python-telegram-bot==22.8"),
}


def ensure(name: str) -> str | None:
    """Have an engine below `.engines/`; why not, or None."""
    target = FOLDER / name
    if (target / ".ready").exists() or (name != "synapse" and shutil.which(name)):
        return None
    print(f"engines: installing {name}", flush=True)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    try:
        ENGINES[name](target)
    except Unavailable as problem:
        shutil.rmtree(target, ignore_errors=True)
        return str(problem)
    (target / ".ready").touch()
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ENGINES)}; all without one")
    parser.add_argument("--strict", action="store_true", help="fail when one can't be had")
    options = parser.parse_args()
    if unknown := set(options.names) - set(ENGINES):
        parser.error(f"there is no {', '.join(sorted(unknown))}; {', '.join(ENGINES)}")
    missing = {name: why for name in options.names or ENGINES if (why := ensure(name)) is not None}
    for name, why in missing.items():
        print(f"engines: no {name} on this machine: {why}", file=sys.stderr)
    return 1 if missing and options.strict else 0


if __name__ == "__main__":
    sys.exit(main())
