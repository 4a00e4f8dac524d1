"""A study that any program begins: workers need nothing of the program, and do not import it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedskew as fs
from fedskew.studies import pool

PROGRAM = """
import fedskew as fs
print("begun")
study = fs.study(["fedavg", "fedla"], clients=5, cohort=2, rounds=2, model="logistic", store="store")
study.run(processes=2)
print(__name__, [row["state"] for row in study.table()])
"""
LINES = "\n".join(PROGRAM.strip().splitlines())  # as they are typed
TOLD = ["begun", "__main__ ['finished', 'finished']"]

WAYS = {
    "a file that trains wherever it is imported": (["program.py"], ""),
    "a module": (["-m", "program"], ""),
    "standard input": (["-"], PROGRAM),
    "words of the command line": (["-c", PROGRAM], ""),
    "an interactive session": (["-i", "-q"], LINES),
}


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_a_study_runs_from(way: str, tmp_path: Path) -> None:
    words, given = WAYS[way]
    (tmp_path / "program.py").write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": str(Path(fs.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, input=given, capture_output=True, text=True, timeout=120, env=env
    )
    assert done.returncode == 0 and done.stdout.splitlines() == TOLD, done.stdout + done.stderr[-2000:]
    assert "Traceback" not in done.stderr and "Error" not in done.stderr, done.stderr[-2000:]


def test_the_program_is_as_before_when_its_workers_have_begun() -> None:
    names: dict[str, Any] = {"__spec__": 1, "name": 2}
    with pytest.raises(KeyError), pool._holding(names, {"__spec__": None, "more": 3}):
        assert names == {"__spec__": None, "name": 2, "more": 3}
        raise KeyError
    assert list(names.items()) == [("__spec__", 1), ("name", 2)]


def test_a_worker_has_the_variables_that_are_set_when_it_begins(tmp_path: Path) -> None:
    """The server that forks workers lives as long as the program, and was begun with older ones."""
    program = f"""
import os
{PROGRAM}
os.environ["FEDSKEW_DATA"] = "nowhere"
from fedskew.studies.pool import _pool
with _pool(1) as made:
    print(made.submit(os.getenv, "FEDSKEW_DATA").result())
"""
    env = {k: v for k, v in os.environ.items() if k != "FEDSKEW_DATA"}
    env |= {"PYTHONPATH": str(Path(fs.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-"], cwd=tmp_path, input=program, capture_output=True, text=True, timeout=120, env=env
    )
    assert done.stdout.splitlines() == [*TOLD, "nowhere"], done.stderr[-2000:]
