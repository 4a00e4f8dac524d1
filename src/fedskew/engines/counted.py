"""Rounds planned from counts alone: rows are elsewhere, or are not what the server knows of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fedskew.data.federation import Federation
from fedskew.engines.clients import RowSource
from fedskew.engines.guard import unguarded
from fedskew.engines.planning import Member, Pace, Plan, Planner, length_of
from fedskew.method import Method, Sampler
from fedskew.method.samplers import ClassBalanced, Shuffle
from fedskew.methods.fedvc import VirtualClient
from fedskew.server import Broadcast
from fedskew.types import Assignment, Cohort, Tree

Array = np.ndarray[Any, Any]


def declared_rows(fed: Federation) -> RowSource:
    """Rows that are elsewhere: how many of each class the clients declare, and no row of them."""
    none = np.empty(0, np.int64)
    return RowSource([none] * len(fed.counts), none, fed.counts)


class StepPlanner(Planner):
    """Plans of clients whose rows are elsewhere: how many steps they take. Memory does not follow what they declare.

    The rows of a sampler of the user's own are drawn, since only it knows how many they are.
    """

    def plan(self, method: Method, source: RowSource, at: Member, pace: Pace, shared: Tree, round: int) -> Plan:
        """The plan of one client."""
        owned, sampler = source.counts[at.client], unguarded(method).sampler
        drawn_by = DRAWN.get(next(cls for cls in type(sampler).__mro__ if "plan" in vars(cls)))
        if drawn_by is None:
            labels = np.repeat(np.arange(len(owned)), owned.numpy())
            rows = [np.arange(len(labels))] * (at.client + 1)
            return super().plan(method, RowSource(rows, labels, source.counts), at, pace, shared, round)
        drawn = drawn_by(sampler, owned.numpy(), torch.minimum(at.offered, at.used).numpy())
        steps, none = length_of(drawn, pace), np.int64(-1)
        batches = np.broadcast_to(none, (steps, method.local.batches, 1))  # no memory, whatever the steps
        return Plan(
            at.client, np.empty(0, np.int64), batches, np.broadcast_to(none, steps), pace[1], pace[3],
            int(at.used.sum()), owned, at.offered, at.used, at.member, pace,
        )  # fmt: skip


DRAWN: dict[type[Sampler], Callable[[Any, Array, Array], int]] = {  # rows of an epoch: (sampler, owned, wanted) [C]
    Shuffle: lambda sampler, owned, wanted: int(wanted[owned > 0].sum()),
    ClassBalanced: lambda sampler, owned, wanted: int(wanted.sum()) if ((wanted > 0) & (owned > 0)).any() else 0,
    VirtualClient: lambda sampler, owned, wanted: int(sampler.size) if owned.any() else 0,
}


def as_declared(
    cohort: Cohort, method: Method, assignment: Assignment, broadcast: Broadcast, fed: Federation, seed: int
) -> Cohort:
    """A cohort whose rows and steps are those of the counts that clients declare. Their losses stay.

    Args:
        cohort: of the round.
        method: its sampler, pace and local step say what clients of these counts do.
        assignment: of the round.
        broadcast: of the round.
        fed: the federation as the server knows it.
        seed: of the run.
    """
    planner = StepPlanner(cohort.task, seed)
    plans = planner.plans(method, assignment, broadcast, declared_rows(fed))
    declared = planner.cohort(method, plans, broadcast)
    reports = declared.reports._replace(loss=cohort.reports.loss)
    return cohort._replace(owned=declared.owned, offered=declared.offered, used=declared.used, reports=reports)
