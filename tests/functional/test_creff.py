"""CReFF's head against torch's SGD, rows a class, and what must not be touched."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedskew.functional as fn
from support.tensors import draws, near


def test_at_most_so_many_rows_of_a_class_those_drawn_first() -> None:
    labels = torch.tensor([1, 0, 1, 3, 1, 0, 1, 3])
    order = torch.tensor([0.5, 0.9, 0.1, 0.3, 0.7, 0.2, 0.6, 0.4])
    want = {1: [2, 3, 5], 2: [0, 1, 2, 3, 5, 7], 3: [0, 1, 2, 3, 5, 6, 7], 4: range(8), 9: range(8)}
    for most, rows in want.items():
        mask = fn.rows_per_class(labels, order, most, 4)
        assert mask.nonzero().squeeze(1).tolist() == list(rows)


@pytest.mark.parametrize("bias", [True, False])
def test_creff_leaves_its_arguments_alone_and_returns_constants(bias: bool) -> None:
    synthetic, weight, real = draws(3, 2, 4), draws(3, 4, seed=1), draws(3, 3, 4, seed=2)
    b = draws(3, seed=3) if bias else None
    made = fn.creff_synthesize(synthetic, weight, b, real, torch.ones(3), 2, 0.1)
    head, offset = fn.creff_head(synthetic, weight, b, 2, 0.1)
    tracked = [t.clone().requires_grad_() if t is not None else None for t in (weight, b, synthetic)]
    assert not any(t is not None and t.requires_grad for t in (synthetic, weight, b, made, head, offset))
    assert (offset is not None) == bias
    still = [fn.creff_synthesize(tracked[2], weight, b, real, torch.ones(3), 0, 0.1)]
    still += [t for t in fn.creff_head(synthetic, tracked[0], tracked[1], 0, 0.1) if t is not None]
    assert not any(t.requires_grad for t in still)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_size", [0, 4])
def test_the_head_is_trained_as_torchs_sgd_trains_it(batch_size: int, bias: bool) -> None:
    """Mini-batches in the given order, the last one smaller; the authors' loop with torch.optim.SGD."""
    synthetic, weight, b = draws(3, 5, 4, seed=1), draws(3, 4, seed=2), draws(3, seed=3) if bias else None
    orders = [torch.from_numpy(np.random.default_rng(e).permutation(15)) for e in range(6)]
    got = fn.creff_head(synthetic, weight, b, 6, 0.3, batch_size, lambda epoch: orders[epoch])
    leaves = [t.clone().requires_grad_() for t in (weight, b) if t is not None]
    optimizer = torch.optim.SGD(leaves, lr=0.3)
    features, labels = synthetic.flatten(0, 1), torch.arange(3).repeat_interleave(5)
    for order in orders:
        for at in order.split(batch_size or 15):
            optimizer.zero_grad()
            logits = torch.nn.functional.linear(features[at], *leaves)
            torch.nn.functional.cross_entropy(logits, labels[at]).backward()
            optimizer.step()
    for mine, theirs in zip(got, leaves, strict=False):
        assert mine is not None
        near(mine, theirs.detach().numpy())
