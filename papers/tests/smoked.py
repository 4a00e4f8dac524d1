"""The experiments of a protocol, the rows of its data, and its runs at the scale of a test."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from fedskew.config.experiment import Experiment
from fedskew.studies.study import Study
from fedskew.studies.work import RunJob, work
from fedskew_papers.tables import protocol

ROWS = {  # training rows of each label
    "mnist": [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
    "fashion_mnist": [6000] * 10,
    "cifar10": [5000] * 10,
    "cifar100": [500] * 100,
    "emnist": [2400] * 47,
    "svhn": [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659],
    "tiny_imagenet": [500] * 200,
}


@lru_cache(200)
def experiments(name: str, scale: str = "paper") -> dict[tuple[str, str, int], Experiment]:
    """The experiments of a protocol, none refused, by method, setting and seed."""
    cells = list(protocol(name).at(scale).cells())
    assert [cell.refused for cell in cells if cell.refused] == []
    return {(cell.label, cell.setting, cell.seed): cell.experiment for cell in cells if cell.experiment}


def firsts(name: str, scale: str = "paper") -> dict[tuple[str, str], Experiment]:
    """Those of the first seed, by method and setting."""
    first = protocol(name).at(scale).seeds[0]
    return {(label, at): made for (label, at, seed), made in experiments(name, scale).items() if seed == first}


def smoked(name: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Its runs by method, each of which must come to an end."""
    study = Study(protocol(name).at("smoke"), folder)
    for one in study.missing():
        outcome = work(RunJob(one.address, one.job, str(study.store.folder)))
        assert (outcome.state, outcome.reason) == ("finished", ""), one.cell.label
    table = study.table()
    rows = {row["label"]: row for row in table}
    assert len(rows) == len(table) and {row["state"] for row in table} == {"finished"}
    assert list(rows) == [method.name for method in protocol(name).spec.methods]
    return rows
