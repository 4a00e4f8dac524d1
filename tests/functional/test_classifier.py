"""Terms on classifier rows of FedGR and FedGC against the oracle, and what must not matter to them."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch

import fedskew.functional as fn
from oracle import servers
from support.tensors import SEEDS, f64, same, slope


@pytest.mark.parametrize("kind", ["fedgr", "fedgc", "means"])
@pytest.mark.parametrize("seed", SEEDS)
def test_gravitation_and_spread_are_the_oracles(seed: int, kind: str) -> None:
    g = np.random.default_rng(seed)
    rows, owned = g.normal(size=(4, 5, 3)), g.random((4, 5)) < 0.55
    owned[3] = [0, 0, 0, 0, 1]
    owned[:3, 4] = False  # a sole owner with one label
    value, derivative, step = {
        "fedgr": (fn.gravitation, fn.gravitation_gradient, fn.gravitation_step),
        "fedgc": (fn.fedgc_spread, fn.fedgc_gradient, fn.fedgc_step),
        "means": (
            partial(fn.fedgc_spread, anchors="class_mean"),
            partial(fn.fedgc_gradient, anchors="class_mean"),
            partial(fn.fedgc_step, anchors="class_mean"),
        ),
    }[kind]
    total, want = servers.gravitation(rows, owned) if kind == "fedgr" else servers.spread(rows, owned, kind == "means")
    mask = torch.as_tensor(owned)
    same(value(f64(rows), mask), total)
    closed = derivative(f64(rows), mask)
    same(closed, want)
    same(slope(lambda u: value(u, mask), f64(rows)), closed, atol=1e-13)
    rubbish = f64(rows).masked_fill(~mask.unsqueeze(-1), torch.nan)  # rows that nobody trained cannot matter
    same(value(rubbish, mask), value(f64(rows), mask))
    same(derivative(rubbish, mask), closed)
    with torch.no_grad():
        stepped = step(f64(rows), mask, 0.05)
    same(stepped, f64(rows) - 0.05 * closed)
    assert torch.equal(stepped[~mask], f64(rows)[~mask])
    assert torch.equal(step(f64(rows), mask, 0.0), f64(rows))
    both = torch.vmap(derivative)(torch.stack([f64(rows), -f64(rows)]), torch.stack([mask, ~mask]))
    same(both[1], derivative(-f64(rows), ~mask))
    assert value(f64(rows[:1]), mask[:1]) == 0
    assert torch.equal(derivative(f64(rows[:1]), mask[:1]), torch.zeros(1, 5, 3).double())


def test_fedvls_of_a_client_with_one_row() -> None:
    """log(0 / 1 + 1e-9) for the class that it lacks, log(1 / 1 + 1e-9) for its own."""
    found = fn.fedvls_loss(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([1]), torch.tensor([1, 0]))
    assert float(found) == pytest.approx(math.log((1 + 2e-9) / 1e-9), rel=1e-12)


def test_a_row_that_nobody_owns_is_the_mean_over_everyone() -> None:
    rows, weights = np.random.default_rng(0).normal(size=(3, 2, 4)), np.array([0.5, 0.2, 0.3])
    owned = torch.tensor([[True, False], [True, False], [False, False]])
    found = fn.mean_rows(f64(rows), owned, f64(weights), "owners")
    same(found, np.stack([(0.5 * rows[0, 0] + 0.2 * rows[1, 0]) / 0.7, np.tensordot(weights, rows[:, 1], 1)]))
