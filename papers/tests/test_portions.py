"""`fedskew portions`: what waits for a GPU, and how it is worked off."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from fedskew_papers import portions as queue
from support.command import fedskew
from support.scheduling import without_workers

SMALL = """
[[portions]]
table = "fedga-table1-mnist"
settings = ["alpha=0.05"]
methods = ["FedAvg", "FedGA"]
seeds = "0-1"
options = {data = "digits", clients = 6, cohort = 3, rounds = 2, model = "mlp", epochs = 1}
method = {FedAvg = {weighting = "size"}}
"""


def test_the_queue_names_parts_of_tables() -> None:
    made = dict(queue.portions((("device", "cuda"),)))
    first = next(iter(made.values()))
    assert [m.name for m in first.methods] == ["FedAvg", "FedRS", "FedGR"] and first.seeds == (0,)
    assert dict(first.options)["device"] == "cuda" and dict(first.options)["rounds"] == 1000
    clipped = [spec for spec in made.values() if dict(spec.options).get("clip") == 5]
    assert len(made) == 40 and {m.name for spec in clipped for m in spec.methods} >= {"FedAvg", "FedBal"}


def test_portions_are_worked_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_workers(monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queue.toml").write_text(SMALL)
    monkeypatch.setattr(queue, "QUEUE", tmp_path / "queue.toml")
    assert fedskew("portions", "--dry-run") == 0
    assert "seed 1: 2 of 2 runs missing" in capsys.readouterr().out
    assert fedskew("portions", "--processes", 1, "--out", "out") == 0
    missing = json.loads((tmp_path / "out/portions.json").read_text())
    assert list(missing.values()) == [0, 0] and len(list((tmp_path / "runs/store/runs").iterdir())) == 4


def test_when_the_time_is_up_it_is_as_if_somebody_interrupts() -> None:
    with queue.limit(0.001) as up:
        time.sleep(10)
    assert up
    with pytest.raises(KeyboardInterrupt), queue.limit(1):
        raise KeyboardInterrupt
