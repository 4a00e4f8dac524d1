"""What runs local steps: one accelerator for each class of networks, and the rule that decides it."""

from __future__ import annotations

from enum import Enum

from fedskew.engines.dense import Dense
from fedskew.method import Method
from fedskew.models.prepare import Model

__all__ = ["Way", "is_fused", "is_plain_loss", "way_of_clients", "way_of_stacks"]


class Way(Enum):
    """What runs local steps, in words for the record. Steps of a stack are equal up to rounding, the others to the bit.

    Each engine takes the first that its device, the network and the method allow:

    - `sequential`, `debug`: AUTOGRAD.
    - `threaded`, `ray`: TRACED on a CPU for networks without convolutions, else AUTOGRAD.
    - `batched` on a GPU: RECORDED.
    - `batched` on a CPU: WRITTEN for dense networks under cross-entropy and plain SGD; AROUND for dense networks under
      fedskew's other methods; else VMAP.
    """

    AUTOGRAD = "steps by plain autograd"
    TRACED = "steps by autograd, traced where many lie ahead"
    WRITTEN = "steps are written out"
    AROUND = "steps are written out around the method's loss"
    VMAP = "steps by vmap"
    RECORDED = "steps by vmap, recorded where many lie ahead"


def way_of_clients(device: str, model: Model) -> Way:
    """The way of single clients whose steps may be traced.

    The graph interpreter takes no list of truth values, which the backward pass of a convolution has.
    """
    return Way.TRACED if device == "cpu" and not model.convolutional else Way.AUTOGRAD


def way_of_stacks(device: str, model: Model, method: Method, augmented: bool) -> Way:
    """The way of stacks of clients.

    Args:
        device: "cpu", "cuda" or "cuda:NUMBER".
        model: may be `Dense`.
        method: without a guard.
        augmented: whether training rows are augmented.
    """
    if device.startswith("cuda"):
        return Way.RECORDED
    if device != "cpu" or augmented or Dense.of(model) is None:
        return Way.VMAP
    if is_fused(method) and is_plain_loss(method):
        return Way.WRITTEN
    known = all(type(part).__module__.startswith("fedskew.") for part in method.components)  # others may do anything
    return Way.AROUND if known and method.local.takes_one_gradient else Way.VMAP


def is_plain_loss(method: Method) -> bool:
    """Whether the loss is mean cross-entropy and nothing else."""
    return [part.is_cross_entropy for part in method.having("loss")] == [True]


def is_fused(method: Method) -> bool:
    """Whether a step adds -lr times the gradient and nothing looks in between: the update is part of the product."""
    changed = any(map(method.having, ("correct", "learn", "moves", "frozen")))
    return method.local.plain_decay is not None and not changed
