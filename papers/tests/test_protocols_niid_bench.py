"""The table of Flower's NIID-Bench baseline as studies: its numbers, its code's settings, its divisions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedskew.config.recorded import flat
from fedskew.method import method_spec
from fedskew_papers.printed import printed
from fedskew_papers.tables import names, protocol
from smoked import ROWS, experiments, smoked

OURS = [name for name in names() if protocol(name).paper == "Flower"]
CODE = {  # conf/*_base.yaml
    "pace.epochs": 10, "pace.batch_size": 64, "pace.lr": 0.01, "local.momentum": 0.9, "local.weight_decay": 1e-5,
    "local.clip": 0.0, "server.lr": 1.0,
}  # fmt: skip
METHODS = {
    "FedAvg": {},
    "SCAFFOLD": {
        "parts.control_variate.option": 2, "parts.control_variate.division": "reach",
        "parts.control_variate.spread": "size",
    },
    "FedProx": {"parts.proximal.mu": 0.01},
    "FedNova": {"weighting.tau_eff": "norm", "server.gmf": 0.0},
}  # fmt: skip


def counts(name: str, setting: str, seed: int = 0) -> np.ndarray:
    """Rows of each label at each client, [10, 10], as a run divides them."""
    one = experiments(name)["FedAvg", setting, seed]
    labels = np.repeat(np.arange(10), ROWS[one.data.name])
    assert one.clients == 10 and one.seed_partition == 42
    return np.asarray(one.partition.split(labels, 10, one.seed_partition).counts(labels, 10))


def test_the_sixty_numbers_have_one_run_each() -> None:
    numbers = [number for name in OURS for number in protocol(name).numbers()]
    assert sorted(n.id for n in numbers) == [f"niid-{i:03d}" for i in range(1, 61)] and len(OURS) == 3
    assert all(n.spread is not None and n.metric == "best_accuracy_pct" for n in numbers)
    told = {(n.dataset, n.setting, n.method): (n.mean, n.spread) for n in numbers}
    assert told["MNIST", "1 label/client", "FedNova"] == (52.58, 14.08)
    assert told["Fashion-MNIST", "2 labels/client", "SCAFFOLD"] == (33.80, 41.22)
    assert told["CIFAR-10", "3 labels/client", "FedNova"] == (57.83, 0.42)
    assert {p.paper for p in printed() if p.id.startswith("niid-")} == {"Flower"}


def test_three_runs_give_the_spread_that_says_how_many_there_were() -> None:
    """Two that stay at a class's share and one that trains: no other number of runs gives this mean and deviation."""
    fits = {}
    for runs in range(2, 11):
        for stuck in range(1, runs):
            values = [10.0] * stuck + [10 + 23.8 * runs / (runs - stuck)] * (runs - stuck)
            if max(values) < 90 and abs(np.std(values, ddof=1) - 41.22) < 0.05:
                fits[runs, stuck] = max(values)
    assert fits == {(3, 2): pytest.approx(81.4)}
    assert all(protocol(name).spec.seeds == (0, 1, 2) for name in OURS)


@pytest.mark.parametrize("name", OURS)
def test_every_run_has_what_the_code_says(name: str) -> None:
    for (label, _, _), one in experiments(name).items():
        found: dict[str, Any] = flat(method_spec(one.method))
        assert {key: found.get(key) for key in CODE} == CODE, label
        assert {key: found.get(key) for key in METHODS[label]} == METHODS[label]
        assert (one.clients, one.cohort, one.rounds, one.model.name) == (10, 10, 50, "lenet")
        assert not one.validation and not one.local_test and one.data.normalize == "none"
        outer = one.method.weighting
        assert getattr(outer, "base", outer).name == "size", "averages are by rows, SCAFFOLD's too"
        cropped = (True, "reflect") if one.data.name == "cifar10" else (None, "zeros")
        assert (one.data.augment, one.data.crop_padding) == cropped


@pytest.mark.parametrize("name", OURS)
def test_the_divisions_are_those_of_the_rules(name: str) -> None:
    """Every row is used; owners as in `pathological`, guard and least rows as in `dirichlet`."""
    totals = np.array(ROWS[experiments(name)["FedAvg", "IID", 0].data.name])
    found = {setting: counts(name, setting) for setting in protocol(name).spec.names}
    for setting, table in found.items():
        assert table.sum(0).tolist() == totals.tolist(), setting
    assert np.ptp(found["IID"].sum(1)) == 0 and (found["IID"] > 0.08 * totals).all()
    assert np.array_equal(found["1 label/client"], np.diag(totals))
    for labels in (2, 3):
        table = found[f"{labels} labels/client"]
        owned = table > 0
        assert owned.sum(1).tolist() == [labels] * 10 and owned.diagonal().all()
        assert all(np.ptp(column[column > 0]) <= 1 for column in table.T), "owners of a label have equal shares"
    table = found["alpha=0.5"]
    before = np.cumsum(table, axis=1) - table
    assert not table[before >= totals.sum() / 10].any() and table.sum(1).min() >= 10
    assert 0.2 < np.abs(table / table.sum(1, keepdims=True) - totals / totals.sum()).sum(1).mean() / 2 < 0.7


def test_the_sets_share_their_owners_and_a_seed_divides_alike() -> None:
    """One draw of the owners: the code's seed of the division is the same in every run."""
    for setting in ("2 labels/client", "3 labels/client"):
        tables = [counts(name, setting) > 0 for name in OURS]
        assert all(np.array_equal(tables[0], other) for other in tables[1:])
    two = counts("niid-bench-mnist", "2 labels/client")
    assert two.sum(1).tolist() == [4064, 9701, 4927, 8078, 4873, 4685, 5938, 4062, 5635, 8037]
    for setting in ("IID", "alpha=0.5"):
        assert np.array_equal(counts("niid-bench-cifar10", setting), counts("niid-bench-cifar10", setting, 2))


@pytest.mark.parametrize("name", OURS)
def test_a_small_scale_says_what_it_reduces(name: str) -> None:
    small, own = protocol(name).scales["small"], dict(protocol(name).spec.options)
    assert dict(small.options).keys() == {"rounds", "epochs"} and "core-minutes" in small.reduced
    for option, value in small.options:
        assert f"{value} {option} instead of {own[option]}" in small.reduced
    assert protocol(name).at("small").seeds == (0,) and "one seed of 3" in small.reduced
    assert len(experiments(name, "small")) == 20 and len(experiments(name)) == 60


@pytest.mark.parametrize("name", OURS)
def test_a_smoke_run_of_every_method_finishes(name: str, tmp_path: Path) -> None:
    rows = smoked(name, tmp_path)
    assert list(rows) == list(METHODS)
    assert all(0 <= row["best_accuracy"] <= 1 for row in rows.values())
