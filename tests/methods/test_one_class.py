"""Losses that stand still at clients with rows of one class: what ingredients say of it, against what they do."""

import math
import warnings
from typing import Any

import pytest

import fedskew as fs
from fedskew.data.federation import Federation
from fedskew.method import Component, Method
from fedskew.method.paces import Fixed
from support.federations import blobs

SINGLE = [[9, 0, 0], [0, 8, 0], [0, 0, 7], [5, 0, 0]]
MIXED = [[9, 0, 0], [4, 4, 0], [0, 3, 4], [2, 2, 2]]  # one of four has one class
LOSSES = sorted(
    name
    for name in dir(fs.parts)
    if isinstance(kind := getattr(fs.parts, name), type) and issubclass(kind, Component) and kind.classification
)
OPTIONS = {
    "LocalBalancer": [{"strength": 1.0}, {"strength": 1.0, "missing": "mask"}],
    "UnbalancedSoftmax": [{"gamma": "one"}, {"missing": "code"}],
    "LogitCalibration": [{"tau": 0.01, "missing": "tiny"}, {"tau": 0.0, "missing": "mask"}],
    "LogitAdjustment": [{"tau": 0.0}],
    "CosineSoftmax": [{"tau": 0.0}],
}
CASES = [(name, options) for name in LOSSES for options in ({}, *OPTIONS.get(name, ()))]


def first_loss(part: Component, fed: Federation) -> float:
    """The mean training loss at the initial model: steps are too short to change it."""
    method = Method("one", parts=(part,), pace=Fixed(epochs=1, lr=1e-6, batch_size=4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fs.run(fed, method, rounds=1, fit_logits="none", average_models="none")
    return float(result.rounds[-1]["train_loss"])


@pytest.mark.parametrize(("name", "options"), CASES)
def test_what_needs_two_classes_is_what_has_no_loss_on_one(name: str, options: dict[str, Any]) -> None:
    part = getattr(fs.parts, name)(**options)
    fed = blobs(SINGLE, auxiliary=2 if part.auxiliary else 0)
    assert part.needs_two_classes == (first_loss(part, fed) < 0.2 * math.log(3))


def test_a_run_says_so_before_its_first_round() -> None:
    with pytest.warns(RuntimeWarning, match="fedgr hardly trains here: 4 of 4 clients have rows of one class") as told:
        fs.run(blobs(SINGLE), "fedgr", rounds=1)
    assert len(told) == 1


@pytest.mark.parametrize("method", ["fedgr", "fedavg"])
def test_nothing_is_said_where_most_clients_have_two(method: str) -> None:
    fs.run(blobs(MIXED), method, rounds=1)
    if method == "fedavg":
        fs.run(blobs(SINGLE), method, rounds=1)
