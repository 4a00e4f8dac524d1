"""Every method with every network of the table by both engines: two rounds, finite results."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew.data.federation import Federation
from fedskew.errors import ConfigError
from fedskew.method import Method
from fedskew.method.paces import Fixed
from support.federations import blobs
from support.methods import NAMES, changed, tiny
from support.networks import BUILT, TOKENS

ENGINES = ("sequential", "batched")
SHAPES = {"emnist_cnn": (1, 28, 28), "pfllib_cnn": (1, 28, 28), "logistic": (9,), "mlp": (9,), "2nn": (9,)}
SHAPES |= dict.fromkeys(TOKENS, (6,))
COUNTS = ((3, 2, 0), (0, 1, 4), (2, 2, 2))  # rows of each class at three clients: 16 with the test set's
REFUSED = {("ccvr", "convnet"): "at most 4096 features; got 36992"}  # a covariance of 5 GB for each class
PRODUCT = [c for c in itertools.product(NAMES, BUILT, ENGINES) if c[:2] not in REFUSED]


@cache
def federation(model: str) -> Federation:
    """Made-up images or rows of the shape that the network is for; two rows of each class are the server's."""
    fed = blobs([list(c) for c in COUNTS], shape=SHAPES.get(model, (3, 32, 32)), auxiliary=2)
    if model not in TOKENS:
        return fed
    x, x_test = ((10 * part.abs()).floor().clamp(max=79) for part in (fed.dataset.x, fed.dataset.x_test))
    return replace(fed, dataset=replace(fed.dataset, x=x, x_test=x_test))


def small(name: str) -> Method:
    """One epoch of at most two steps, and features enough for BalanceFL's covariance only where they are few."""
    method = tiny(name)
    if name == "balancefl":
        method = changed(method, "knowledge_inheritance", augment_features=False)
    if name == "fedvc":
        method = changed(method, "virtual_client", size=6)
    if name == "fedbabu":  # more steps under the statistics of two rows diverge in a deep network
        method = changed(method, "fine_tune", epochs=1)
    if name == "powerofchoice":
        method = changed(method, "power_of_choice", candidates=3)
    pace = {"epochs": 1, "lr": 0.01} | ({"batch_size": 4} if type(method.pace) is Fixed else {})
    return replace(method, pace=replace(method.pace, **pace))


def check(name: str, model: str, engine: str) -> None:
    """Two rounds: losses, metrics and every parameter and statistic are finite, and training has moved the model."""
    fed, options = federation(model), {"model": model, "cohort": 2, "engine": engine, "seed": 1}
    result = fs.run(fed, small(name), rounds=2, **options)  # type: ignore[arg-type]
    assert len(result.rounds) == 2
    for row in result.rounds:
        assert math.isfinite(row["loss"]) and 0 <= row["accuracy"] <= 1
        assert np.isfinite(row["weights"]).all()
    for tensors in (result.params, result.state.params, result.state.buffers):
        assert all(torch.isfinite(t).all() for t in tensors.values())
    made = fs.models.architecture(model, small(name).projection)
    start: Any = fs.models.build(made, fed.dataset.x.shape[1:], fed.dataset.classes, 1).state_dict()
    moved = (*result.state.params.items(), *result.params.items())  # FedNH's prototypes move where the model is served
    own = small(name).personal  # where the network may have no part in common: the classifier is all of it
    assert own or any(not torch.equal(start[n], p) for n, p in moved if n in start)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "model", "engine"), PRODUCT)
def test_every_combination_trains(name: str, model: str, engine: str) -> None:
    check(name, model, engine)


@pytest.mark.parametrize(("name", "model"), REFUSED)
def test_the_others_are_refused(name: str, model: str) -> None:
    with pytest.raises(ConfigError, match=REFUSED[name, model]):
        check(name, model, "sequential")
