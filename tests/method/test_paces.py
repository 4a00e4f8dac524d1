"""Learning rates and batch sizes over the rounds."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from fedskew.method.paces import Fixed, Staged
from fedskew.methods.seolkim import Dynamic


def test_the_staged_rate_warms_up_and_drops_twice() -> None:
    pace = Staged(lr=0.4, decay=0.5, warmup=2, first=4, second=6, middle=0.1, end=0.02)
    seen = [float(pace.of(torch.tensor([3, 9]), r, 9).lr[1]) / 0.5 ** (r - 1) for r in range(1, 9)]
    assert seen == pytest.approx([0.2, 0.4, 0.4, 0.4, 0.04, 0.04, 0.008, 0.008])
    assert Staged(warmup=0, first=0, second=0, end=0.5).of(torch.tensor([1]), 1, 9).lr.tolist() == [0.05]


@pytest.mark.parametrize("pace", [Fixed(3, 0.4, 0.5, batch_size=7), Dynamic(3, 0.4, 0.5, beta=4, b0=2.0)])
def test_the_rate_decays_after_every_round(pace: Any) -> None:
    used = torch.tensor([1, 9, 40])
    fixed = isinstance(pace, Fixed)
    first = [0.4] * 3 if fixed else [0.4 * 2 / math.pi * math.atan(b / 2) for b in (1, 2, 10)]
    for round, factor in ((1, 1.0), (2, 0.5), (4, 0.125)):
        plan = pace.of(used, round, 9)
        assert plan.lr.tolist() == pytest.approx([factor * r for r in first])
        assert plan.epochs.tolist() == [3, 3, 3]
        assert plan.batch.tolist() == ([7, 7, 7] if fixed else [1, 2, 10])
        assert plan.steps.tolist() == ([0, 0, 0] if fixed else [4, 4, 4])
