"""What an evaluation keeps while it goes over the test rows."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew.engines.clients import auxiliary_source
from fedskew.engines.evaluation import LEAST
from fedskew.errors import DataError
from fedskew.functional import cross_entropy

ROWS = 20 * LEAST  # a chunk of a small dense model has at most eight times LEAST rows


@pytest.fixture(scope="module")
def fed() -> fs.Federation:
    gen = np.random.Generator(np.random.PCG64(0))
    x, y = gen.normal(size=(ROWS, 4)).astype(np.float32), np.arange(ROWS) % 3
    return fs.federate(fs.data.from_arrays(x[:60], y[:60], x, y), "iid", clients=3)


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many chunks' logits there were when each chunk was done."""
    seen: list[weakref.ref[torch.Tensor]] = []
    counted: list[int] = []

    def noted(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append(weakref.ref(logits))
        counted.append(sum(ref() is not None for ref in seen))
        return cross_entropy(logits, y)

    monkeypatch.setattr("fedskew.engines.evaluation.cross_entropy", noted)
    monkeypatch.setattr("fedskew.engines.evaluation.CACHE", 0)  # chunks of LEAST rows
    return counted


OPTIONS: dict[str, Any] = {"model": "logistic", "cohort": 2, "rounds": 2, "threads": 1}


def test_logits_of_all_chunks_are_kept_only_where_scores_are_measured(fed: fs.Federation, alive: list[int]) -> None:
    """Of 10 000 classes and a million rows they would be 80 GB."""
    plain = fs.run(fed, fs.methods.fedavg(), served="none", average_models="none", **OPTIONS)
    rounds, last = alive[:40], alive[40:]
    assert len(alive) == 60 and max(rounds) <= 2 and max(last) == 20, (
        "two evaluations, and the scores of the last model"
    )
    alive.clear()
    scored = fs.run(fed, fs.methods.fedavg(), scores="every", served="none", average_models="none", **OPTIONS)
    assert max(alive) >= 20
    for one, other in zip(plain.rounds, scored.rounds, strict=True):
        assert {name: other[name] for name in one if not name.endswith("_s")} == {
            name: value for name, value in one.items() if not name.endswith("_s")
        }, "and the numbers are the same"


def test_classes_whose_confusion_matrix_fits_nowhere_are_refused_before_the_training() -> None:
    """And nothing of [C, C] is made for a server that has no rows."""
    x, y = np.arange(8.0)[:, None], np.arange(8) % 2
    fed = fs.federate(fs.data.from_arrays(x, y, x, y, classes=1 << 18), "iid", clients=2)
    source = auxiliary_source(fed)
    assert source.rows == [] and source.counts.shape == (0, 1 << 18)
    with pytest.raises(
        DataError, match=r"confusion matrices of 262144 classes must fit into half of the memory"
    ) as told:
        fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=1, threads=1)
    assert "MiB; keep fewer classes" in str(told.value)
