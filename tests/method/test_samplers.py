"""Mini-batches: epochs that are shuffles, balanced draws, quotas, and how rows become copies of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedskew import rng
from fedskew.method.samplers import ClassBalanced, Shuffle, batched, realise

OWN = np.array([2, 0, 2, 2, 0, 3, 2])  # labels of a client's rows; classes 1 and 4 have none


def draw(seed: int) -> np.random.Generator:
    return rng.generator(rng.key(seed, "draw"))


def test_rows_are_realised_as_asked() -> None:
    seen = set[int]()
    for seed in range(30):
        rows = realise(OWN, np.array([5, 3, 2, 1, 1]), draw(seed))
        assert np.bincount(OWN[rows], minlength=5).tolist() == [5, 0, 2, 1, 0]  # there is nothing to copy of 1 and 4
        times = np.bincount(rows, minlength=7)
        assert sorted(times[OWN == 0]) == [2, 3] and times[OWN == 2].max() == 1  # no third copy before all have two
        seen |= {int(times[1]), *(100 + np.flatnonzero(times * (OWN == 2))).tolist()}
    assert seen == {2, 3, 100, 102, 103, 106}  # any row may be the one that is copied or left out
    assert len(realise(OWN, np.zeros(5, np.int64), draw(0))) == 0


@pytest.mark.parametrize(("size", "steps"), [(3, 3), (7, 1), (1, 7), (10, 1), (0, 1)])
def test_an_epoch_is_a_shuffle_in_batches(size: int, steps: int) -> None:
    pool = np.arange(10, 17)
    plan = batched(pool, (size, 4, 0), draw(0))
    assert plan.shape == (4, steps, size or 7)
    orders = [epoch[epoch >= 0].tolist() for epoch in plan]
    assert all(sorted(o) == pool.tolist() for o in orders) and len({tuple(o) for o in orders}) == 4
    assert (plan.reshape(4, -1)[:, :7] >= 0).all() and (plan.reshape(4, -1)[:, 7:] == -1).all()  # padding comes last
    assert np.array_equal(batched(pool, (size, 4, 2), draw(0)), plan[:, :2])
    assert batched(pool[:0], (size, 4, 0), draw(0)).size == 0


def test_a_quota_takes_one_subset_for_all_epochs() -> None:
    chosen = set()
    for seed in range(20):
        plan = Shuffle().plan(OWN, np.array([2, 0, 4, 1, 0]), np.array([9, 9, 3, 0, 0]), (2, 3, 0), {}, rng.key(seed))
        epochs = [tuple(sorted(epoch[epoch >= 0])) for epoch in plan]
        assert len(set(epochs)) == 1 and np.bincount(OWN[list(epochs[0])], minlength=5).tolist() == [2, 0, 3, 0, 0]
        chosen.add(epochs[0])
    assert len(chosen) == 4


def balanced(offered: list[int], quota: list[int] | None, epochs: int) -> np.ndarray[Any, Any]:
    limit = None if quota is None else np.array(quota)
    return ClassBalanced().plan(OWN, np.array(offered), limit, (4, epochs, 0), {}, rng.key(3))


def test_balanced_batches_draw_classes_uniformly_and_rows_uniformly_within() -> None:
    plan = balanced([2, 3, 4, 1, 0], None, 4000)  # class 1 is offered, but the client has no row of it
    assert plan.shape == (4000, 3, 4) and ((plan >= 0).sum((1, 2)) == 10).all()
    rows = plan[plan >= 0]
    assert np.bincount(OWN[rows], minlength=5) / len(rows) == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3, 0], abs=0.01)
    within = np.bincount(rows, minlength=7)[OWN == 2] / (OWN[rows] == 2).sum()
    assert within == pytest.approx([0.25] * 4, abs=0.015)
    assert len({epoch.tobytes() for epoch in plan[:50]}) == 50  # drawn anew every epoch
    assert len({tuple(np.sort(epoch[epoch >= 0])) for epoch in plan[:50]}) > 40


def test_a_quota_of_balanced_batches_sets_their_number_and_classes() -> None:
    plan = balanced([2, 0, 4, 1, 0], [1, 0, 9, 0, 0], 200)
    assert ((plan >= 0).sum((1, 2)) == 5).all()
    assert np.bincount(OWN[plan[plan >= 0]], minlength=5) / 1000 == pytest.approx([0.5, 0, 0.5, 0, 0], abs=0.05)
    assert balanced([0, 5, 0, 0, 0], None, 2).size == 0  # none of what is offered is there
