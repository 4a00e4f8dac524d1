"""What stands ready for a release: addresses, recipe, workflow."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from support.paths import ROOT
from support.scripts import script

PACKAGING = ROOT / "packaging"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# Where conda-forge has another name than PyPI.
CONDA = {
    "torch": "pytorch",
    "xxhash": "python-xxhash",
    "docstring-parser": "docstring_parser",
    "matplotlib": "matplotlib-base",
}


def conda(requirements: list[str]) -> set[str]:
    parsed = [Requirement(line) for line in requirements if not line.startswith("fedskew")]
    return {f"{CONDA.get(r.name, r.name)} {r.specifier}" for r in parsed}


def test_the_recipe_asks_for_what_the_project_asks_for() -> None:
    recipe = yaml.safe_load((PACKAGING / "recipe.yaml").read_text(encoding="utf-8"))
    project = PROJECT["project"]
    run = set(recipe["requirements"]["run"])
    assert run == {f"python {project['requires-python']}"} | conda(project["dependencies"])
    extras = project["optional-dependencies"]
    assert set(recipe["requirements"]["run_constraints"]) == conda(
        [*extras["plot"], *extras["report"], *extras["study"]]
    )
    assert set(PROJECT["build-system"]["requires"]) <= {
        line.replace(" ", "") for line in recipe["requirements"]["host"]
    }
    (entry,) = recipe["build"]["python"]["entry_points"]
    assert dict([entry.split(" = ")]) == project["scripts"]


@pytest.mark.parametrize(
    ("repository", "documentation", "page"),
    [
        ("https://forge.test/team/fedskew/", "", "https://forge.test/team/fedskew/tree/main/docs"),
        ("https://forge.test/team/fedskew", "https://docs.test", "https://docs.test"),
        ("", "", None),
    ],
)
def test_every_address_follows_from_one_variable(repository: str, documentation: str, page: str | None) -> None:
    config = {"repository": repository, "documentation": documentation}
    metadata: dict[str, Any] = {}
    script("packaging/metadata.py").Urls(str(ROOT), config).update(metadata)
    assert metadata["urls"].get("Documentation") == page
    assert all(
        url.startswith(("https://forge.test/team/fedskew", "https://docs.test")) for url in metadata["urls"].values()
    )
    assert bool(metadata["urls"]) == bool(repository)


def test_a_release_needs_one_version_everywhere(tmp_path: Path) -> None:
    files = ["src/fedskew/__init__.py", "CITATION.cff", "packaging/recipe.yaml", "CHANGELOG.md", "pyproject.toml"]
    files += ["papers/pyproject.toml"]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)

    def change(file: str, pattern: str, new: str) -> None:
        text, count = re.subn(pattern, new, (tmp_path / file).read_text(encoding="utf-8"), count=1, flags=re.MULTILINE)
        assert count == 1, f"{file} has no {pattern}"
        (tmp_path / file).write_text(text, encoding="utf-8")

    problems = script("scripts/release.py").problems
    (version,) = re.findall(r'__version__ = "(.+)"', (tmp_path / files[0]).read_text(encoding="utf-8"))
    change("CHANGELOG.md", rf"^## \[{version}\] - .*$", f"## [{version}] - 2026-12-01")
    change("pyproject.toml", r'^repository = ".*"', 'repository = "https://forge.test/team/fedskew"')
    assert problems(f"v{version}", tmp_path) == []
    for file in ("CITATION.cff", "packaging/recipe.yaml"):
        change(
            file, rf'version: "?{re.escape(version)}"?', 'version: "9.9"' if file.endswith("yaml") else "version: 9.9"
        )
    change("CHANGELOG.md", r"2026-12-01", "unreleased")
    change("pyproject.toml", r'^repository = ".*"', 'repository = ""')
    assert [line.split(" ")[0] for line in problems("v8", tmp_path)].count("src/fedskew/__init__.py") == 3
    assert len(problems("v8", tmp_path)) == 5


def test_the_workflow_publishes_without_a_token() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    publish = workflow["jobs"]["publish"]
    assert publish["permissions"]["id-token"] == "write" and publish["permissions"]["attestations"] == "write"
    assert publish["if"] == "github.ref_type == 'tag'" and publish["needs"] == "test"
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    tested = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    named = [c.rpartition(" ")[2] for c in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert tested == named
