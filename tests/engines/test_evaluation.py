"""What an evaluation keeps while it goes over the test rows."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew.engines.evaluation import LEAST
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
    plain = fs.run(fed, fs.methods.fedavg(), served="none", **OPTIONS)
    rounds, last = alive[:40], alive[40:]
    assert len(alive) == 60 and max(rounds) <= 2 and max(last) == 20, (
        "two evaluations, and the scores of the last model"
    )
    alive.clear()
    scored = fs.run(fed, fs.methods.fedavg(), scores="every", served="none", **OPTIONS)
    assert max(alive) >= 20
    for one, other in zip(plain.rounds, scored.rounds, strict=True):
        assert {name: other[name] for name in one if not name.endswith("_s")} == {
            name: value for name, value in one.items() if not name.endswith("_s")
        }, "and the numbers are the same"
