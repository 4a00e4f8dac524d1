"""A reader that goes away ends no run: the run goes on in silence and exits with its own result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fedskew.records.folder import read

WORDS = "run fedavg --data digits --clients 8 --cohort 3 --rounds 12 --model logistic"


def test_a_closed_pipe_ends_no_run(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # the reader is gone before the first word
    command = [sys.executable, "-m", "fedskew", *WORDS.split(), "--out", str(tmp_path / "run")]
    done = subprocess.run(command, stdout=writing, stderr=writing)
    os.close(writing)
    assert done.returncode == 0
    _, rows, summary = read(tmp_path / "run")
    assert len(rows) == 12 and summary["stopped"] == ""
