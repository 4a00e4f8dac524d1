"""In what a method on record differs from the method of the table."""

from __future__ import annotations

import pytest

import fedskew as fs
from fedskew.config.flags import experiment_from
from fedskew.config.recorded import changed, label_of
from fedskew.method import method_spec
from fedskew.methods import METHODS


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_of_the_table_differs_in_nothing(name: str) -> None:
    assert changed(method_spec(METHODS[name]())) == {} and label_of(method_spec(METHODS[name]())) == name


CASES = {
    "fedavg --weighting uniform": "fedavg (uniform)",
    "fedbal --weighting label_aware": "fedbal (label_aware)",
    "fedavg --lr 0.05 --epochs 5": "fedavg (epochs 5, lr 0.05)",
    "fedavg --weighting aggregation_balancer": "fedavg (aggregation_balancer)",
    "fedavg --weighting aggregation_balancer --weighting.beta 2": "fedavg (aggregation_balancer, beta 2)",
    "fednova --weighting.base uniform": "fednova (uniform)",
    "fedprox --parts.proximal.mu 1": "fedprox (mu 1)",
    "fedavg --parts proximal": "fedavg(parts=proximal)",
    "fedavg --parts proximal --parts.proximal.mu 3": "fedavg(parts=proximal) (mu 3)",
    "scaffold --sampler class_balanced --server momentum": "scaffold (class_balanced, momentum)",
}


@pytest.mark.parametrize("words", CASES)
def test_a_variant_is_labelled_by_what_differs(words: str) -> None:
    assert label_of(experiment_from(words.split()).to_json()["method"]) == CASES[words]


def test_a_name_that_the_table_lacks_is_taken_as_it_is() -> None:
    assert label_of(method_spec(fs.Method("mine"))) == "mine" and changed({"name": "mine"}) == {}
