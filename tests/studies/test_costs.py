"""What runs are said to take: steps of the true split at the true pace, and prices that no run is counted in twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedskew.config.flags import experiment_from
from fedskew.errors import RecordError
from fedskew.papers.costs import read_costs
from fedskew.papers.page import appendix_of
from fedskew.papers.rows import ledger
from fedskew.papers.runs import Runs
from fedskew.papers.tables import protocol
from fedskew.studies import cost
from fedskew.studies.cost import run_seconds
from support.scripts import script


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A step takes a second and an evaluation nothing; the batches that were asked for."""
    asked: list[int] = []

    def seconds(model: object, shape: object, classes: int, batch: int) -> tuple[float, float]:
        asked.append(batch)
        return 1.0, 0.0

    monkeypatch.setattr(cost, "step_seconds", seconds)
    return asked


def steps_of(words: str) -> float | None:
    return run_seconds(experiment_from([*words.split(), "--data", "digits"]))


def test_steps_are_those_of_the_rows_that_clients_hold(step: list[int]) -> None:
    """1437 rows over 10 clients: 143 or 144 each, 3 mini-batches of 64 at most an epoch."""
    words = "fedavg --partition iid --clients 10 --cohort 4 --rounds 5 --epochs 2 --batch-size 64"
    assert steps_of(words) == 5 * 4 * 2 * 3
    assert steps_of(f"{words} --partition.sizes lognormal") != steps_of(words)


def test_rows_that_no_client_holds_cost_nothing(step: list[int]) -> None:
    words = "fedavg --partition exclusive_iid --partition.unique_c 1 --clients 5 --cohort 2 --rounds 5 --epochs 1"
    few = steps_of(f"{words} --partition.samples 64 --batch-size 16")
    assert few == 5 * 2 * 4


def test_a_dynamic_batch_has_its_own_steps(step: list[int]) -> None:
    found = steps_of("seolkim --partition iid --clients 10 --cohort 4 --rounds 5 --epochs 2 --pace.beta 6")
    assert found == 5 * 4 * 2 * 6 and 20 <= step[-1] <= 24


@pytest.mark.thorough
def test_a_run_of_several_numbers_is_priced_once() -> None:
    """Two gains over two baselines share the method's runs."""
    seeds = len(protocol("seolkim-case3").spec.seeds)
    prices = {("seolkim-case3", "Case 3", name): 1.0 for name in ("proposed", "FedAvg", "FedNova", "client selection")}
    rows = ledger(Runs(()), costs=prices)
    gains = [r for r in rows if r.number.table == "text/Fig4c" and r.study == "seolkim-case3"]
    assert sorted(r.hours or 0 for r in gains) == [seeds, 2 * seeds]
    (line,) = (text for text in appendix_of(gains).splitlines() if "| text/Fig4c |" in text)
    assert line.split("|")[-2].strip() == str(2 * seeds)


@pytest.mark.thorough
def test_numbers_without_a_price_have_none(tmp_path: Path) -> None:
    assert read_costs(tmp_path / "none.csv") == {}
    assert all(row.hours is None for row in ledger(Runs(())) if row.state == "not run")


def test_costs_are_written_and_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one = {("a", "alpha=0.1, k=2", "FedAvg w/ AB"): 1.25}
    costing = script("scripts/results.py")
    monkeypatch.setattr(costing, "names", lambda: ("a",))
    monkeypatch.setattr(costing, "costs_of", lambda name: one)
    (tmp_path / "costs.csv").write_text(costing.measured_costs(), encoding="utf-8")
    assert read_costs(tmp_path / "costs.csv") == one


@pytest.mark.parametrize("text", ["study,setting\na,b\n", "study,setting,method,core_hours\na,b,c,many\n"])
def test_a_file_that_holds_no_costs_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "costs.csv").write_text(text)
    with pytest.raises(RecordError, match="must hold the columns study, setting, method, core_hours"):
        read_costs(tmp_path / "costs.csv")
