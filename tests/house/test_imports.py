"""Imports run one way: the contracts of import-linter in pyproject.toml hold, and each sees what breaks it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT

pytest.importorskip("importlinter", reason="import-linter is not installed: pip install -e '.[dev]'")

LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True, no_logo=True))"


def linted(folder: Path) -> subprocess.CompletedProcess[str]:
    """What import-linter says of the package in a copy of src, under the checkout's contracts."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    command = [sys.executable, "-c", LINT]
    environment = {"PYTHONPATH": os.pathsep.join([f"{folder}/src", f"{folder}/papers/src"]), "PATH": ""}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for source in ("src", "papers/src"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.toml", "*.csv")
        shutil.copytree(ROOT / source, tmp_path / source, ignore=ignored)
    return tmp_path


def test_the_contracts_hold(copy: Path) -> None:
    done = linted(copy)
    assert done.returncode == 0, done.stdout + done.stderr


BROKEN = {
    "method/mine.py": ("from fedskew.engines import ENGINES", "A method is a value"),
    "methods/mine.py": ("def late():\n    import fedskew.server", "A method is a value"),
    "functional/mine.py": ("from fedskew.types import View", "functional is tensors"),
    "plots/mine.py": ("from fedskew.engines import ENGINES", "Only a session and the command know engines"),
    "records/mine.py": ("from fedskew.session import Session", "Rooms"),
    "rooms.py": ("", "not listed as layers"),
    "advice/mine.py": ("import fedskew_papers.runs", "The library does not know the papers"),
    "flower/mine.py": ("from fedskew.engines.planning import Planner", "Flower stands on its seam"),
    "privacy/mine.py": ("from fedskew.plugins import found", "privacy is not allowed to import fedskew.plugins"),
    "flower/keys.py": (
        "from fedskew.privacy.simulation import secure_sum",
        "fedskew.flower.keys -> fedskew.privacy.sim",
    ),
    "privacy/__init__.py": (
        "from fedskew.privacy.simulation import secure_sum",
        "fedskew.privacy -> fedskew.privacy.sim",
    ),
    "flower/adds.py": ("from fedskew.simulated import Simulated", "fedskew.flower.adds -> fedskew.simulated"),
    "data/mine.py": ("import fedskew.data.yours", "No circle"),
}


def test_a_contract_sees_what_breaks_it(copy: Path) -> None:
    for path, (source, _) in BROKEN.items():
        (copy / "src/fedskew" / path).write_text(source + "\n")
    (copy / "src/fedskew/data/yours.py").write_text("import fedskew.data.mine\n")
    done = linted(copy)
    assert done.returncode == 1
    for _, said in BROKEN.values():
        assert said in done.stdout, done.stdout
