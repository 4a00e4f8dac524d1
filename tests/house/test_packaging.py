"""What stands ready for a release: addresses, recipe, container, and the wheel installed by uv."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from support.paths import ROOT

PACKAGING = ROOT / "packaging"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# Where conda-forge has another name than PyPI.
CONDA = {
    "torch": "pytorch",
    "xxhash": "python-xxhash",
    "docstring-parser": "docstring_parser",
    "matplotlib": "matplotlib-base",
}


def module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


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
    module(PACKAGING / "metadata.py").Urls(str(ROOT), config).update(metadata)
    assert metadata["urls"].get("Documentation") == page
    assert all(
        url.startswith(("https://forge.test/team/fedskew", "https://docs.test")) for url in metadata["urls"].values()
    )
    assert bool(metadata["urls"]) == bool(repository)


def test_a_release_needs_one_version_everywhere(tmp_path: Path) -> None:
    files = ["src/fedskew/__init__.py", "CITATION.cff", "packaging/recipe.yaml", "CHANGELOG.md", "pyproject.toml"]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)

    def change(file: str, pattern: str, new: str) -> None:
        text, count = re.subn(pattern, new, (tmp_path / file).read_text(encoding="utf-8"), count=1, flags=re.MULTILINE)
        assert count == 1, f"{file} has no {pattern}"
        (tmp_path / file).write_text(text, encoding="utf-8")

    problems = module(ROOT / "scripts/release.py").problems
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


def run(command: str, folder: Path, **variables: str) -> str:
    """A line of a shell in an environment that has nothing of the tests' own."""
    keep = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HTTP", "UV_"))}
    clean = {**keep, "PATH": os.environ["PATH"], "HOME": str(folder), "XDG_CONFIG_DIRS": "/etc/xdg", **variables}
    done = subprocess.run(["sh", "-c", command], cwd=folder, env=clean, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(f"{sys.executable} -m build --wheel --no-isolation --outdir {folder} {ROOT}", folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.mark.network
def test_each_line_of_the_container_runs_in_a_clean_environment(tmp_path: Path, wheel: Path) -> None:
    """What can be shown without a container engine: each RUN in order, its folders moved below a temporary one."""
    lines = [
        line
        for line in (PACKAGING / "Containerfile").read_text(encoding="utf-8").splitlines()
        if line[:1] not in ("#", "")
    ]
    arguments = dict(line.split(" ", 1)[1].split("=", 1) for line in lines if line.startswith("ARG "))
    arguments["TORCH_INDEX"] = os.environ.get("FEDSKEW_TORCH_INDEX", arguments["TORCH_INDEX"])
    for folder in ("tmp", "opt"):
        (tmp_path / folder).mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys._base_executable)  # type: ignore[attr-defined]
    (copied,) = [line.split()[1:] for line in lines if line.startswith("COPY ")]
    assert copied == ["constraints.txt", "dist/*.whl", "/tmp/fedskew/"]
    (tmp_path / "tmp/fedskew").mkdir()
    for file in (ROOT / "constraints.txt", wheel):
        shutil.copy(file, tmp_path / "tmp/fedskew")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    for line in (line.removeprefix("RUN ") for line in lines if line.startswith("RUN ")):
        moved = re.sub(r"(?<![\w.])/(tmp|opt)/fedskew", rf"{tmp_path}/\1/fedskew", line)
        run(moved, tmp_path, **arguments, PATH=path)
    (entry,) = [line.split("[")[1].strip('"]') for line in lines if line.startswith("ENTRYPOINT")]
    assert "Usage: fedskew" in run(f"{tmp_path}/opt/fedskew/bin/{entry} --help", tmp_path)


@pytest.mark.network
def test_uv_installs_the_wheel(tmp_path: Path, wheel: Path) -> None:
    if not (uv := shutil.which("uv")):
        pytest.skip("uv is not installed: pip install uv")
    places = os.environ.get("PIP_FIND_LINKS", "")
    find = f"--find-links {places}" if places else "--torch-backend cpu"
    run(f"{uv} venv -q -p {sys._base_executable} env", tmp_path)  # type: ignore[attr-defined]
    run(f"VIRTUAL_ENV=env {uv} pip install -q {find} -c {ROOT}/constraints.txt '{wheel}[report]'", tmp_path)
    assert "accuracy" in run("env/bin/fedskew run fedavg --data digits --rounds 2", tmp_path)
    assert "fedskew" in run("env/bin/fedskew cite fedskew", tmp_path)
