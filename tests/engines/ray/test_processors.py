"""Equal bytes are promised on processors of one type: others are told, once, and the run goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedskew.engines.ray import worker as module
from fedskew.engines.ray.worker import processor

INTEL = "processor : 0\nvendor_id : X\ncpu family : 6\nmodel : 207\nmodel name :  Some  CPU\n\nmodel name : B\n"
ARM = "processor : 0\nCPU implementer : 0x41\nCPU architecture: 8\nCPU part : 0xd0c\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (INTEL, "cpu family : 6, model : 207, model name : Some CPU, "),
        (ARM, "CPU implementer : 0x41, CPU architecture: 8, CPU part : 0xd0c, "),
    ],
)
def test_the_type_of_a_processor(content: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text(content)
    monkeypatch.setattr(module, "CPUINFO", tmp_path / "cpuinfo")
    assert processor().startswith(told)
    plain = processor()
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    assert processor() == f"{plain}, MKL_CBWR=AVX2"


@pytest.mark.ray
def test_a_worker_that_is_unlike_the_driver_is_told_in_a_line(cluster: Any, tmp_path: Path) -> None:
    """The driver takes other instructions, as an older processor would."""
    run = ["run", "fedavg", "--clients", "6", "--cohort", "4", "--rounds", "2", "--model", "logistic"]
    words = [*run, "--engine", "ray", "--ray.address", cluster.address, "--out", "run"]
    command = [sys.executable, "-m", "fedskew", *words]
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "default"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "unlike processors" in line]
    assert line.startswith("fedskew: note: ") and repr(processor()) in line
