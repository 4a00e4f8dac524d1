"""Where models run: a device, its worker threads, and the memory layout of tensors."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedskew import tree
from fedskew.models.precision import flushed
from fedskew.models.prepare import Model
from fedskew.server import Broadcast
from fedskew.tree import Tree

__all__ = ["Runtime", "Workers", "one_thread"]


@contextmanager
def one_thread() -> Iterator[None]:
    """One intra-op thread: sums then do not depend on the number of cores, and small models run faster."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Workers:
    """``count`` threads, without gradients and with one intra-op thread each.

    torch's kernels release the interpreter's lock, so threads work side by side. A `Model` serves one thread at a time,
    so each thread has a copy. One thread is the caller itself.
    """

    def __init__(self, model: Model, count: int) -> None:
        self.original, self.count = model, count
        self._own = threading.local()
        self._copies: list[Model] = []
        self._pool: ThreadPoolExecutor | None = None
        self._flushed = False  # whether the threads take denormal numbers for 0, as their caller does

    @staticmethod
    def cores() -> int:
        """Number of cores that this process may use."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    @property
    def model(self) -> Model:
        """The calling thread's copy of the model; the original outside the threads."""
        return getattr(self._own, "model", self.original)

    @property
    def inside(self) -> bool:
        """Whether the caller is one of the threads."""
        return hasattr(self._own, "model")

    def map(self, function: Callable[[Any], Any], items: Iterable[Any], first: Sequence[int] = ()) -> Iterator[Any]:
        """Results in the order of the items. Called from one of the threads, it works in that thread.

        The items at the places ``first`` are begun before the others.
        """
        work = list(items)
        if self.count == 1 or len(work) < 2 or self.inside:
            return map(function, work)
        if self._pool is None:
            # copied now: a thread may begin late, while the original is in the middle of a pass
            self._copies = [self.original.clone() for _ in range(self.count)]
            self._flushed = flushed()
            self._pool = ThreadPoolExecutor(self.count, "fedskew", self._begin)
        here, ahead = torch.no_grad()(function), set(first)
        order = [*first, *(i for i in range(len(work)) if i not in ahead)]
        begun = {i: self._pool.submit(here, work[i]) for i in order}
        return _taken([begun.pop(i) for i in range(len(work))])

    def _begin(self) -> None:
        torch.set_num_threads(1)
        torch.set_flush_denormal(self._flushed)  # a state of each thread
        self._own.model = self._copies.pop()

    def close(self) -> None:
        """End the threads. Work that has not begun is dropped."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


def _taken(waiting: list[Future[Any]]) -> Iterator[Any]:
    """The results in order, each let go as it is taken; what has not begun is dropped where one raises."""
    waiting.reverse()
    try:
        while waiting:
            yield waiting.pop().result()
    finally:
        for future in waiting:
            future.cancel()


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
