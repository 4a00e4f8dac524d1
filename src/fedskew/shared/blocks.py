"""A network's parameters in blocks, from its input to its classifier, so that one pass may mix two models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile

from fedskew.shared.keeping import chosen, in_group
from fedskew.types import Task

__all__ = ["blocks"]


def blocks(
    names: Sequence[str], task: Task, cuts: Sequence[str] = (), whose: str = "blocks"
) -> tuple[frozenset[str], ...]:
    """The parameters of a network in blocks, in the order of their names, the classifier last.

    Without cuts, a block is what stands under one first part of a name, after what all names begin with, and a
    normalisation layer belongs to the block in front of it.

    Args:
        names: Parameters of the network, in the order in which a row passes them.
        task: Says which layer is the classifier, and which layers normalise.
        cuts: Layers that begin a block, as `Private` names them; all before the first cut is the first block.
        whose: Class whose field ``cuts`` they are, for errors.

    Returns:
        The blocks. They are disjoint, and no name is left out.

    Raises:
        FieldError: A cut names no layer of the network.

    Example:
        >>> from fedskew.types import Task
        >>> task = Task("fc", 10, 4, clients=5, rounds=9, norms=("norm.weight",))
        >>> names = ("conv1.weight", "norm.weight", "conv2.weight", "conv2.bias", "fc.weight")
        >>> [sorted(block) for block in blocks(names, task)]
        [['conv1.weight', 'norm.weight'], ['conv2.bias', 'conv2.weight'], ['fc.weight']]
        >>> [sorted(block) for block in blocks(names, task, ("head",))]
        [['conv1.weight', 'conv2.bias', 'conv2.weight', 'norm.weight'], ['fc.weight']]
    """
    return _blocks(tuple(names), task, tuple(cuts), whose)


@lru_cache(maxsize=64)
def _blocks(names: tuple[str, ...], task: Task, cuts: tuple[str, ...], whose: str) -> tuple[frozenset[str], ...]:
    """As `blocks`; asked in every local step."""
    ordered = sorted(names, key=lambda name: in_group(name, "head", task))  # stable: a module may name its head first
    if cuts:
        found = [chosen((cut,), names, task, whose, "cuts") for cut in cuts]
        starts = {next(name for name in ordered if name in some) for some in found if some}
        begins = [name in starts for name in ordered]
    else:
        layers = [name.split(".")[:-1] for name in ordered]
        pairs = zip(min(layers), max(layers), strict=False)  # what the first and the last share, all share
        shared = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
        units = [tuple(layer[shared : shared + 1]) for layer in layers]
        learning = {unit for name, unit in zip(ordered, units, strict=True) if name not in task.norms}
        begins = [i > 0 and u != units[i - 1] and u in learning for i, u in enumerate(units)]
    whole: list[list[str]] = []
    for name, new in zip(ordered, begins, strict=True):
        if new or not whole:
            whole.append([])
        whole[-1].append(name)
    return tuple(frozenset(block) for block in whole)
