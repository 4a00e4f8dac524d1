"""Say whether a tag can be released: version, changelog, citation, recipe and addresses agree.

    python scripts/release.py v0.1.0

It needs no package: the release workflow calls it before it installs anything.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def problems(tag: str, root: Path = ROOT) -> list[str]:
    """What stands in the way of a release of this tag, a line each."""

    def match(file: str, pattern: str) -> str:
        line = re.search(pattern, (root / file).read_text(encoding="utf-8"), re.MULTILINE)
        return line[1] if line else ""

    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    version = match("src/fedskew/__init__.py", r'^__version__ = "(.+)"$')
    stated = {
        "CITATION.cff": match("CITATION.cff", r"^version: (.+)$"),
        "packaging/recipe.yaml": match("packaging/recipe.yaml", r'^  version: "(.+)"$'),
        "papers/pyproject.toml": match("papers/pyproject.toml", r'^version = "(.+)"$'),
        "the tag": tag.removeprefix("v"),
    }
    lines = [
        f"src/fedskew/__init__.py has version {version}, {name} {value}"
        for name, value in stated.items()
        if value != version
    ]
    if not match("CHANGELOG.md", rf"^## \[{re.escape(version)}\] - (\d{{4}}-\d\d-\d\d)$"):
        lines.append(f"CHANGELOG.md has no section '## [{version}] - YEAR-MONTH-DAY'")
    if not project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]:
        lines.append("repository of [tool.hatch.metadata.hooks.custom] in pyproject.toml is empty")
    return lines


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/release.py TAG")
    for line in (lines := problems(sys.argv[1])):
        print(line)
    sys.exit(bool(lines))
