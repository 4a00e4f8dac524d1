"""How long clients of other machines train, from the counts that they declare: no row is drawn at the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew.component import Sampler
from fedskew.engines.clients import Source
from fedskew.engines.guard import unguarded
from fedskew.engines.jobs import Jobs
from fedskew.engines.planning import Member, Pace, Plan, Planner
from fedskew.method import Method
from fedskew.methods.fedvc import VirtualClient
from fedskew.shared.samplers import WIDE, ClassBalanced, Shuffle
from fedskew.tree import Tree

__all__ = ["Counting", "Keyless", "steps_of"]

Array = np.ndarray[Any, Any]


class Counting(Planner):
    """Plans of clients whose rows are elsewhere: how many steps they take. Memory does not follow what a node claims.

    The rows of a sampler of the user's own are drawn, since only it knows how many they are; ``flower.most_rows``
    bounds them.
    """

    def one(self, method: Method, source: Source, at: Member, pace: Pace, shared: Tree, key: int) -> Plan:
        """The plan of one client."""
        owned, sampler = source.counts[at.client], unguarded(method).sampler
        known = DRAWN.get(next(cls for cls in type(sampler).__mro__ if "plan" in vars(cls)))
        if known is None:
            labels = np.repeat(np.arange(len(owned)), owned.numpy())
            rows = [np.arange(len(labels))] * (at.client + 1)
            return super().one(method, Source(rows, labels, source.counts), at, pace, shared, key)
        drawn = known(sampler, owned.numpy(), np.minimum(at.offered.numpy(), at.used.rows))
        steps, none = steps_of(drawn, pace), np.int64(-1)
        batches = np.broadcast_to(none, (steps, method.local.batches, 1))  # no memory, whatever the steps
        return Plan(
            at.client, np.empty(0, np.int64), batches, np.broadcast_to(none, steps), pace[1], pace[3], at.used.total,
            owned, at.offered, at.used.counts, at.member, pace,
        )  # fmt: skip


class Keyless(Jobs):
    """Places of clients that train elsewhere, and fold the keys of their steps for themselves."""

    def keys(self, plans: list[Plan], round: int, m: int) -> list[Tensor]:
        """None."""
        return [torch.empty(0, 0, dtype=torch.int64)] * len(plans)


def steps_of(drawn: int, pace: Pace) -> int:
    """Local steps of a client that draws so many rows an epoch: what `fedskew.shared.samplers.batched` would give."""
    batch, epochs, most, _, total = pace
    all_rows = max(drawn, 1)
    size = min(batch, all_rows) if batch > WIDE else batch or all_rows
    each = -(-drawn // size)
    steps = epochs * (min(each, most) if most else each)
    return min(steps, total) if total > 0 else steps


def _shuffled(sampler: Any, owned: Array, wanted: Array) -> int:
    return int(wanted[owned > 0].sum())


def _balanced(sampler: Any, owned: Array, wanted: Array) -> int:
    return int(wanted.sum()) if ((wanted > 0) & (owned > 0)).any() else 0


def _virtual(sampler: Any, owned: Array, wanted: Array) -> int:
    return int(sampler.size) if owned.any() else 0


DRAWN: dict[type[Sampler], Callable[[Any, Array, Array], int]] = {  # rows of an epoch: (sampler, owned, wanted) [C]
    Shuffle: _shuffled, ClassBalanced: _balanced, VirtualClient: _virtual,
}  # fmt: skip
