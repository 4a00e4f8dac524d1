"""Clustered sampling by the similarity of updates: the authors' numbers, what the paper proves, and whole rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist, squareform
from torch import Tensor

from fedskew import functional as F
from fedskew import methods as m
from fedskew import rng
from fedskew.method.paces import Fixed
from fedskew.method.selectors import ward_merges
from fedskew.methods.clusteredsampling import ClusteredByUpdate, _drawn
from support import authors
from support.federations import skewed
from support.replay import PACE, numpy, record
from support.runs import go, same

CODE: dict[str, Any] = authors.CODE["clustered"]
TOLD: dict[str, Any] = CODE["similar"]


def updates() -> dict[str, Tensor]:
    """Two parameters, as those of the authors' problem; two clients have no update."""
    rows = torch.tensor(TOLD["updates"], dtype=torch.float64)
    return {"weight": rows[:, :2].unsqueeze(1), "bias": rows[:, 2:]}


def test_angles_are_those_of_the_authors_code() -> None:
    np.testing.assert_allclose(F.update_angles(updates()), TOLD["angles"], rtol=0, atol=1e-7)  # on the diagonal
    close = F.update_angles({"w": torch.tensor([[1.0, 3.0], [2.0, 6.0], [-1.0, -3.0]])})
    assert (
        close[0, 1] == pytest.approx(0.0, abs=1e-7) and close[0, 2] == pytest.approx(np.pi) and not close.isnan().any()
    )


def test_short_updates_have_the_angles_of_long_ones() -> None:
    """Lengths do not matter, be they above 1 or below."""
    rows = torch.tensor([[3.0, 0.0], [2.0, 2.0], [0.0, 5.0]], dtype=torch.float64)
    want = np.pi / 4 * np.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]])
    for size in (1.0, 0.01):
        np.testing.assert_allclose(F.update_angles({"w": size * rows}), want, atol=1e-7)


def test_rounding_reaches_no_client_that_has_no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """The greatest draw is above the sum of ten tenths in floats; the eleventh client has no chance all the same."""
    chance = torch.tensor([[0.1] * 10 + [0.0], [0.0] + [0.1] * 10], dtype=torch.float64)
    monkeypatch.setattr(rng, "uniform", lambda key, shape, dtype: torch.full(shape, 1 + 1e-9, dtype=dtype))
    assert _drawn(chance, rng.key(0)).chains.flatten().tolist() == [9, 10]


@pytest.mark.parametrize("draws", ["1", "2", "3", "4", "5"])
def test_distributions_are_those_of_the_authors_code(draws: str) -> None:
    merges = ward_merges(F.update_angles(updates()), rows=True)
    found = F.similarity_draws(torch.tensor(TOLD["sizes"]), int(draws), merges)
    np.testing.assert_allclose(found, TOLD["distributions"][draws], rtol=0, atol=1e-7)


def test_the_tree_is_that_of_the_points_whose_distances_are_given() -> None:
    points = np.random.default_rng(4).normal(size=(9, 3))
    apart = squareform(pdist(points))
    assert np.array_equal(ward_merges(torch.from_numpy(apart)), linkage(points, "ward")[:, :2])
    assert np.array_equal(ward_merges(torch.from_numpy(apart), rows=True), linkage(pdist(apart), "ward")[:, :2])
    assert ward_merges(torch.zeros(1, 1)).shape == (0, 2)


@pytest.mark.parametrize("seed", range(30))
def test_every_client_is_drawn_in_proportion_to_its_rows(seed: int) -> None:
    """The two sums of the paper's proposition, with clients of no rows and of more than a box."""
    draw = np.random.default_rng(seed)
    clients, draws = int(draw.integers(1, 14)), int(draw.integers(1, 7))
    sizes = torch.from_numpy(draw.integers(0, 40, clients) * (draw.random(clients) < 0.8))
    sizes[0] += 1 + 200 * (seed % 3 == 0)
    some = draw.normal(size=(clients, 5)) * (draw.random((clients, 1)) < 0.7)
    merges = ward_merges(F.update_angles({"w": torch.from_numpy(some)}), rows=seed % 2 == 0)
    r = F.similarity_draws(sizes, draws, merges)
    torch.testing.assert_close(r.sum(1), torch.ones(draws, dtype=torch.float64))
    torch.testing.assert_close(r.sum(0), draws * sizes.double() / sizes.sum())
    assert bool((r >= 0).all()) and r.shape == (draws, clients)


@pytest.mark.parametrize("engine", ["sequential", "threaded", "batched"])
def test_the_server_keeps_everyones_last_update(engine: str) -> None:
    """The oracle's updates are the ones that are kept, and the draws follow from them."""
    method = replace(m.clusteredsampling("similarity"), pace=PACE)
    replay = record(method, engine, rounds=4)
    sizes = torch.tensor([len(rows) for rows in replay.problem.rows])
    _, told = replay.oracle()
    kept = {n: np.zeros((len(sizes), *p.shape)) for n, p in replay.problem.params.items()}
    for round, (seen, trace) in enumerate(zip(replay.rounds, told["trace"], strict=True), 1):
        merges = ward_merges(F.update_angles({n: torch.from_numpy(d) for n, d in kept.items()}), rows=True)
        chance = F.similarity_draws(sizes, 3, merges)
        u = rng.uniform(rng.key(2, round, "select"), (3, 1), torch.float64)
        assert sorted((chance.cumsum(1) <= u).sum(1).tolist()) == seen.assignment.chains.flatten().tolist()
        for k, y in zip(trace["ids"], trace["local"], strict=True):
            for n in kept:
                kept[n][k] = y[n] - seen.before[n]
        for n, d in numpy(seen.parts["clustered_by_update"]["updates"]).items():
            np.testing.assert_allclose(d, kept[n], rtol=0, atol=1e-10)
    assert len({tuple(r.assignment.chains.flatten().tolist()) for r in replay.rounds}) > 1


def test_the_two_readings_of_the_distances_draw_others() -> None:
    found = [
        go(skewed(), replace(m.clusteredsampling(), selector=ClusteredByUpdate(w), pace=Fixed(batch_size=16)), rounds=8)
        for w in ("rows", "angles")
    ]
    assert not same(found[0].params, found[1].params)
