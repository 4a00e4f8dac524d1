"""Where models run: a device, its worker threads, and the memory layout of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedskew import tree
from fedskew.engines.workers import Workers
from fedskew.models.prepare import Model
from fedskew.server import Broadcast
from fedskew.tree import Tree

__all__ = ["Runtime"]


@dataclass(frozen=True, eq=False)
class Runtime:
    """A device and the threads that drive it. A GPU is driven by one thread."""

    workers: Workers
    device: torch.device
    dtype: torch.dtype  # of the parameters
    channels_last: bool  # images and kernels lie channels-last: convolutions on a CPU take half the time

    @classmethod
    def of(cls, model: Model, device: str, threads: int, channels_last: bool) -> Runtime:
        """The runtime of a model on a device.

        Args:
            model: decides the dtype.
            device: "cpu", "cuda" or "cuda:NUMBER".
            threads: worker threads on a CPU; 0 takes every core.
            channels_last: use that layout on a CPU where the model has 2-d convolutions.
        """
        place = torch.device(device)
        on_cpu = place.type == "cpu"
        workers = Workers(model, (threads or Workers.cores()) if on_cpu else 1)
        dtype = next(iter(model.params.values())).dtype
        return cls(workers, place, dtype, channels_last and on_cpu and "Conv2d" in model.layer_kinds)

    @property
    def net(self) -> Model:
        """The calling thread's copy of the model."""
        return self.workers.model

    def map(self, function: Callable[[Any], Any], items: Iterable[Any], first: Sequence[int] = ()) -> Iterator[Any]:
        """Results of all threads, in the order of the items; those at the places ``first`` are begun first."""
        return self.workers.map(function, items, first)

    def layout(self, tree_: Tree) -> Tree:
        """A tree whose leaves of four axes lie channels-last, where this runtime uses that layout."""
        if not self.channels_last:
            return tree_

        def one(leaf: Tensor) -> Tensor:
            return leaf.contiguous(memory_format=torch.channels_last) if leaf.dim() == 4 else leaf

        return tree.map_tree(one, tree_)

    def laid_out(self, broadcast: Broadcast) -> Broadcast:
        """A broadcast in the layout of this runtime; what each client is sent alone stays as it is."""
        whole = {name: self.layout(getattr(broadcast, name)) for name in ("params", "buffers", "common")}
        return broadcast._replace(**whole)

    def to_device(self, tree_: Tree) -> Tree:
        """A tree of dicts or a NamedTuple of such trees, on the device."""
        if self.device.type == "cpu":
            return tree_
        if isinstance(tree_, tuple):
            return type(tree_)(*(self.to_device(field) for field in tree_))
        return tree.map_tree(lambda t: t.to(self.device, non_blocking=True), tree_)
