"""What comes out of local runs, and how the outcomes of a cohort become the results of a round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedskew import tree
from fedskew.engines.finite import Watch, check
from fedskew.tree import Tree
from fedskew.types import Cohort, Params, Report, Results, Weights

__all__ = ["Outcome", "Reduction", "Settle", "as_it_is", "chained", "in_order"]


class Outcome(NamedTuple):
    """What one or more finished local runs give, leaves [k, ...]."""

    params: Params
    buffers: Params
    uploads: dict[str, Tree]
    memories: dict[str, Tree]
    reports: Report
    watches: tuple[Watch, ...] = ()  # one; of a chain, one a member
    kept: Params | None = None  # deltas [k, ...] on the host, beside their weighted sum in ``params``
    at: tuple[int, ...] = ()  # places of its clients in the cohort, which `Settle` notes


Settle = Callable[[Sequence[int], Outcome], Outcome]  # (places of its clients in the cohort, outcome) -> outcome


def as_it_is(at: Sequence[int], outcome: Outcome) -> Outcome:
    """The outcome itself."""
    return outcome._replace(at=tuple(at))


def in_order(outcomes: Sequence[Outcome], field: Callable[[Outcome], Tree]) -> Tree:
    """What several outcomes hold, leaves [K, ...], in the order of the cohort.

    An engine may sort clients by their length. Where it has not, nothing is copied twice.
    """
    at = [i for outcome in outcomes for i in outcome.at]
    found = tree.concatenate([field(outcome) for outcome in outcomes])
    if at == sorted(at):
        return found
    order = torch.tensor(at).argsort()
    return tree.map_tree(lambda leaf: leaf[order.to(leaf.device)], found)


@dataclass(frozen=True, eq=False)
class Reduction:
    """Turns local parameters into deltas, and deltas into their weighted sum where the weights are known.

    `settle` runs in the thread that trained the client, while its parameters are at hand. `collect` adds up in the
    order of the cohort, so that sums do not depend on the threads.
    """

    before: Params  # w^t, from which the clients started
    weights: Weights | None  # None: the server must see every delta
    keep: bool  # hand back every delta as well
    stays: frozenset[str] = frozenset()  # parameters that stay where they are: their delta is 0

    def settle(self, at: Sequence[int], outcome: Outcome) -> Outcome:
        """The outcome with deltas in place of parameters: [k, ...], or their weighted sum [1, ...]."""
        names, before = list(self.before), list(self.before.values())
        leaves = [
            x.expand_as(outcome.params[n]) if n in self.stays else outcome.params[n] for n, x in self.before.items()
        ]
        kept: Params | None = None
        if self.keep and self.weights is not None:  # on the host: the device has room for one stack, not for all
            kept = {n: (y - x).cpu() for n, y, x in zip(names, leaves, before, strict=True)}
        change = self._change(at, leaves, before)
        return outcome._replace(params=dict(zip(names, change, strict=True)), kept=kept, at=tuple(at))

    def _change(self, at: Sequence[int], leaves: list[Tensor], before: list[Tensor]) -> list[Tensor]:
        if self.weights is None:
            return [y - x for y, x in zip(leaves, before, strict=True)]
        share = self.weights.update[list(at)]
        if len(at) == 1:  # the bits of `aggregate`, by two calls for all parameters
            moved = torch._foreach_sub([leaf[0] for leaf in leaves], before)
            torch._foreach_mul_(moved, float(share[0].to(before[0].dtype)))
            return [leaf.unsqueeze(0) for leaf in moved]
        return [tree.aggregate(y - x, share).unsqueeze(0) for y, x in zip(leaves, before, strict=True)]

    def collect(self, cohort: Cohort, outcomes: Iterable[Outcome]) -> Results:
        """The results of a round, from settled outcomes; sums are taken in the order in which these come.

        Raises:
            TrainingError: something that a client trained is not finite.
        """
        delta: Params | None = None
        done: list[Outcome] = []
        for outcome in outcomes:
            if self.weights is not None:
                delta = _added(delta, tree.row(outcome.params, 0))
                outcome = outcome._replace(params={})
            done.append(outcome._replace(memories={}))
        stacked = any(len(outcome.at) > 1 for outcome in done)  # perhaps sorted
        check([outcome.watches for outcome in done], cohort.ids.tolist() if stacked else ())
        report = cohort.reports._replace(loss=in_order(done, lambda one: one.reports.loss).double().cpu())
        cohort = cohort._replace(reports=report, uploads=in_order(done, lambda one: one.uploads))
        kept = in_order(done, lambda one: one.kept) if done[0].kept is not None else None
        if self.weights is None:
            cohort = cohort._replace(deltas=in_order(done, lambda one: one.params))
            kept = tree.map_tree(Tensor.cpu, cohort.deltas) if self.keep else None
        return Results(cohort, delta, in_order(done, lambda one: one.buffers), kept)


def _added(total: Params | None, share: Params) -> Params:
    """total + share, in the memory of ``total``."""
    if total is None:
        return share
    torch._foreach_add_(list(total.values()), list(share.values()))
    return total


def chained(reports: list[Report]) -> Report:
    """The report of a chain, which counts as one client, from those of its members, leaves [1].

    Samples, steps and FedNova's ||a||_1 add up, the loss is the mean over all steps, the rate is the first member's.
    """
    samples, steps, loss, a_norm = (
        torch.cat([getattr(r, n) for r in reports]) for n in ("samples", "steps", "loss", "a_norm")
    )

    def total(values: Tensor) -> Tensor:
        return values.sum(0, keepdim=True)

    mean = total(loss * steps) / total(steps).clamp(min=1)
    return Report(total(samples), total(steps), reports[0].lr, mean, total(a_norm))
