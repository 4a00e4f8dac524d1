"""Fed-GraB's prior analyser and the random release of its code, against the code's own steps in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedskew.functional as fn


def shares_by_the_code(norms: np.ndarray) -> np.ndarray:
    """Standardise, subtract the least, divide by the sum."""
    z = (norms - norms.mean()) / norms.std()
    z = z - z.min()
    return np.asarray(z / z.sum())


def tail_by_the_code(shares: np.ndarray, cut: float = 95.0) -> set[int]:
    """Sort by share; the class whose cumulative range holds 95 % is the last that is no tail."""
    order = np.argsort(-shares, kind="stable")
    ends = np.cumsum(shares[order]) / shares.sum() * 100
    starts = np.concatenate([[0.0], ends[:-1]])
    last = next(i for i in range(len(order)) if starts[i] < cut <= ends[i])
    return {int(c) for c in order[last + 1 :]}


@pytest.mark.parametrize("seed", range(5))
def test_the_prior_and_the_tail_are_those_of_the_released_analyser(seed: int) -> None:
    weight = torch.from_numpy(np.random.default_rng(seed).normal(size=(10, 7)) * np.linspace(3, 0.1, 10)[:, None])
    shares = fn.fedgrab_prior(weight)
    want = shares_by_the_code(np.linalg.norm(weight.numpy(), axis=1))
    np.testing.assert_allclose(shares.numpy(), want, atol=1e-12)
    assert set(fn.fedgrab_tail(shares).nonzero().flatten().tolist()) == tail_by_the_code(want)


def test_equal_norms_tell_no_tail() -> None:
    shares = fn.fedgrab_prior(torch.ones(4, 3))
    assert shares.tolist() == [0.25] * 4 and not fn.fedgrab_tail(shares).any()


def test_a_class_is_released_with_the_chance_of_the_code() -> None:
    """The first controlled class always, the next by 0.1^(released / (controlled - 1))."""
    chance = [0.1 ** (r / 9) for r in range(10)]
    draws = torch.rand(4000, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = torch.stack([fn.fedgrab_release(row, torch.ones(10)) for row in draws])
    for row, got in zip(draws[:200].tolist(), found[:200].tolist(), strict=True):
        taken, want = 0, []
        for draw in row:
            want.append(draw < chance[taken])
            taken += want[-1]
        assert got == want
    assert found[:, 0].all() and 0.4 < float(found.double().mean()) < 0.6  # half of the draws


def test_only_controlled_classes_are_released() -> None:
    controlled = torch.tensor([0.0, 1.0, 0.0, 1.0, 1.0])
    assert fn.fedgrab_release(torch.zeros(5), controlled).tolist() == [False, True, False, True, True]
    assert fn.fedgrab_release(torch.zeros(5), torch.zeros(5)).tolist() == [False] * 5
    two = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0])  # the second one by 0.1^(1 / 1)
    assert fn.fedgrab_release(torch.full((5,), 0.2), two).tolist() == [False, True, False, False, False]
    both = torch.stack([torch.zeros(5), torch.full((5,), 0.99)])
    stacked = torch.vmap(fn.fedgrab_release, in_dims=(0, None))(both, controlled)
    assert stacked.tolist() == [[False, True, False, True, True], [False, True, False, False, False]]
