"""Where models run: a device, its worker threads, and the memory layout of tensors."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from fedskew import tree
from fedskew.engines.programs import each_leaf
from fedskew.models.precision import flushed
from fedskew.models.prepare import Model
from fedskew.server import Broadcast
from fedskew.tree import Tree


@contextmanager
def one_thread() -> Iterator[None]:
    """One intra-op thread: sums then do not depend on the number of cores, and small models run faster."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _no_signals() -> Iterator[None]:
    """What asks the process to end waits a moment, and later comes to another thread than those that begin now."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _MapCall:
    """The items of one `Workers.map`: what the threads have done of them, and whether anybody still wants it."""

    def __init__(self) -> None:
        self.wanted = True
        self.done: SimpleQueue[tuple[int, tuple[Any, BaseException | None]]] = SimpleQueue()

    def do(self, place: int, function: Callable[[Any], Any], item: Any) -> None:
        """Called in a thread. The result, or the error that it ended with, goes to who waits for it."""
        try:
            self.done.put((place, (function(item), None)))
        except BaseException as error:
            self.done.put((place, (None, error)))

    def results(self, count: int) -> Iterator[Any]:
        """The results in order, each let go as it is taken. What has not begun is dropped where one raises."""
        early: dict[int, tuple[Any, BaseException | None]] = {}
        try:
            for place in range(count):
                while place not in early:
                    early.update((self.done.get(),))
                yield _result(*early.pop(place))
        finally:
            self.wanted = False


def _result(value: Any, error: BaseException | None) -> Any:
    if error is not None:
        raise error
    return value


class Workers:
    """``count`` threads, without gradients and with one intra-op thread each.

    torch's kernels release the interpreter's lock, so threads work side by side. A `Model` serves one thread at a time,
    so each thread has a copy. One thread is the caller itself.

    The caller waits in C alone: in a `SimpleQueue`, whose lock no exception can leave taken. A signal that raises
    KeyboardInterrupt inside a lock of Python's own `threading`, which `concurrent.futures` waits by, may leave it taken
    for ever, and then no thread ends. Only a thread's start waits so, while signals wait.
    """

    def __init__(self, model: Model, count: int) -> None:
        self.original, self.count = model, count
        self._own = threading.local()
        self._open = False  # whether the threads shall work
        self._threads: list[threading.Thread] = []
        self._work: SimpleQueue[tuple[_MapCall, int, Callable[[Any], Any], Any] | None] = SimpleQueue()

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
        if not self._open:
            # copied now: a thread may begin late, while the original is in the middle of a pass
            copies = [self.original.clone() for _ in range(self.count)]
            self._open = True
            atexit.register(self.close)
            with _no_signals():
                for copy in copies:
                    self._threads.append(threading.Thread(target=self._serve, args=(copy, flushed()), daemon=True))
                    self._threads[-1].start()
        here, batch, ahead = torch.no_grad()(function), _MapCall(), set(first)
        for i in (*first, *(i for i in range(len(work)) if i not in ahead)):
            self._work.put((batch, i, here, work[i]))
        return batch.results(len(work))

    def _serve(self, model: Model, flush: bool) -> None:
        torch.set_num_threads(1)
        torch.set_flush_denormal(flush)  # whether denormal numbers are taken for 0: a state of each thread
        self._own.model = model
        while (given := self._work.get()) is not None:
            if given[0].wanted and self._open:
                given[0].do(*given[1:])
            del given  # what it holds is large

    def close(self) -> None:
        """End the threads. Work that has not begun is dropped."""
        if self._open:
            self._open = False
            atexit.unregister(self.close)
            for _ in self._threads:
                self._work.put(None)
            while self._threads:
                self._threads.pop().join()


@dataclass(frozen=True, eq=False)
class Runtime:
    """A device and the threads that drive it. A GPU is driven by one thread."""

    workers: Workers
    device: torch.device
    dtype: torch.dtype  # of the parameters
    channels_last: bool  # images and kernels lie channels-last: convolutions on a CPU take half the time

    @classmethod
    def of(cls, model: Model, device: str, threads: int, channels_last: Sequence[str]) -> Runtime:
        """The runtime of a model on a device.

        Args:
            model: decides the dtype.
            device: "cpu", "cuda" or "cuda:NUMBER".
            threads: worker threads on a CPU; 0 takes every core.
            channels_last: types of device on which a model with 2-d convolutions uses that layout.
        """
        place = torch.device(device)
        workers = Workers(model, (threads or Workers.cores()) if place.type == "cpu" else 1)
        dtype = next(iter(model.params.values())).dtype
        return cls(workers, place, dtype, place.type in channels_last and "Conv2d" in model.layer_kinds)

    @property
    def net(self) -> Model:
        """The calling thread's copy of the model."""
        return self.workers.model

    def layout(self, tree_: Tree) -> Tree:
        """A tree whose leaves of four axes lie channels-last, where this runtime uses that layout."""
        if not self.channels_last:
            return tree_

        def channels_last(leaf: Tensor) -> Tensor:
            return leaf.contiguous(memory_format=torch.channels_last) if leaf.dim() == 4 else leaf

        return tree.map_tree(channels_last, tree_)

    def laid_out(self, broadcast: Broadcast) -> Broadcast:
        """A broadcast in the layout of this runtime; what each client is sent alone stays as it is."""
        whole = {name: self.layout(getattr(broadcast, name)) for name in ("params", "buffers", "common")}
        return broadcast._replace(**whole)

    def to_device(self, tree_: Tree) -> Tree:
        """A tree of dicts or a NamedTuple of such trees, on the device."""
        if self.device.type == "cpu":
            return tree_
        return each_leaf(lambda leaf: leaf.to(self.device, non_blocking=True), tree_)
