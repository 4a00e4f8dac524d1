"""The blocks of networks."""

from __future__ import annotations

import pytest

from fedskew.errors import FieldError
from fedskew.method.keeping import blocks
from fedskew.models.architectures import MODELS
from fedskew.models.prepare import prepare
from fedskew.types import Task

PLAIN = Task("fc", 10, 4, clients=5, rounds=9)


def first(names: tuple[str, ...], task: Task = PLAIN, cuts: tuple[str, ...] = ()) -> list[str]:
    """The first parameter of every block, in the order of the names."""
    found = blocks(names, task, cuts, "HybridPaths")
    assert sorted(name for block in found for name in block) == sorted(names)
    return [next(name for name in names if name in block) for block in found]


@pytest.mark.parametrize(
    ("name", "count"),
    [("logistic", 1), ("mlp", 2), ("2nn", 3), ("lenet", 5), ("resnet9", 9), ("resnet18", 10), ("resnet20", 11)],
)
def test_blocks_of_the_networks(name: str, count: int) -> None:
    model = prepare(MODELS[name]().build((3, 32, 32), 10), "fc", (3, 32, 32), 10)
    found = blocks(tuple(model.params), model.task(5, 9))
    assert len(found) == count
    assert {"fc.weight", "fc.bias"} == set(found[-1])


def test_a_normalisation_layer_belongs_to_the_block_in_front_of_it() -> None:
    names = ("norm0.weight", "a.weight", "norm1.weight", "norm1.bias", "fc.weight")
    task = PLAIN._replace(norms=("norm0.weight", "norm1.weight", "norm1.bias"))
    assert first(names, task) == ["norm0.weight", "a.weight", "fc.weight"]
    assert first(names) == ["norm0.weight", "a.weight", "norm1.weight", "fc.weight"]


def test_what_all_names_begin_with_is_no_block() -> None:
    assert first(("net.0.weight", "net.2.weight", "net.2.bias"), PLAIN._replace(head="net.2")) == [
        "net.0.weight",
        "net.2.weight",
    ]
    assert first(("weight", "bias"), PLAIN._replace(head="")) == ["weight"]
    assert first(("scale", "fc.weight", "fc.bias")) == ["scale", "fc.weight"]


def test_the_classifier_is_last_wherever_the_module_names_it() -> None:
    assert first(("fc.weight", "fc.bias", "a.weight", "b.weight")) == ["a.weight", "b.weight", "fc.weight"]
    assert first(("fc.weight", "a.weight", "b.weight"), cuts=("head",)) == ["a.weight", "fc.weight"]


def test_cuts_begin_blocks() -> None:
    names = ("a.one.weight", "a.two.weight", "b.weight", "c.weight", "fc.weight")
    assert first(names, cuts=("b", "head")) == ["a.one.weight", "b.weight", "fc.weight"]
    assert first(names, cuts=("fc", "a.two", "b*")) == ["a.one.weight", "a.two.weight", "b.weight", "fc.weight"]
    assert first(names, cuts=("a",)) == ["a.one.weight"], "a block begins there anyway"


def test_a_cut_that_names_nothing_is_an_error() -> None:
    with pytest.raises(FieldError, match=r"HybridPaths.cuts must name layers of the model; did you mean 'conv1'\?"):
        first(("conv1.weight", "fc.weight"), cuts=("conv2",))
