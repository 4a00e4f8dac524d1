"""The rows of the simulated clients, and of the server's auxiliary set, on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedskew import tree
from fedskew.client import KEPT
from fedskew.data.federation import Federation
from fedskew.data.store import Store
from fedskew.engines.memory import ClientMemory
from fedskew.engines.runtime import Runtime
from fedskew.server import Broadcast
from fedskew.types import Batch, Context, Task

Array = np.ndarray[Any, Any]


class Source(NamedTuple):
    """Rows that local runs and queries read: those of N clients, or the server's, where class c is client c."""

    rows: list[Array]  # of each client, positions in the training set
    labels: Array  # [n] of the training set
    counts: Tensor  # [N, C] rows of each class


def client_source(fed: Federation) -> Source:
    """The rows that the clients own."""
    return Source([fed.partition.of(k) for k in range(fed.clients)], fed.dataset.y.numpy(), fed.counts)


def auxiliary_source(fed: Federation) -> Source:
    """The rows that the server holds, a "client" for each class."""
    labels, rows = fed.dataset.y.numpy(), np.asarray(fed.auxiliary_rows)
    by_class = [rows[labels[rows] == c] for c in range(fed.dataset.classes)]
    return Source(by_class, labels, torch.diag(torch.tensor([len(r) for r in by_class])))


@dataclass(frozen=True, eq=False)
class Clients:
    """What a client can be shown: its rows, and the context of a round."""

    runtime: Runtime
    store: Store  # the training set
    task: Task
    own: Source

    def batch(self, rows: Array) -> Batch:
        """All of these rows as one mini-batch, normalised, not augmented."""
        at = torch.from_numpy(np.ascontiguousarray(rows)).to(self.runtime.device)
        mask = torch.ones(len(rows), dtype=self.runtime.dtype, device=self.runtime.device)
        return Batch(self.runtime.layout(self.store.floats(at)), self.store.y[at], mask)

    def context(self, broadcast: Broadcast, memory: ClientMemory, k: int, source: Source) -> Context:
        """The context of client ``k`` of a source outside a local run: all its rows, learning rate 0.

        A class of the auxiliary rows has no memory of its own: it gets the template.
        """
        kept = tree.map_tree(self._here, memory.get(k) if source is self.own else memory.template)
        shared = {name: dict(value) for name, value in broadcast.common.items()}
        counts = self._here(source.counts[k])
        lr = torch.zeros((), dtype=self.runtime.dtype, device=self.runtime.device)
        own = kept.pop(KEPT, {"params": {}, "buffers": {}})
        params, buffers = ({**getattr(broadcast, n), **self.runtime.layout(own[n])} for n in ("params", "buffers"))
        return Context(self.task, params, buffers, shared, kept, counts, counts, lr)

    def _here(self, leaf: Tensor) -> Tensor:
        return leaf.to(self.runtime.device)
