"""Makes installed distributions on the fly: metadata and modules in a folder that is then put on `sys.path`.

    make_distribution(
        folder, "jackfield-tools-weather", "1.0",
        entry_points={"jackfield.tools": {"weather": "weather.plugin"}},
        files={"weather/__init__.py": "", "weather/plugin.py": "...", "weather/jackfield-plugin.toml": "..."},
    )

What comes out is what an installer would have left, without building a wheel and without the network.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

__all__ = ["install_project", "make_distribution", "manifest_text", "settle"]


def make_distribution(
    folder: Path,
    name: str,
    version: str = "1.0",
    *,
    entry_points: Mapping[str, Mapping[str, str]],
    files: Mapping[str, str] = {},
) -> Path:
    """Write a distribution's files and its `.dist-info` into `folder`, and return the latter.

    Args:
        folder: a site-packages folder; made when it is not there.
        entry_points: group to name to value.
        files: path below `folder` to text.
    """
    folder.mkdir(parents=True, exist_ok=True)
    record: list[str] = []
    for path, text in files.items():
        _write(folder, path, text, record)
    info = f"{re.sub(r'[-_.]+', '_', name).lower()}-{version}.dist-info"
    points = "\n".join(
        f"[{group}]\n" + "".join(f"{point} = {value}\n" for point, value in named.items())
        for group, named in entry_points.items()
    )
    _write(folder, f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", record)
    _write(folder, f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n", record)
    _write(folder, f"{info}/INSTALLER", "jackfield.testing\n", record)
    _write(folder, f"{info}/entry_points.txt", points, record)
    record.append(f"{info}/RECORD,,")
    (folder / info / "RECORD").write_text("\n".join(record) + "\n", encoding="utf-8")
    return folder / info


def install_project(folder: Path, project: Path) -> Path:
    """The same for a project with `pyproject.toml` and `src/`: its modules are copied as they are, nothing is built."""
    described = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source = project / "src"
    files = {
        str(path.relative_to(source)): path.read_text(encoding="utf-8")
        for path in sorted(source.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    return make_distribution(
        folder,
        described["name"],
        described["version"],
        entry_points=described.get("entry-points", {}),
        files=files,
    )


def manifest_text(kind: str, *, title: str = "A test plugin", api: str = ">=0.1,<2", more: str = "") -> str:
    """A `jackfield-plugin.toml` with what every manifest has; `more` is appended."""
    return f'title = "{title}"\nkinds = ["{kind}"]\napi = "{api}"\n{more}'


def settle(folder: Path) -> None:
    """Make the folder look unchanged for a while, so that discovery keeps what it reads of it."""
    moment = os.stat(folder).st_mtime_ns - 60_000_000_000  # noqa: PTH116
    os.utime(folder, ns=(moment, moment))


def _write(folder: Path, path: str, text: str, record: list[str]) -> None:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    target.write_bytes(data)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    record.append(f"{path},sha256={digest},{len(data)}")
