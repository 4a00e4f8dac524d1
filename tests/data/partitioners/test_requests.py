"""Requests that cannot be met: one line with a suggestion, and the suggestion works."""

from __future__ import annotations

import pytest

from fedskew.data.partitioners import (
    DirClientEqual,
    DirExtended,
    Dirichlet,
    DirPrior,
    Double,
    ExclusiveIid,
    Iid,
    LabelsK,
    Natural,
    QuantityDir,
    Shards,
)
from fedskew.errors import ConfigError
from support.labels import BALANCED


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: DirClientEqual(1).split([0, 0, 1], 2, 0), "clients must be at most the 1 rows of the scarcest class"),
        (lambda: DirPrior(prior="unifrom"), "did you mean 'uniform'"),
        (lambda: DirPrior(rest=11).split(BALANCED, 10, 0), "rest must be at most the 10 clients; got 11; use 10"),
        (lambda: DirPrior(0).split([0, 1], 3, 0), "clients must leave every client at least one row"),
        (lambda: LabelsK(11).split(BALANCED, 5, 0), "labels must be at most the 10 classes; got 11; use 10"),
        (lambda: Double(11).split(BALANCED, 5, 0), "labels must be at most the 10 classes; got 11; use 10"),
        (lambda: Shards(3).split(BALANCED, 1000, 0), "one of the 2000 rows; got 3; use 2"),
        (lambda: Shards(1).split(BALANCED, 2001, 0), "got 1; use 1 and at most 2000 clients"),
        (lambda: Iid().split(BALANCED, 0, 0), "clients must be a whole number of at least 1; got 0"),
        (lambda: Iid().split(BALANCED, 2.5, 0), "clients must be a whole number of at least 1; got 2.5"),
        (lambda: Iid().split(BALANCED, 2001, 0), "clients must be at most the 2000 rows; got 2001; use 2000"),
        (lambda: ExclusiveIid(0.5, 2).split(BALANCED, 10, 0), "got 2; use 1$"),
        (lambda: ExclusiveIid(0.5, 2).split(BALANCED, 40, 0), "got 2; use 1, and noniid_s at most 0.225"),
        (lambda: ExclusiveIid(0.5, 1, 300).split(BALANCED, 4, 0), "samples must be at most 200 here; got 300"),
        (lambda: Natural("sit").split(BALANCED, 3, 0, {"site": BALANCED}), "did you mean 'site'"),
        (lambda: Natural("site").split(BALANCED, 3, 0, {"site": BALANCED}), "got 3; use 10"),
        (lambda: Dirichlet(0.1, least=300).split(BALANCED, 10, 0), "least must be at most 200 here.*got 300; use 200"),
        (lambda: Dirichlet(0.1, rounding="cutt"), "did you mean 'cut'"),
        (lambda: DirExtended(11).split(BALANCED, 5, 0), "labels must be at most the 10 classes; got 11; use 10"),
        (lambda: DirPrior(0).split(BALANCED, 2001, 0), "one row under this partition; got 2001; use at most 2000"),
        (lambda: ExclusiveIid(1.0).split(BALANCED, 11, 0), "got 1; use 1, and noniid_s at most 0.818"),
        (lambda: ExclusiveIid(0.0).split(BALANCED, 2001, 0), "use at most 2000"),
        (lambda: QuantityDir(least=5).split(BALANCED, 1000, 0), "least must be at most 2 here.*got 5; use 2"),
        (lambda: QuantityDir().split(BALANCED, 2001, 0), "clients must be at most the 2000 rows; got 2001; use 2000"),
        (lambda: Dirichlet().split(BALANCED, 10**12, 0), "at most 214748364 for 10 classes: .*; use 214748364"),
        (lambda: Iid().count({}), "takes any number"),
    ],
)
def test_an_impossible_request_is_one_line_with_a_suggestion(attempt, message):
    with pytest.raises((ConfigError, TypeError), match=message) as caught:
        attempt()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("partitioner", "clients"),
    [
        (Dirichlet(0.1, least=200, balance_guard=1.0), 1),
        (DirPrior(0), 2000),
        (ExclusiveIid(0.818), 11),
        (ExclusiveIid(0.225), 40),
        (ExclusiveIid(0.5), 10),
        (ExclusiveIid(0.0), 2000),
        (QuantityDir(least=2), 1000),
        (QuantityDir(), 2000),
    ],
    ids=repr,
)
def test_suggested_settings_work(partitioner, clients):
    assert (partitioner.split(BALANCED, clients, 0).sizes > 0).all()
