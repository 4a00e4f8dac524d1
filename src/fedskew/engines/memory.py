"""What components keep on clients between rounds: on the device that trains, or in main memory."""

from __future__ import annotations

import torch
from torch import Tensor

from fedskew import tree
from fedskew.errors import RecordError
from fedskew.tree import Tree

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
