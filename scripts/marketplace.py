"""Writes `marketplace.json`: the index of every plugin that this repository ships, from its manifests and projects.

    python scripts/marketplace.py            write it
    python scripts/marketplace.py --check    say whether it is up to date

It is an index of schema `jackfield.marketplace/1` over `path` sources, for whoever adds this checkout as a marketplace.
What only a published, signed index has (`generated`, `expires`, `previous`, `published`, hashes of wheels) is null or
empty here: the content is whatever the checkout holds.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from jackfield.plugins.manifest import FILE_NAME, Manifest, read
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "marketplace.json"
PUBLISHER = "jackfield-team"


def projects() -> list[Path]:
    """The folders of all shipped plugin distributions; a library among them, without a manifest, is no plugin."""
    found = sorted(path.parent for path in ROOT.glob("plugins/*/*/pyproject.toml"))
    return [project for project in found if any(project.glob(f"src/*/{FILE_NAME}"))]


def manifest_of(project: Path) -> Manifest:
    """The one manifest of a project."""
    (path,) = project.glob(f"src/*/{FILE_NAME}")
    return read(path)


def provided(described: dict[str, Any]) -> list[dict[str, str]]:
    return [
        {"group": group, "name": name, "value": value}
        for group, points in sorted(described.get("entry-points", {}).items())
        if group.startswith("jackfield.")
        for name, value in sorted(points.items())
    ]


def entry(project: Path) -> dict[str, Any]:
    """One plugin of the index."""
    described = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    manifest = manifest_of(project)
    needed = [Requirement(one) for one in described.get("dependencies", ())]
    core = next(one for one in needed if one.name == "jackfield")
    provides = provided(described)
    return {
        "name": provides[0]["name"] if provides else described["name"],
        "kind": str(manifest.kinds[0]),
        "form": "wheel",
        "title": manifest.title,
        "summary": described["description"],
        "description": manifest.description,
        "publisher": PUBLISHER,
        "license": described["license"],
        "keywords": described.get("keywords", []),
        "docs": manifest.docs or None,
        "status": "active",
        "releases": [
            {
                "version": described["version"],
                "published": None,
                "source": {"type": "path", "path": project.relative_to(ROOT).as_posix(), "package": described["name"]},
                "wheels": [],
                "requires": {
                    "core": ",".join(sorted(str(core.specifier).split(","), reverse=True)),
                    "hook_api": manifest.api,
                    "python": described["requires-python"],
                    "plugins": {},
                    "bins": [],
                },
                "provides": provides,
                "permissions": list(manifest.permissions),
                "runs_code": True,
                "native": False,
                "yanked": None,
            }
        ],
    }


def build() -> str:
    """The whole file's text."""
    index = {
        "schema": "jackfield.marketplace/1",
        "type": "index",
        "name": "jackfield",
        "display": "What Jackfield itself ships",
        "version": 1,
        "generated": None,
        "expires": None,
        "previous": None,
        "critical": [],
        "publishers": [{"name": PUBLISHER, "display": "The Jackfield authors", "verified": []}],
        "plugins": [entry(project) for project in projects()],
        "blocked": [],
    }
    return json.dumps(index, indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    text = build()
    if "--check" in arguments:
        if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
            return 0
        print("marketplace.json is out of date: run python scripts/marketplace.py", file=sys.stderr)
        return 1
    TARGET.write_text(text, encoding="utf-8")
    print(f"wrote {TARGET.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
