"""Parameters that stay on the clients, and parameters that do not move."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from fedskew.component import Component
from fedskew.errors import FieldError, closest
from fedskew.types import Task

__all__ = ["GROUPS", "Frozen", "Private", "chosen", "in_group", "in_projection"]

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
    parent, _, own = task.head.rpartition(".")
    layers = (f"{parent}.{layer}." if parent else f"{layer}." for layer in ("hidden", "out"))
    return own == "classifier" and name.startswith(tuple(layers))


def chosen(
    patterns: Sequence[str], names: Sequence[str], task: Task, whose: str, field: str = "names"
) -> frozenset[str]:
    """The parameters and buffers that patterns name.

    Args:
        patterns: Each is one of `GROUPS`, the name of a layer or parameter, or a pattern such as ``conv*``.
        names: Parameters and buffers of the model.
        task: Facts of the run.
        whose: Class that has the patterns, for errors.
        field: Its field.

    Returns:
        Those of ``names`` that fit any of the patterns.

    Raises:
        FieldError: A pattern that is no group fits none: nothing would stay although something was asked for.

    Example:
        >>> task = Task("fc", 10, 4, clients=5, rounds=9)
        >>> sorted(chosen(("head", "conv1"), ("conv1.weight", "conv2.weight", "fc.weight"), task, "Private"))
        ['conv1.weight', 'fc.weight']
    """
    return _chosen(tuple(patterns), tuple(names), task, whose, field)


@lru_cache(maxsize=64)
def _chosen(patterns: tuple[str, ...], names: tuple[str, ...], task: Task, whose: str, field: str) -> frozenset[str]:
    """As `chosen`; asked in every local step."""
    found: set[str] = set()
    for pattern in patterns:
        if pattern in GROUPS:
            some = {name for name in names if in_group(name, pattern, task)}
        else:
            some = {name for name in names if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")}
        if not some and pattern not in GROUPS:  # a network without such layers has none of them to keep
            layers = [name.rpartition(".")[0] for name in names]
            raise FieldError(whose, field, f"name layers of the model{closest(pattern, [*layers, *GROUPS])}", pattern)
        found |= some
    return frozenset(found)


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
        return chosen(self.names, names, task, "Private")


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
        return chosen(self.names, names, task, "Frozen")
