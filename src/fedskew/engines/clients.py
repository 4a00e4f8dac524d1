"""What an engine knows of clients: their rows and the server's auxiliary set on the device, and what they keep."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedskew import tree
from fedskew.client import PRIVATE
from fedskew.data.federation import Federation
from fedskew.data.inputs import RowStore
from fedskew.engines.runtime import Runtime
from fedskew.errors import RecordError, afford
from fedskew.server import Broadcast
from fedskew.tree import Tree
from fedskew.types import Batch, Context, Task

Memory = dict[str, Tree]


def _own(leaf: Tensor, place: torch.device) -> Tensor:
    """A contiguous copy. Sums over another layout round differently, and a checkpoint keeps no layout."""
    return leaf.detach().to(place).clone(memory_format=torch.contiguous_format)


def place_of(template: Memory) -> torch.device:
    """The device of a template; all its tensors are on one."""
    return next((leaf.device for leaf in tree.leaves(template)), torch.device("cpu"))


class ClientMemory:
    """Memory by client id. Only clients that took part are stored; the others have the template.

    All memories are on the device of the template, so that clients of all kinds can be stacked. A round's writes wait
    in ``pending`` until `settle` says whether the round came to its end, so that an interrupted round leaves nothing.
    """

    def __init__(self, template: Memory) -> None:
        """``template`` is the memory of a client that has not taken part, on the device where memories are kept."""
        self.template, self.place = template, place_of(template)
        self.kept: dict[int, Memory] = {}
        self.pending: dict[int, Memory] = {}
        self.round = 0  # whose writes are pending

    @property
    def empty(self) -> bool:
        """Whether no component keeps anything."""
        return not any(True for _ in tree.leaves(self.template))

    def get(self, client: int) -> Memory:
        """One client's memory, {component: tree}."""
        return self.pending.get(client) or self.kept.get(client) or self.template

    def put(self, client: int, memory: Memory) -> None:
        """Replace what the components in ``memory`` keep on this client; what others keep stays."""
        if not self.empty:
            merged = {**self.get(client), **memory}
            self.pending[client] = {n: tree.map_tree(lambda t: _own(t, self.place), merged[n]) for n in self.template}

    def put_all(self, clients: Sequence[int], memories: Memory) -> None:
        """`put` for several clients, leaves [k, ...]."""
        for i, client in enumerate(() if self.empty else clients):
            self.put(client, tree.row(memories, i))

    def begin(self, round: int) -> None:
        """Open a round: the writes that follow are its own."""
        self.settle(round - 1)
        self.round = round

    def settle(self, done: int) -> None:
        """Keep the open round's writes if it is among the rounds that are done, else drop them. Safe to repeat."""
        if self.round <= done:
            self.kept.update(self.pending)
        self.pending = {}

    def dump(self) -> Tree:
        """What a checkpoint must hold for `load`: {client id: {component: tree}}."""
        return {str(client): memory for client, memory in sorted(self.kept.items())}

    def load(self, dumped: Tree) -> None:
        """The inverse of `dump`. Components that keep nothing come from the template.

        Raises RecordError where an earlier version kept them in a file of the run folder.
        """
        if "slots" in dumped:
            raise RecordError("the clients' memories are in memory.bin, which this version does not read: run it again")
        whole = {int(k): {n: memory.get(n, t) for n, t in self.template.items()} for k, memory in dumped.items()}
        self.kept.update(tree.map_tree(lambda t: t.to(self.place), whole))
        self.pending = {}


Array = np.ndarray[Any, Any]


class RowSource(NamedTuple):
    """Rows that local runs and queries read: those of N clients, or the server's, where class c is client c."""

    rows: list[Array]  # of each client, positions in the training set
    labels: Array  # [n] of the training set
    counts: Tensor  # [N, C] rows of each class


def client_source(fed: Federation) -> RowSource:
    """The rows that the clients own."""
    return RowSource([fed.partition.of(k) for k in range(fed.clients)], fed.dataset.y.numpy(), fed.counts)


def auxiliary_source(fed: Federation) -> RowSource:
    """The rows that the server holds, a "client" for each class; no client where it holds none.

    Raises:
        DataError: the counts [C, C] do not fit into memory.
    """
    labels, rows, classes = fed.dataset.y.numpy(), np.asarray(fed.auxiliary_rows), fed.dataset.classes
    if not len(rows):
        return RowSource([], labels, torch.zeros(0, classes, dtype=torch.int64))
    afford(8 * classes**2, f"the label counts of auxiliary rows of {classes} classes")
    by_class = [rows[labels[rows] == c] for c in range(classes)]
    return RowSource(by_class, labels, torch.diag(torch.tensor([len(r) for r in by_class])))


@dataclass(frozen=True, eq=False)
class Clients:
    """What a client can be shown: its rows, and the context of a round."""

    runtime: Runtime
    store: RowStore  # the training set
    task: Task
    source: RowSource

    def batch(self, rows: Array) -> Batch:
        """All of these rows as one mini-batch, normalised, not augmented."""
        at = torch.from_numpy(np.ascontiguousarray(rows)).to(self.runtime.device)
        mask = torch.ones(len(rows), dtype=self.runtime.dtype, device=self.runtime.device)
        return Batch(self.runtime.layout(self.store.floats(at)), self.store.y[at], mask)

    def context(self, broadcast: Broadcast, memory: ClientMemory, k: int, source: RowSource) -> Context:
        """The context of client ``k`` of a source outside a local run: all its rows, learning rate 0.

        A class of the auxiliary rows has no memory of its own: it gets the template.
        """
        kept = tree.map_tree(self._here, memory.get(k) if source is self.source else memory.template)
        shared = {name: dict(value) for name, value in broadcast.common.items()}
        counts = self._here(source.counts[k])
        lr = torch.zeros((), dtype=self.runtime.dtype, device=self.runtime.device)
        private = kept.pop(PRIVATE, {"params": {}, "buffers": {}})
        params, buffers = ({**getattr(broadcast, n), **self.runtime.layout(private[n])} for n in ("params", "buffers"))
        return Context(self.task, params, buffers, shared, kept, counts, counts, lr)

    def _here(self, leaf: Tensor) -> Tensor:
        return leaf.to(self.runtime.device)
