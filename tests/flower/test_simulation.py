"""Flower's own simulation: `flwr run` as the guide has it, on the engine that Flower starts by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

from fedskew.config.recorded import read_run
from support.kills import alone, differs
from support.paths import ROOT

pytestmark = pytest.mark.flower
NODES = 3
CONFIG: dict[str, Any] = {
    "method": "scaffold", "data": "digits", "model": "logistic", "partition": "dirichlet", "partition.alpha": 0.5,
    "clients": NODES, "cohort": 2, "rounds": 3, "epochs": 1,
}  # fmt: skip


@pytest.fixture
def home() -> Iterator[Path]:
    """A short folder, since names of Ray's sockets have 107 characters at most. Who works in it ends with the test."""
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:
        try:
            yield Path(folder)
        finally:
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    if folder.encode() in (process / "environ").read_bytes() and int(process.name) != os.getpid():
                        os.kill(int(process.name), signal.SIGKILL)


def said(home: Path, *words: object, cwd: Path) -> str:
    """What a command says, both streams. It must end with 0."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": str(home / "app" / ".flwr"), "RAY_TMPDIR": str(home),
    }  # fmt: skip
    out = home / "said"
    with out.open("w", encoding="utf-8") as file:  # a pipe would stay open as long as Flower's SuperLink lives
        done = subprocess.run(
            list(map(str, words)), env=env, cwd=cwd, timeout=300, check=False, stdout=file, stderr=subprocess.STDOUT
        )
    found = out.read_text(encoding="utf-8")
    assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{found[-3000:]}"
    return found


@pytest.mark.parametrize("method", ["scaffold", pytest.param("fedla", marks=pytest.mark.slow)])
def test_flowers_simulation_has_the_bytes_of_sequential(method: str, home: Path, tmp_path: Path) -> None:
    options = {**CONFIG, "method": method}
    words = [f"--{name}={value}" for name, value in options.items() if name != "method"]
    said(home, "fedskew", "flower", "init", method, *words, "--out", home / "app", cwd=home)
    text = said(home, "sh", "app/simulate.sh", cwd=home)
    assert "round 3" in text and "Traceback" not in text
    assert differs(home / "app" / "run", alone(tmp_path / "alone", options)) == ""
    ours, others = (read_run(folder).summary["final_fit"] for folder in (home / "app" / "run", tmp_path / "alone"))
    for objective, fit in others.items():  # each exchange was a message to a process
        assert ours[objective]["b"] == pytest.approx(fit["b"], abs=1e-6) and ours[objective]["clients"] == NODES
