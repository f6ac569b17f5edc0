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
import importlib
import os
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Self

__all__ = ["Site", "install_project", "make_distribution", "manifest_text", "settle"]


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


def manifest_text(kind: str, *, title: str = "A test plugin", api: str = ">=1.0,<2", more: str = "") -> str:
    """A `jackfield-plugin.toml` with what every manifest has; `more` is appended."""
    return f'title = "{title}"\nkinds = ["{kind}"]\napi = "{api}"\n{more}'


def settle(folder: Path) -> None:
    """Make the folder look unchanged for a while, so that discovery keeps what it reads of it."""
    moment = os.stat(folder).st_mtime_ns - 60_000_000_000  # noqa: PTH116
    os.utime(folder, ns=(moment, moment))


class Site:
    """A throw-away site-packages folder on `sys.path`, and a home beside it.

        with Site(tmp_path) as site:
            site.install(project)
            registry = PluginRegistry(state_file=site.state_file)

    On leaving, the path is as before and what was imported from the folder is forgotten.  The user's cache folder is
    moved below `root` meanwhile.
    """

    def __init__(self, root: Path) -> None:
        self.packages = root / "site-packages"
        self.home = root / "home"
        self.cache = root / "cache"
        self._cache_before: str | None = None

    @property
    def state_file(self) -> Path:
        """For a `PluginRegistry`."""
        return self.home / "plugins" / "broken.json"

    def install(self, project: Path) -> Path:
        """Install a project folder; its metadata folder."""
        return install_project(self.packages, project)

    def add(
        self,
        name: str,
        version: str = "1.0",
        *,
        entry_points: Mapping[str, Mapping[str, str]],
        files: Mapping[str, str] = {},
    ) -> Path:
        """Install what is given; its metadata folder."""
        info = make_distribution(self.packages, name, version, entry_points=entry_points, files=files)
        importlib.invalidate_caches()
        return info

    def __enter__(self) -> Self:
        self.packages.mkdir(parents=True)
        self.home.mkdir(parents=True)
        (self.home / "jackfield.toml").touch()
        self._cache_before = os.environ.get("XDG_CACHE_HOME")
        os.environ["XDG_CACHE_HOME"] = str(self.cache)
        sys.path.append(str(self.packages))
        importlib.invalidate_caches()
        return self

    def __exit__(self, *exc_info: object) -> None:
        sys.path.remove(str(self.packages))
        if self._cache_before is None:
            os.environ.pop("XDG_CACHE_HOME", None)
        else:
            os.environ["XDG_CACHE_HOME"] = self._cache_before
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(str(self.packages)):
                del sys.modules[name]


def _write(folder: Path, path: str, text: str, record: list[str]) -> None:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    target.write_bytes(data)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    record.append(f"{path},sha256={digest},{len(data)}")
