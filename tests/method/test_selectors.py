"""Who is drawn, and how often."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import fedskew as fs
from fedskew import rng
from fedskew.method.selectors import Failing, Random, draw_clients
from fedskew.methods.climb import Dual
from fedskew.methods.clusteredsampling import Clustered
from support.federations import blobs
from support.view import TASK


def shares(sizes: list[int], k: int, proportional: bool) -> Tensor:
    """How often each client is drawn."""
    keys = [rng.key(seed, "clients") for seed in range(1000)]
    drawn = torch.stack([draw_clients(torch.tensor(sizes), k, key, proportional) for key in keys])
    assert (drawn.diff(dim=1) > 0).all()  # sorted, and nobody twice
    return torch.bincount(drawn.flatten(), minlength=len(sizes)) / len(keys)


def test_clients_are_drawn_uniformly_or_by_size() -> None:
    assert shares([1, 0, 6, 3], 1, False).tolist() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3], abs=0.05)
    assert shares([1, 0, 6, 3], 2, False).tolist() == pytest.approx([2 / 3, 0, 2 / 3, 2 / 3], abs=0.05)
    assert shares([1, 0, 6, 3], 1, True).tolist() == pytest.approx([0.1, 0, 0.6, 0.3], abs=0.05)
    second = 0.6 * 0.1 / 0.4 + 0.3 * 0.1 / 0.7 + 0.1  # drawn second after 2, second after 3, or first
    assert float(shares([1, 0, 6, 3], 2, True)[0]) == pytest.approx(second, abs=0.05)
    assert shares([1, 0, 6, 3], 9, True).tolist() == [1, 0, 1, 1]


def test_a_client_with_one_row_counts() -> None:
    fed = blobs([[1, 0], [0, 0], [3, 3]])
    assert Random().init_server({}, fed, TASK)["sizes"].tolist() == [1, 0, 1]
    assert Dual().init_server({}, fed, TASK)["real"].tolist() == [1, 0, 1]


@pytest.mark.parametrize("clusters", ["size", "none"])
def test_clustered_sampling_draws_by_size_on_average(clusters: Any) -> None:
    """Every client k n_i / sum n times; a client of half the rows once in every pair, where there are boxes."""
    sizes = torch.tensor([6, 1, 0, 2, 3])
    keys = [rng.key(seed, "clusters") for seed in range(3000)]
    drawn = [Clustered(clusters).select({"sizes": sizes}, 2, key).chains.squeeze(1) for key in keys]
    count = torch.bincount(torch.cat(drawn), minlength=5) / len(keys)
    assert count.tolist() == pytest.approx((2 * sizes / 12).tolist(), abs=0.05) and count[2] == 0
    assert all(bool((d.diff() >= 0).all()) for d in drawn)
    assert all((d == 0).sum() == 1 for d in drawn) == (clusters == "size")


def test_clients_miss_rounds_as_often_as_their_rates_say() -> None:
    """Nobody of rate 1 is chosen, no round is empty, and clients miss rounds independently."""
    selector, fed = Failing(rates=(0.0, 0.2, 0.9, 1.0, 0.5)), blobs([[1, 1], [1, 1], [1, 1], [9, 9], [0, 0]])
    state = selector.init_server({}, fed, TASK)
    chosen = [selector.select(state, 5, rng.key(0, t, "select")) for t in range(3000)]
    assert all(one.chains.shape[1] == 1 for one in chosen)  # nobody passes a model on
    drawn = [one.ids.tolist() for one in chosen]
    there = torch.tensor([[k in ids for k in range(5)] for ids in drawn]).double()
    assert there.mean(0).tolist() == pytest.approx([1, 0.8, 0.1, 0, 0], abs=0.03)
    assert float((there[:, 1] * there[:, 2]).mean()) == pytest.approx(0.08, abs=0.02)
    alone = Failing(rates=(0.9, 0.9))
    two = alone.init_server({}, blobs([[1, 1], [1, 1]]), TASK)
    assert min(len(alone.select(two, 2, rng.key(0, t)).ids) for t in range(200)) == 1


def test_without_rates_the_clients_are_those_of_random() -> None:
    state = Random().init_server({}, blobs([[1, 1]] * 6), TASK)
    for t in range(20):
        ids = [one.select(state, 3, rng.key(0, t)).ids.tolist() for one in (Random(), Failing())]
        assert ids[0] == ids[1]


def test_rates_are_one_a_client_and_leave_somebody() -> None:
    method, fed = fs.methods.fedavg(), blobs([[1, 1], [0, 0]])
    with pytest.raises(fs.FieldError, match="rates must be as many as there are clients, 2; got"):
        Failing(rates=(0.1,)).check(method, fed, TASK)
    with pytest.raises(fs.FieldError, match="leave a client with rows of a rate below 1"):
        Failing(rates=(1.0, 0.0)).check(method, fed, TASK)
    with pytest.raises(fs.FieldError, match="leave a client of a rate below 1"):
        Failing(rates=(1.0, 1.0))
