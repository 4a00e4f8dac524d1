"""FedVC: virtual clients of one size, sampled in proportion to the real ones (Hsu et al. 2020)."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from fedskew import rng
from fedskew.fields import AtLeast
from fedskew.method import Method, Read, Selector, Uniform, draw_clients
from fedskew.method.samplers import Shuffle, batched
from fedskew.types import Assignment, Federation, Params, Task, Tree

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class VirtualClient(Shuffle):
    """`size` random rows of the client in every round; with replacement where it has fewer.

    Source: Hsu et al. 2020, https://arxiv.org/abs/2003.08082

    Example:
        >>> VirtualClient(size=64)
        VirtualClient(size=64)
    """

    name = "virtual_client"

    size: Annotated[int, AtLeast(1)] = 256
    """N_VC, rows of a virtual client"""

    def offer(self, counts: Tensor, state: Tree, round: int, key: Tensor) -> Tensor:
        """The expected histogram: counts scaled to `size`, rounded by largest remainders."""
        share = counts.double() * self.size / counts.sum(1, keepdim=True).clamp(min=1)
        whole = share.floor()
        missing = (counts.sum(1) > 0) * self.size - whole.sum(1)
        rank = torch.argsort(torch.argsort(share - whole, dim=1, descending=True, stable=True), dim=1)
        expected: Tensor = whole + (rank < missing.round().unsqueeze(1))
        return expected.long()

    def plan(
        self, labels: Array, offered: Array, quota: Array | None, pace: tuple[int, int, int], shared: Tree, key: Tensor
    ) -> Array:
        """One draw a round; every epoch shuffles it into mini-batches [E, S, B]."""
        draw = rng.generator(key)
        return batched(draw.choice(len(labels), self.size, replace=len(labels) < self.size), pace, draw)


@dataclass(frozen=True)
class BySize(Selector):
    """k clients without replacement, with probability in proportion to their rows.

    Source: Hsu et al. 2020, https://arxiv.org/abs/2003.08082

    Example:
        >>> BySize()
        BySize()
    """

    name = "by_size"
    reads = (Read("rows", "each"),)

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """The rows of each client: {"sizes": [N]}."""
        return {"sizes": fed.sizes}

    def select(self, state: Tree, k: int, key: Tensor) -> Assignment:
        """Chains of one client, ordered by id."""
        return Assignment(draw_clients(state["sizes"], k, key, proportional=True).unsqueeze(1))


def fedvc(size: int = 256) -> Method:
    """FedVC: clients act as virtual clients of one size, averaged uniformly.

    Each draws the same number of rows in a round, and clients with more rows are chosen more often.

    Source: Hsu et al. 2020, https://arxiv.org/abs/2003.08082

    Args:
        size: Rows N_VC of a virtual client.

    Returns:
        The method.

    Example:
        >>> fedvc(64).sampler
        VirtualClient(size=64)
    """
    return Method(
        "fedvc", sampler=VirtualClient(size), selector=BySize(), weighting=Uniform(),
        reference="hsu2020",
    )  # fmt: skip
