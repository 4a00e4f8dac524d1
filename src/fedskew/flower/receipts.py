"""What the server of a deployment knows of the clients' memory: a receipt for each, and what it has yet to send."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fedskew import tree
from fedskew.engines.memory import ClientMemory, Held
from fedskew.flower.memory import NONE
from fedskew.tree import Tree

__all__ = ["Receipts", "of_receipt", "receipt_in", "written_to"]

RECEIPT = "@receipt"  # beside the names of components: no component has it


class Kept(Held):
    """What the server keeps of clients' memories: receipts, and what it has yet to send them."""

    def __init__(self) -> None:
        super().__init__({})
        self.saved: list[dict[int, str]] = [{}, {}]  # receipts of the last two checkpoints

    def dump(self) -> Tree:
        """As `Held`; the receipts that are written here must stay at the nodes."""
        self.saved = [self.saved[1], {k: receipt_in(memory) for k, memory in self.kept.items()}]
        return super().dump()

    def load(self, dumped: Tree) -> None:
        """The inverse of `dump`."""
        self.write({int(client): memory for client, memory in dumped.items()})
        now = {k: receipt_in(memory) for k, memory in self.kept.items()}
        self.saved = [now, now]


class Receipts(ClientMemory):
    """Client memory as the server of a deployment knows it: a receipt for each client."""

    home: Kept

    def __init__(self) -> None:
        super().__init__({}, Kept())

    @property
    def empty(self) -> bool:
        """Never: what a client keeps is at its node."""
        return False

    def get(self, client: int) -> dict[str, Tree]:
        """The receipt, and what components wrote since then."""
        return self.pending.get(client) or self.home.read(client) or {}

    def put(self, client: int, memory: Mapping[str, Tree]) -> None:
        """A new receipt replaces all; what a component writes is kept beside it until the node has it."""
        fresh = RECEIPT in memory
        merged = dict(memory) if fresh else {**self.get(client), **memory}
        own: Callable[[Tensor], Tensor] = lambda leaf: leaf.detach().cpu().clone(memory_format=torch.contiguous_format)
        self.pending[client] = {name: tree.map_tree(own, value) for name, value in merged.items()}


def receipt_in(memory: Mapping[str, Tree]) -> str:
    """The receipt among what the server keeps of a client."""
    found = memory.get(RECEIPT)
    return NONE if found is None or not len(found["digest"]) else bytes(found["digest"].tolist()).hex()


def written_to(memory: Mapping[str, Tree]) -> dict[str, Tree]:
    """What the server has yet to send of what it keeps of a client."""
    return {name: value for name, value in memory.items() if name != RECEIPT}


def of_receipt(receipt: str) -> dict[str, Tree]:
    """The inverse of `receipt_in`."""
    return {RECEIPT: {"digest": torch.tensor(list(bytes.fromhex(receipt)), dtype=torch.uint8)}}
