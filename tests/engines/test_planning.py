"""Who trains on how much and after whom: offers, quotas, paces and chains, against a computation by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import fedskew as fs
from fedskew import functional as F
from fedskew.methods.seolkim import DecayingOversampling
from support.by_hand import ENGINES, Asked, descend, rows, start_of
from support.federations import RAGGED, blobs, skewed
from support.methods import WHOLE, changed, each, spied
from support.runs import gap, go


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
