"""Who trains on how much and after whom: offers, quotas, paces and chains, against a computation by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew import functional as F
from fedskew.engines.clients import client_source
from fedskew.engines.planning import Planner
from fedskew.method.paces import Fixed
from fedskew.method.samplers import WIDE, Shuffle, batched
from fedskew.methods.seolkim import DecayingOversampling
from fedskew.models.prepare import prepare
from fedskew.server import Broadcast
from fedskew.types import Assignment
from support.by_hand import ENGINES, Asked, descend, rows, start_of
from support.federations import RAGGED, blobs, skewed
from support.methods import WHOLE, changed, each, spied
from support.runs import gap, go, same


def test_offer_quota_and_pace_of_each_client(asked: Asked) -> None:
    fed = blobs([[9, 3, 1], [2, 5, 0], [1, 1, 6], [3, 4, 5]])
    method = changed(changed(fs.methods.seolkim(), "kld", threshold=0.0), "dynamic", epochs=2, beta=3)
    method, seen = spied(method)
    result = go(fed, method, rounds=1, cohort=3)
    (cohort,) = seen
    offered = F.oversample_target(fed.counts, 0.01, 0)
    assert torch.equal(asked[0][2].values, offered) and asked[0][1].what == "counts"
    assert torch.equal(cohort.owned, fed.counts[cohort.ids])
    assert torch.equal(cohort.offered, offered[cohort.ids]) and not torch.equal(cohort.offered, cohort.owned)
    pool = cohort.used.sum(0)
    assert (cohort.used <= cohort.offered).all() and (pool <= pool.max()).all()
    assert not torch.equal(cohort.used, cohort.offered)  # some quota bites
    n = cohort.used.sum(1)
    batch = (n // 3).clamp(min=1)
    assert torch.equal(cohort.reports.samples, n)
    assert torch.equal(cohort.reports.steps, 2 * torch.minimum(-(-n // batch), torch.tensor(3)))
    assert torch.allclose(cohort.reports.lr, 0.1 * 2 / torch.pi * torch.arctan(batch.double()))
    assert len(set(cohort.reports.lr.tolist())) > 1  # ragged in rate
    assert result.rounds[0]["weights"] == pytest.approx((n / n.sum()).tolist())


def test_the_decay_reaches_the_sampler() -> None:
    fed = blobs(RAGGED)
    sampler = DecayingOversampling(delta=0.0, increment=1.0, threshold=0.0)
    method, seen = spied(replace(fs.methods.fedavg(), sampler=sampler, selector=each(0, 1, 2)))
    result = go(fed, method, rounds=3)
    assert float(result.state.parts["decaying_oversampling"]["delta"]) == pytest.approx(
        float(sum(bool(c.offered.sum() > c.owned.sum()) for c in seen))
    )
    delta = 0.0
    for r, cohort in enumerate(seen):
        assert torch.equal(cohort.offered, F.oversample_target(cohort.owned, delta, r))
        delta += 1.0 if cohort.offered.sum() > cohort.owned.sum() else 0.0
    totals = [int(c.offered.sum()) for c in seen]
    assert totals[0] > totals[1] >= totals[2]


# Widths


@pytest.mark.parametrize("own", [False, True])
def test_a_batch_size_beyond_a_clients_rows_pads_nothing(own: bool) -> None:
    """A million rows a mini-batch once made stacks a million rows wide: 7 GB and half a minute for 240 rows."""

    @dataclass(frozen=True)
    class Own(Shuffle):
        """A sampler of the user's that pads to the batch size itself."""

        name = "own"

        def plan(self, *args: Any) -> Any:
            made = super().plan(*args)
            return np.pad(made, ((0, 0), (0, 0), (0, 5000 - made.shape[2])), constant_values=-1)

    fed, plain = blobs(RAGGED), replace(fs.methods.fedavg(), pace=Fixed(batch_size=0, epochs=2))
    wide = replace(plain, pace=replace(plain.pace, batch_size=1_000_000), sampler=Own() if own else Shuffle())
    task = prepare(torch.nn.Linear(5, 3), None, (5,), 3).task(4, 1)
    given = Broadcast(1, {}, {}, {}, {})
    for method in (plain, wide):
        groups = Planner(task, 0).plans(method, Assignment(torch.arange(4)[:, None]), given, client_source(fed))
        assert [group[0].batches.shape for group in groups] == [(2, 1, sum(counts)) for counts in RAGGED]
    for engine in ("sequential", "batched"):
        one, two = (go(fed, method, engine=engine, dtype="float32") for method in (plain, wide))
        assert same(one.params, two.params)


def test_ordinary_batch_sizes_keep_their_width() -> None:
    """Sums over another width differ in their last bits."""
    made = batched(np.arange(3), (WIDE, 1, 0), np.random.Generator(np.random.PCG64(0)))
    assert made.shape == (1, 1, WIDE)


# Chains: Astraea


@ENGINES
@pytest.mark.parametrize("passes", [1, 2])
def test_a_model_is_passed_on(engine: str, passes: int) -> None:
    fed = blobs(RAGGED[:3])
    method = replace(fs.methods.astraea(alpha=0.0, gamma=2), pace=WHOLE)
    method = changed(method, "mediators", mediator_epochs=passes)
    result = go(fed, method, rounds=1, cohort=3, engine=engine)
    chains = result.rounds[0]["clients"]
    assert sorted(map(len, chains)) == [passes, 2 * passes]
    w, ends = start_of(fed), []
    for chain in chains:
        model = w
        for k in chain:
            model = descend(model, *rows(fed, k), 0.1)
        ends.append((sum(int(fed.sizes[k]) for k in chain), model))
    total = sum(n for n, _ in ends)
    expected = {name: sum(n / total * model[name] for n, model in ends) for name in w}
    assert gap(result.params, expected) <= 1e-12
    assert result.rounds[0]["samples"] == total and result.rounds[0]["steps"] == 3 * passes


def test_chains_refuse_what_needs_single_clients() -> None:
    chained = fs.methods.astraea().selector
    for method in (fs.methods.scaffold(), fs.methods.moon(), fs.methods.fedgr(), fs.methods.fedgc()):
        with pytest.raises(fs.ConfigError, match="must not pass a model from client to client beside"):
            go(skewed(), replace(method, selector=chained))
