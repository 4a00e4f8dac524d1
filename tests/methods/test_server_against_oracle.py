"""What the server decides, against the oracle, without the recorded plan: who trains, on how much, at which rate.

Given to the oracle are only the random numbers (ties, candidates) and the federation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedskew import methods as m
from fedskew import rng
from fedskew.methods.astraea import Mediators
from fedskew.methods.seolkim import KLD, DecayingOversampling, Dynamic
from oracle import selection
from oracle.checks import near, numeric
from oracle.model import forward, head
from oracle.rounds import own_losses
from oracle.servers import creff_match, head_gradient
from support.replay import COHORT, LEVEL, PACE, SEED, Replay, agree, federation, record

ENGINES = ("sequential", "batched")


def steps_an_epoch(place: Any) -> int:
    return int((place.plan.epoch == 1).sum())


# --- Seol and Kim -----------------------------------------------------------------------------------------------------


def decided(replay: Replay, r: int, delta: float) -> tuple[np.ndarray, dict[str, Any]]:
    """(the candidates, what the oracle decides in round r); an infinite delta oversamples nothing."""
    sampler, selector, pace = (getattr(replay.method, slot) for slot in ("sampler", "selector", "pace"))
    options = {"threshold": selector.threshold, "passes": selector.passes, "beta": pace.beta, "lr_max": pace.lr}
    if isinstance(sampler, DecayingOversampling):
        options |= {"over": sampler.threshold, "step": sampler.increment}
    candidates = replay.rounds[r - 1].answers[0].ids
    tie = rng.uniform(rng.key(SEED, r, "select"), (len(candidates),), torch.float64).numpy()
    owned, age = replay.fed.counts[candidates].numpy(), r if np.isinf(delta) else r - 1
    return candidates.numpy(), selection.seolkim_round(owned, delta, age, COHORT, tie=tie, **options)


SHORT = Dynamic(epochs=1)  # the other defaults stay
EAGER = KLD(0.0)
SEOLKIM = {
    "defaults": replace(m.seolkim(), pace=SHORT),
    "goes on": replace(m.seolkim(), selector=EAGER, pace=Dynamic(epochs=2, lr=0.3, beta=3)),
    "grows fast": replace(m.seolkim(), sampler=DecayingOversampling(0.2, 0.5, 0.02), pace=Dynamic(epochs=1, beta=4)),
    "once through": replace(m.seolkim(), selector=KLD(0.0, passes="once"), pace=SHORT),
    "few willing": replace(m.seolkim(), selector=KLD(0.0, candidate_fraction=0.5), pace=SHORT),
}


@pytest.mark.parametrize("counts", [None, LEVEL], ids=["ragged", "level"])
@pytest.mark.parametrize("name", SEOLKIM)
def test_seolkim_decides(name: str, counts: Any):
    method: Any = SEOLKIM[name]
    replay = record(method, fed=federation(counts) if counts else None, rounds=4)
    delta = method.sampler.delta
    for r, seen in enumerate(replay.rounds, 1):
        candidates, want = decided(replay, r, delta)
        plans = [p.plan for p in seen.places]
        assert [p.client for p in plans] == candidates[want["ids"]].tolist()
        assert [p.used.tolist() for p in plans] == want["quotas"].tolist()
        assert [p.offered.tolist() for p in plans] == want["offered"][want["ids"]].tolist()
        assert seen.answers[0].values.tolist() == want["offered"].tolist()
        assert [p.batches.shape[2] for p in plans] == want["batch_sizes"]
        near([p.lr for p in plans], want["lrs"])
        near(replay.result.rounds[r - 1]["weights"], want["weights"])
        most = [min(method.pace.beta, -(-int(p.used.sum()) // p.batches.shape[2])) for p in plans]
        assert [steps_an_epoch(p) for p in seen.places] == most
        delta = want["delta"]
        near(seen.parts["decaying_oversampling"]["delta"], delta)
    assert name != "grows fast" or delta > 0.2


def test_seolkim_draws_lots():
    """Without oversampling the clients are equally large: the first one is drawn, anew every round."""
    method = replace(m.seolkim(sampling=False), selector=EAGER, pace=SHORT)
    replay = record(method, fed=federation(LEVEL), rounds=6)
    first = []
    for r, seen in enumerate(replay.rounds, 1):
        want = decided(replay, r, np.inf)[1]
        assert seen.assignment.ids.tolist() == want["ids"]
        assert seen.assignment.quota.tolist() == want["quotas"].tolist()
        first.append(want["ids"][0])
    assert len(set(first)) > 1


# --- Astraea and power-of-choice --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "gamma", "passes"), [(0.0, 3, 1), (0.5, 2, 1), (1.0, 2, 2), (0.9, 1, 1)])
def test_astraea_schedules(alpha: float, gamma: int, passes: int):
    method = replace(m.astraea(alpha), selector=Mediators(gamma, passes))
    replay = record(method, cohort=4)
    counts = replay.fed.counts.numpy()
    copies = selection.astraea_copies(counts.sum(0), alpha)
    for r, seen in enumerate(replay.rounds):
        offered = seen.answers[0].values.numpy()
        assert (counts * np.floor(copies) <= offered).all() and (offered <= counts * np.ceil(copies)).all()
        ids = np.unique([p.plan.client for p in seen.places])
        chains = [[int(ids[i]) for i in chain] for chain in selection.astraea_schedule(offered[ids], gamma)]
        assert [[k for k in c if k >= 0] for c in seen.assignment.chains.tolist()] == [c * passes for c in chains]
        for place in seen.places:
            assert place.plan.used.tolist() == offered[place.plan.client].tolist()
        sizes = np.array([offered[c].sum() for c in chains])
        near(replay.result.rounds[r]["weights"], sizes / sizes.sum())


@pytest.mark.parametrize("engine", ENGINES)
def test_power_of_choice(engine: str):
    replay = record(replace(m.powerofchoice(4), pace=PACE), engine)
    for seen in replay.rounds:
        (answers,) = seen.answers
        losses = own_losses(replay.problem, seen.before)[answers.ids]
        near(answers.values, losses)
        want = selection.power_of_choice(answers.ids.tolist(), losses, COHORT)
        assert seen.assignment.ids.tolist() == sorted(want)


# --- CReFF's server ---------------------------------------------------------------------------------------------------


SMALL = {"features_per_class": 2, "match_steps": 1, "head_epochs": 7, "head_lr": 0.2, "draws": 2}


def matched(features: np.ndarray, weight: np.ndarray, bias: np.ndarray, real: np.ndarray, c: int) -> np.ndarray:
    """Features [n, F] of class c after one step of rate 0.1 towards its real gradient."""

    def distance(z: np.ndarray) -> float:
        dw, db = head_gradient(weight, bias, z, np.full(len(z), c))
        total = creff_match(dw, real[:, : dw.shape[1]], 1e-6)[0]
        return total + (creff_match(db[None], real[None, :, -1], 1e-6)[0] if real.shape[1] > dw.shape[1] else 0.0)

    return features - 0.1 * numeric(distance, features)


@pytest.mark.parametrize("match_bias", [True, False])
@pytest.mark.parametrize("head_batch", [0, 3])
@pytest.mark.parametrize("engine", ENGINES)
def test_creff_gathers_and_synthesises(engine: str, head_batch: int, match_bias: bool):
    """Class gradients by hand; features by central differences of the matching loss; the head by descent."""
    part = replace(m.creff().parts[-1], head_batch=head_batch, match_bias=match_bias, **SMALL)
    replay = record(replace(m.creff(), parts=(part,), pace=PACE), engine)
    problem, features = replay.problem, None
    w, b = head(problem.params)
    for r, seen in enumerate(replay.rounds, 1):
        old = {n: v.numpy() for n, v in seen.common["federated_features"].items()}
        (answers,) = seen.answers
        gradients = np.zeros(answers.values["gradients"].shape)
        for i, k in enumerate(answers.ids.tolist()):
            y, f = problem.y[problem.rows[k]], forward(seen.before, problem.x[problem.rows[k]])[1]
            for c in np.unique(y):
                dw, db = head_gradient(old[w], old[b], f[y == c], y[y == c])
                gradients[i, c] = np.concatenate([dw, db[:, None]], 1) if match_bias else dw
        near(answers.values["gradients"], gradients)
        owners = replay.fed.counts[answers.ids].numpy() > 0
        real = gradients.sum(0) / np.maximum(owners.sum(0), 1)[:, None, None]
        key = rng.key(SEED, r, "federated_features", "absorb")
        state = seen.parts["federated_features"]
        if features is None:
            features = rng.normal(key, tuple(state["features"].shape), torch.float64).numpy()
        for c in np.flatnonzero(owners.any(0)):
            features[c] = matched(features[c], old[w], old[b], real[c], c)
        np.testing.assert_allclose(state["features"], features, rtol=0, atol=1e-8)
        features = state["features"].numpy().copy()
        spread = (2 * rng.uniform(rng.fold(key, 1), old[w].shape, torch.float64).numpy() - 1) / old[w].shape[1] ** 0.5
        new, bias, flat = spread, np.zeros(len(spread)), features.reshape(-1, features.shape[-1])
        labels = np.arange(4).repeat(2)
        for epoch in range(7):
            order = rng.uniform(rng.fold(rng.fold(key, 2), epoch), (8,)).numpy().argsort(kind="stable")
            for at in [order[i : i + head_batch] for i in range(0, 8, head_batch)] if head_batch else [order]:
                dw, db = head_gradient(new, bias, flat[at], labels[at])
                new, bias = new - 0.2 * dw, bias - 0.2 * db
        agree({n: v.numpy() for n, v in state["head"].items()}, {w: new, b: bias}, f"head of round {r}")
    agree(replay.result.params[w].numpy(), new, "the served head")
    agree(replay.result.state.params[w].numpy(), replay.rounds[-1].after[w], "the broadcast head")
