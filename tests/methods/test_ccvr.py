"""CCVR: pooled statistics, the classifier that is trained on them, and the model that is served."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew import functional as F
from fedskew import rng
from fedskew.method.paces import Fixed
from fedskew.methods.ccvr import VirtualRepresentations
from oracle.losses import affine_ce
from support import authors
from support.federations import RAGGED, blobs
from support.runs import gap, go, same

CODE: dict[str, Any] = authors.CODE["ccvr"]
LACKING = [[9, 3, 1, 0], [2, 5, 0, 0], [1, 1, 6, 0]]  # nobody owns the last class
MODEL = fs.models.MLP(hidden=4)


def method(**fields: Any) -> fs.Method:
    return fs.Method("ccvr", (VirtualRepresentations(**fields),), pace=Fixed(batch_size=4))


def test_statistics_are_those_of_public_code() -> None:
    told = []
    for features, labels in zip(CODE["features"], CODE["labels"], strict=True):
        padded = torch.tensor([*features, [7.0, 7.0]], dtype=torch.float64)
        mask = torch.tensor([*(1.0 for _ in labels), 0.0], dtype=torch.float64)
        told.append(F.class_statistics(padded, torch.tensor([*labels, 0]), mask, 3))
    mean, covariance, _ = F.pooled_statistics(*(torch.stack(leaves) for leaves in zip(*told, strict=True)))
    np.testing.assert_allclose(mean, CODE["mean"], atol=1e-11)
    np.testing.assert_allclose(covariance, CODE["covariance"], atol=1e-11)


def test_statistics_are_those_of_the_union_under_the_broadcast_model() -> None:
    fed = blobs(LACKING)
    state = go(fed, method(), model=MODEL, rounds=2).state.parts["virtual_representations"]
    x, y = fed.dataset.x.double(), fed.dataset.y
    layers = [p.double() for p in state["model"].values()]
    features = torch.relu(x.flatten(1) @ layers[0].T + layers[1])
    for c in range(3):
        np.testing.assert_allclose(state["mean"][c], features[y == c].mean(0), atol=1e-12)
        np.testing.assert_allclose(state["covariance"][c], np.cov(features[y == c].T), atol=1e-12)
    assert state["count"].tolist() == [12, 9, 7, 0]
    assert not state["mean"][3].any() and not state["covariance"][3].any()


def test_features_have_the_statistics_they_are_drawn_from() -> None:
    mean, root = torch.tensor([[1.0, -2.0], [0.0, 5.0]]).double(), torch.tensor([[2.0, 0.0], [1.0, 0.5]]).double()
    covariance = torch.stack([root @ root.T, torch.zeros(2, 2).double()])
    drawn = F.gaussian_features(mean, covariance, rng.normal(rng.key(0, "ccvr"), (2, 40000, 2), torch.float64))
    np.testing.assert_allclose(drawn[0].mean(0), mean[0], atol=0.05)
    np.testing.assert_allclose(np.cov(drawn[0].T), covariance[0], atol=0.08)
    np.testing.assert_allclose(drawn[1], mean[1].expand(40000, 2), atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_singular_covariance_is_no_error(dtype: torch.dtype) -> None:
    rows = torch.randn(30, 3, generator=torch.Generator().manual_seed(0)).to(dtype) @ torch.ones(3, 8, dtype=dtype)
    mean, covariance, _ = F.class_statistics(rows, torch.zeros(30, dtype=torch.int64), torch.ones(30), 1)
    assert F.gaussian_features(mean, covariance, torch.ones(1, 5, 8, dtype=dtype)).isfinite().all()


def test_what_a_singular_covariance_gets_on_its_diagonal() -> None:
    """1e-12 of its mean variance; where one class needs more, all get it."""
    flat, noise = torch.ones(1, 2, 2).double(), torch.tensor([[[0.0, 1.0]]]).double()
    drawn = F.gaussian_features(torch.zeros(1, 2).double(), flat, noise)
    np.testing.assert_allclose(drawn[0, 0].numpy(), [0.0, np.sqrt(2e-12)], rtol=1e-3)
    worse = torch.stack(
        [torch.eye(2).double(), torch.tensor([[1.0, 1.0 + 1e-7], [1.0 + 1e-7, 1.0]], dtype=torch.float64)]
    )
    both = F.gaussian_features(torch.zeros(2, 2).double(), worse, noise.expand(2, 1, 2))
    np.testing.assert_allclose(both[1, 0].numpy(), [0.0, np.sqrt(2e-6 - 2e-7)], rtol=1e-3)


def test_the_classifier_goes_one_step_along_the_gradient_on_the_virtual_features() -> None:
    """All features at once, one epoch, by the oracle's cross-entropy; a class that nobody owns has no features."""
    fed = blobs(LACKING)
    result = go(fed, method(samples=5, batch=0, lr=0.3), model=MODEL, rounds=1)
    plain = go(fed, replace(fs.methods.fedavg(), pace=Fixed(batch_size=4)), model=MODEL, rounds=1)
    assert same(result.state.params, plain.state.params), "training goes on from the uncalibrated model"
    state = result.state.parts["virtual_representations"]
    key = rng.key(0, 1, "virtual_representations", "absorb")
    noise = rng.normal(key, (4, 5, 4), torch.float64)
    features = F.gaussian_features(state["mean"], state["covariance"], noise)[:3].flatten(0, 1).numpy()
    start = go(fed, method(epochs=0), model=MODEL, rounds=1).params  # the broadcast model itself
    (*_, weight, bias), labels = [*start], np.arange(3).repeat(5)
    slope = affine_ce(features @ start[weight].numpy().T + start[bias].numpy(), labels)
    np.testing.assert_allclose(result.params[weight], start[weight].numpy() - 0.3 * slope.T @ features, atol=1e-12)
    np.testing.assert_allclose(result.params[bias], start[bias].numpy() - 0.3 * slope.sum(0), atol=1e-12)


def test_which_model_is_served() -> None:
    """asked: the model before the last round, but for its classifier; last: the one after it."""
    fed = blobs(RAGGED)
    asked, last = (go(fed, method(serves=s), model=MODEL, rounds=3) for s in ("asked", "last"))
    before = go(fed, method(), model=MODEL, rounds=2).state.params
    *body, weight, bias = asked.params
    assert gap({n: asked.params[n] for n in body}, {n: before[n] for n in body}) == 0
    assert gap({n: last.params[n] for n in body}, {n: last.state.params[n] for n in body}) == 0
    assert gap({n: asked.params[n] for n in (weight, bias)}, {n: last.params[n] for n in (weight, bias)}) == 0
    assert gap({weight: asked.params[weight]}, {weight: before[weight]}) > 1e-3
