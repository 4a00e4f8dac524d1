"""What a round hands back to the session, and what an engine does to the model that it is given."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fedskew import engines, server, tree
from fedskew.method import Method
from fedskew.models.architectures import build
from fedskew.models.prepare import prepare
from fedskew.settings import Settings
from fedskew.types import Assignment, Results, Weights
from support.federations import skewed
from support.methods import tiny
from support.runs import gap, go, same

STACKING = "fedgr"  # its server sees every delta


def trained(
    engine: str, method: Method, weights: list[float] | None, chains: list[list[int]], **options: Any
) -> Results:
    """One round of these chains, by weights that are known beforehand or by none."""
    fed = skewed()
    model = prepare(build("logistic", (1, 8, 8), 10, 0), None, (1, 8, 8), 10).to(torch.float64)
    task = model.task(fed.clients, 3)
    runner = engines.ENGINES[engine](model, fed, task, Settings(seed=0, threads=2))
    try:
        with torch.no_grad():
            runner.init_clients(method, model.params, model.buffers)
            state = server.init(method, model.params, model.buffers, fed, task)
            assignment = Assignment(torch.tensor(chains))
            given = server.broadcast(method, state, assignment.ids)
            known = None if weights is None else (lambda _: Weights(torch.tensor(weights), torch.tensor(weights)))
            return runner.train(method, assignment, given, known, **options)
    finally:
        runner.close()


@pytest.mark.parametrize("engine", ["sequential", "threaded", "batched", "debug"])
@pytest.mark.parametrize("chains", [[[4], [0], [2], [5], [1]], [[4, 0], [2, 5]]], ids=["clients", "chains"])
def test_deltas_are_kept_beside_their_sum_in_the_order_of_the_cohort(engine: str, chains: list[list[int]]) -> None:
    weights = [0.4, 0.3, 0.1, 0.15, 0.05][: len(chains)]
    method = tiny("fedavg")
    summed = trained(engine, method, weights, chains, keep_deltas=True)
    stacked = trained(engine, method, None, chains, keep_deltas=True)
    assert summed.kept is not None and stacked.kept is not None and summed.delta is not None
    assert summed.cohort.deltas is None and stacked.delta is None
    assert same(stacked.kept, stacked.cohort.deltas)
    assert same(summed.kept, stacked.kept)
    assert all(leaf.shape[0] == len(chains) and leaf.device.type == "cpu" for leaf in summed.kept.values())
    assert gap(summed.delta, tree.aggregate(summed.kept, torch.tensor(weights))) < 1e-12


@pytest.mark.parametrize("weights", [None, [0.5, 0.5]])
def test_keeping_deltas_changes_no_bit_and_nothing_is_kept_unasked(weights: list[float] | None) -> None:
    plain, kept = (trained("batched", tiny("fedavg"), weights, [[1], [3]], keep_deltas=k) for k in (False, True))
    assert plain.kept is None and kept.kept is not None
    for name in ("delta", "buffers"):
        a, b = getattr(plain, name), getattr(kept, name)
        assert (a is None) == (b is None) and (a is None or same(a, b))


@pytest.mark.parametrize("name", ["fedavg", STACKING])
def test_a_run_is_the_same_with_and_without_diagnostics_of_deltas(name: str) -> None:
    plain, watched = (go(skewed(), tiny(name), diagnose=d) for d in ((), ("drift", "per_class")))
    assert same(plain.params, watched.params) and len(watched.rounds[0]["diagnostics"]["drift"]["norms"]) == 3


def test_an_engine_leaves_the_model_that_it_is_given_as_it_was() -> None:
    fed = skewed()
    model = prepare(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), None, (1, 8, 8), 10)
    for name in ("sequential", "threaded", "batched", "debug"):
        runner = engines.ENGINES[name](model, fed, model.task(fed.clients, 1), Settings(seed=0, threads=1))
        assert model.unpadded is False and runner.model.unpadded is (name != "batched")
        assert runner.workers.model is runner.model
        runner.close()
