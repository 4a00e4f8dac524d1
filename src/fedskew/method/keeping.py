"""Parameters that stay on the clients, parameters that do not move, and the blocks of a network, from input to head."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import takewhile

from fedskew.errors import FieldError, closest
from fedskew.method.component import Component
from fedskew.types import Task

GROUPS = {
    "head": "the classifier",
    "body": "all but the classifier",
    "norm": "normalisation layers, with their running statistics",
}


def in_group(name: str, group: str, task: Task) -> bool:
    """Whether a parameter or buffer belongs to one of `GROUPS`.

    Args:
        name: Its name in the network.
        group: "head", "body" or "norm".
        task: Says which layer is the classifier, and which layers normalise.

    Returns:
        True or False. What a component adds to the model is in no group but the body.

    Example:
        >>> task = Task("fc", 10, 4, clients=5, rounds=9)
        >>> in_group("fc.weight", "head", task), in_group("conv.weight", "body", task)
        (True, True)
    """
    if group == "norm":
        return name in task.norms
    return (name in (task.weight, task.bias)) is (group == "head")


def in_projection(name: str, task: Task) -> bool:
    """Whether a parameter belongs to a projection head in front of the classifier, `fedskew.models.projected`.

    Args:
        name: Its name in the network.
        task: Says which layer is the classifier.

    Returns:
        True or False.

    Example:
        >>> task = Task("fc.classifier", 10, 4, clients=5, rounds=9)
        >>> in_projection("fc.out.weight", task), in_projection("fc.classifier.weight", task)
        (True, False)
    """
    parent, _, leaf = task.head.rpartition(".")
    layers = (f"{parent}.{layer}." if parent else f"{layer}." for layer in ("hidden", "out"))
    return leaf == "classifier" and name.startswith(tuple(layers))


@lru_cache(maxsize=64)  # it is asked in every local step
def chosen(
    patterns: tuple[str, ...], names: tuple[str, ...], task: Task, whose: str, field: str = "names"
) -> frozenset[str]:
    """The parameters and buffers that patterns name.

    Args:
        patterns: Each is one of `GROUPS`, the name of a layer or parameter, or a pattern such as `conv*`.
        names: Parameters and buffers of the model.
        task: Facts of the run.
        whose: Class that has the patterns, for errors.
        field: Its field.

    Returns:
        Those of `names` that fit any of the patterns.

    Raises:
        FieldError: A pattern that is no group fits none: nothing would stay although something was asked for.

    Example:
        >>> task = Task("fc", 10, 4, clients=5, rounds=9)
        >>> sorted(chosen(("head", "conv1"), ("conv1.weight", "conv2.weight", "fc.weight"), task, "Private"))
        ['conv1.weight', 'fc.weight']
    """
    selected: set[str] = set()
    for pattern in patterns:
        if pattern in GROUPS:
            matches = {name for name in names if in_group(name, pattern, task)}
        else:
            matches = {name for name in names if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")}
        if not matches and pattern not in GROUPS:  # a network without such layers has none of them to keep
            layers = [name.rpartition(".")[0] for name in names]
            raise FieldError(whose, field, f"name layers of the model{closest(pattern, [*layers, *GROUPS])}", pattern)
        selected |= matches
    return frozenset(selected)


@dataclass(frozen=True)
class Private(Component):
    """Parameters that stay on the client: each client has its own, and trains and keeps them.

    They are not sent, averaged or counted in bytes, and a pull towards the broadcast model is one towards the client's
    own values at the beginning of the round. BatchNorm's running statistics of the layers stay, too. A client begins
    with the initial values. The server keeps these for good, and the global model is evaluated with them; `personal_*`
    metrics are those of the clients' own models.

    Source: Arivazhagan et al. 2019, https://arxiv.org/abs/1912.00818

    Example:
        >>> Private(("conv1", "norm")).names
        ('conv1', 'norm')
    """

    name = "private"
    keeps = "the private parameters on every client"

    names: tuple[str, ...] = ("head",)
    """private parameters: head, body, norm, names of layers, or patterns such as conv*"""

    def private(self, names: Sequence[str], task: Task) -> Collection[str]:
        """Those that the patterns name."""
        return chosen(self.names, tuple(names), task, "Private")


@dataclass(frozen=True)
class Frozen(Component):
    """Parameters that keep their initial value. They are neither trained nor sent.

    Example:
        >>> Frozen(("conv*",)).names
        ('conv*',)
    """

    name = "frozen"

    names: tuple[str, ...] = ("head",)
    """frozen parameters: head, body, norm, names of layers, or patterns such as conv*"""

    def frozen(self, names: Sequence[str], task: Task) -> Collection[str]:
        """Those that the patterns name."""
        return chosen(self.names, tuple(names), task, "Frozen")


@lru_cache(maxsize=64)  # it is asked in every local step
def blocks(
    names: tuple[str, ...], task: Task, cuts: tuple[str, ...] = (), whose: str = "blocks"
) -> tuple[frozenset[str], ...]:
    """The parameters of a network in blocks, in the order of their names, the classifier last.

    Without cuts, a block is what stands under one first part of a name, after what all names begin with, and a
    normalisation layer belongs to the block in front of it.

    Args:
        names: Parameters of the network, in the order in which a row passes them.
        task: Says which layer is the classifier, and which layers normalise.
        cuts: Layers that begin a block, as `Private` names them; all before the first cut is the first block.
        whose: Class whose field `cuts` they are, for errors.

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
    ordered = sorted(names, key=lambda name: in_group(name, "head", task))  # stable: a module may name its head first
    if cuts:
        cut_groups = [chosen((cut,), names, task, whose, "cuts") for cut in cuts]
        starts = {next(name for name in ordered if name in group) for group in cut_groups if group}
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
