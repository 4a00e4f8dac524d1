"""Precision-weighted averaging: who has weight 0 has no precision either."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from fedskew.method.weightings import Uniform
from fedskew.types import Cohort, Weights
from support.federations import skewed
from support.methods import each, tiny
from support.runs import gap, go


@dataclass(frozen=True)
class WithoutThird(Uniform):
    """Uniform weights of the first two clients."""

    name = "without_third"

    def weigh(self, state: Any, cohort: Cohort) -> Weights:
        weights = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
        return Weights(weights, weights)


def test_a_client_of_weight_0_has_no_say() -> None:
    fed, method = skewed(), tiny("precisionweighted")
    among = go(fed, replace(method, selector=each(0, 1, 2), weighting=WithoutThird()), rounds=1)
    alone = go(fed, replace(method, selector=each(0, 1)), rounds=1, cohort=2)
    assert among.rounds[0]["weights"] == [0.5, 0.5, 0.0]
    assert gap(among.params, alone.params) <= 1e-12
    assert gap(among.params, go(fed, replace(method, selector=each(0, 1, 2)), rounds=1).params) > 1e-6
