"""FedNH's prototypes: those of the authors' code, and how they start."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fedskew.functional as fn
from fedskew import rng
from support import authors

CODE: dict[str, Any] = authors.CODE["fednh"]


def test_the_server_smooths_as_the_authors_code() -> None:
    told = []
    for rows, labels in zip(CODE["features"], CODE["labels"], strict=True):
        padded = torch.tensor([*rows, [9.0] * 4], dtype=torch.float64)
        mask = torch.tensor([*(1.0 for _ in rows), 0.0], dtype=torch.float64)
        told.append(fn.class_prototypes(padded, torch.tensor([*labels, 0]), mask, 3))
    means, counts = (torch.stack(leaves) for leaves in zip(*told, strict=True))
    start = torch.tensor(CODE["start"], dtype=torch.float64)
    found = fn.smoothed_prototypes(start, means, counts, CODE["smoothing"])
    torch.testing.assert_close(found, torch.tensor(CODE["prototypes"], dtype=torch.float64), rtol=0, atol=1e-11)
    assert torch.equal(found[2], fn.smoothed_prototypes(start, means, counts, 1.0)[2]), "nobody has the last class"


def test_by_confidence_the_server_smooths_as_the_authors_code() -> None:
    start, means = torch.tensor(CODE["start"], dtype=torch.float64), []
    for rows, labels in zip(CODE["features"], CODE["labels"], strict=True):
        padded = torch.tensor([*rows, [9.0] * 4], dtype=torch.float64)
        mask, y = torch.tensor([*(1.0 for _ in rows), 0.0], dtype=torch.float64), torch.tensor([*labels, 0])
        sure = fn.prototype_logits(padded, start, 4.0).softmax(1).gather(1, y.unsqueeze(1)).squeeze(1)
        means.append(fn.class_prototypes(padded, y, mask, 3, sure)[0])
    stacked = torch.stack(means)
    found = fn.smoothed_prototypes(start, stacked, fn.prototype_agreement(start, stacked), CODE["smoothing"])
    torch.testing.assert_close(found, torch.tensor(CODE["confident"], dtype=torch.float64), rtol=0, atol=1e-11)


@pytest.mark.parametrize(("classes", "features"), [(3, 8), (4, 4), (10, 3)])
def test_prototypes_start_on_the_sphere(classes: int, features: int) -> None:
    w = fn.spread_prototypes(rng.normal(rng.key(0, "sphere"), (classes, features), torch.float64))
    torch.testing.assert_close(w.norm(dim=1), torch.ones(classes, dtype=torch.float64))
    if classes <= features:
        torch.testing.assert_close(w @ w.T, torch.eye(classes, dtype=torch.float64))


@pytest.mark.parametrize("make", [fn.spread_prototypes, fn.orthonormal])
def test_a_square_frame_is_the_q_of_the_matrix_whose_r_has_a_positive_diagonal(make: Any) -> None:
    draws = rng.normal(rng.key(0, "frame"), (4, 4), torch.float64)
    q = make(draws)
    r = q.T @ draws
    torch.testing.assert_close(r, r.triu(), rtol=0, atol=1e-12)
    assert bool((r.diagonal() > 0).all()) and torch.equal(q, make(draws.clone()))


def test_logits_are_cosines_and_finite_without_features() -> None:
    w = torch.eye(2, 3)
    z = fn.prototype_logits(torch.tensor([[0.0, 5.0, 0.0], [0.0, 0.0, 0.0]]), w, scale=7.0)
    assert z.tolist() == [[0.0, 7.0], [0.0, 0.0]]
    x = torch.zeros(1, 3, requires_grad=True)
    (slope,) = torch.autograd.grad(fn.prototype_logits(x, w).sum(), x)
    assert slope.isfinite().all()
