"""What comes out of local runs, whether it stayed finite, and how it becomes the results of a round.

Engines note a few numbers of every run, which are read once a round.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedskew import tree
from fedskew.engines.planning import ClientJob
from fedskew.errors import TrainingError
from fedskew.types import Cohort, Params, Report, Results, Tree, Weights

# Whether local runs stayed finite


KINDS = ("parameter", "buffer", "upload", "memory")
HINT = "a smaller learning rate or clipped gradients may help"


class Fault(NamedTuple):
    """The first value of a client's local run that is not finite."""

    client: int
    round: int
    step: int  # one-based; the last one for what is looked at after the run
    steps: int
    tensor: str  # "loss", or "parameter fc.weight", "buffer ...", "upload ...", "memory ..."
    value: float = float("nan")

    @property
    def words(self) -> str:
        """The fault as a sentence."""
        where = f"client {self.client}, round {self.round}, step {self.step} of {self.steps}"
        if self.tensor == "loss":
            return f"the loss became {self.value} at {where}"
        return f"the {self.tensor} is not finite at {where}"

    def to_json(self) -> dict[str, int | str]:
        """What a round's record says of a client that was dropped."""
        return {"client": self.client, "step": self.step, "tensor": self.tensor}


def not_finite(faults: Sequence[Fault], why: str = "") -> TrainingError:
    """The error for local runs of a round that are not finite; it names the first fault."""
    return TrainingError(f"{why}{faults[0].words}; {HINT}", tuple(faults))


class FiniteCheck(NamedTuple):
    """What tells whether k local runs stayed finite. Nothing of it is read before the round has trained."""

    clients: list[ClientJob]
    losses: Tensor  # [k, T]; 0 where a run is shorter
    names: list[str]  # of the tensors of ``bounds``, each twice
    bounds: list[Tensor]  # the least and the greatest value of each named tensor, [k] or (): both finite where it is
    reported: Fault | None = None  # by another machine, where its one client trained


class FiniteChecks:
    """Makes the checks of an engine.

    Extremes are exact, which a sum is not (it may overflow), and need no copy of the tensor. NaN is an extreme.
    """

    def __init__(self) -> None:
        self._endless: set[str] = set()  # memories that begin with an infinity, as "nothing seen yet" may be written

    def begin(self, template: Tree) -> None:
        """What every client's memory begins with."""
        leaves = tree.flatten({"memory": template})
        self._endless = {_spelled(p) for p, leaf in leaves if leaf is not None and not bool(torch.isfinite(leaf).all())}

    def of(self, clients: list[ClientJob], losses: Tensor, *after: dict[str, Any]) -> FiniteCheck:
        """A check of finished local runs.

        Args:
            clients: that have trained.
            losses: [k, T].
            *after: parameters, buffers, uploads and memories; leaves [k, ...], of one client also [...].
        """
        names: list[str] = []
        bounds: list[Tensor] = []
        for path, leaf in tree.flatten(dict(zip(KINDS, after, strict=True))):
            if leaf is None or not leaf.is_floating_point() or not leaf.numel():
                continue
            if (name := _spelled(path)) not in self._endless:
                rows, dims = (leaf.reshape(len(clients), -1), (1,)) if len(clients) > 1 else (leaf, ())
                names += [name, name]
                bounds += [rows.amin(dims), rows.amax(dims)]
        return FiniteCheck(clients, losses, names, bounds)


def _spelled(path: tuple[str, ...]) -> str:
    return f"{path[0]} {'.'.join(path[1:])}"


def require_finite(groups: Iterable[Sequence[FiniteCheck]], clients: Sequence[int] = ()) -> None:
    """Look at the local runs of a round.

    Args:
        groups: checks that count for themselves. Of the members of a chain, which are one group, only the first fault
            counts: the others began from its model.
        clients: in the order in which faults are listed, where checks are not in the order of the cohort.

    Raises:
        TrainingError: a loss, a parameter, a buffer, an upload or a memory is not finite.
    """
    waiting = [list(group) for group in groups]
    checks = [check for group in waiting for check in group]
    reported = any(check.reported for check in checks)
    if not reported and _all_finite([leaf for check in checks for leaf in (check.losses, *check.bounds)]):
        return
    faults: list[Fault] = []
    for group in waiting:
        failed = [fault for check in group for fault in _faults(check)]
        faults += failed if len(group) == 1 else failed[:1]
    if faults:
        order = {client: i for i, client in enumerate(clients)}
        raise not_finite(sorted(faults, key=lambda fault: order.get(fault.client, -1)) if clients else faults)


def _all_finite(leaves: list[Tensor]) -> bool:
    """Whether all values are finite; a device is asked once."""
    try:
        whole = torch.cat([leaf.flatten() for leaf in leaves])
    except RuntimeError:  # on two devices
        return all(bool(torch.isfinite(leaf).all()) for leaf in leaves)
    return bool(torch.isfinite(whole).all())


def _faults(check: FiniteCheck) -> Iterable[Fault]:
    """The first fault of each client that has one: a loss, else what is looked at after the run."""
    if check.reported is not None:
        yield check.reported
        return
    losses = check.losses.cpu()
    bounds = [bound.cpu().reshape(-1) for bound in check.bounds]
    for i, job in enumerate(check.clients):
        steps = max(len(job.plan.batches), 1)
        client, round = job.plan.client, int(job.job.shared.round)
        bad = torch.nonzero(~torch.isfinite(losses[i, :steps]))
        if len(bad):
            step = int(bad[0])
            yield Fault(client, round, step + 1, steps, "loss", float(losses[i, step]))
            continue
        for name, bound in zip(check.names, bounds, strict=True):
            if not torch.isfinite(bound[i]):
                yield Fault(client, round, steps, steps, name)
                break


# Outcomes and results


class Outcome(NamedTuple):
    """What one or more finished local runs give, leaves [k, ...]."""

    params: Params
    buffers: Params
    uploads: dict[str, Tree]
    memories: dict[str, Tree]
    reports: Report
    checks: tuple[FiniteCheck, ...] = ()  # one; of a chain, one a member
    kept: Params | None = None  # deltas [k, ...] on the host, beside their weighted sum in ``params``
    at: tuple[int, ...] = ()  # places of its clients in the cohort, which `Settle` notes


Settle = Callable[[Sequence[int], Outcome], Outcome]  # (places of its clients in the cohort, outcome) -> outcome


def identity(at: Sequence[int], outcome: Outcome) -> Outcome:
    """The outcome itself."""
    return outcome._replace(at=tuple(at))


def in_order(outcomes: Sequence[Outcome], field: Callable[[Outcome], Tree]) -> Tree:
    """What several outcomes hold, leaves [K, ...], in the order of the cohort.

    An engine may sort clients by their length. Where it has not, nothing is copied twice.
    """
    at = [i for outcome in outcomes for i in outcome.at]
    stacked = tree.concatenate([field(outcome) for outcome in outcomes])
    if at == sorted(at):
        return stacked
    order = torch.tensor(at).argsort()
    return tree.map_tree(lambda leaf: leaf[order.to(leaf.device)], stacked)


@dataclass(eq=False)
class Reduction:
    """Turns local parameters into deltas, and deltas into their weighted sum where the weights are known.

    `settle` runs in the thread that trained the client, while its parameters are at hand. `add` takes settled outcomes
    in the order in which they come, so that sums do not depend on the threads.
    """

    before: Params  # w^t, from which the clients started
    weights: Weights | None  # None: the server must see every delta
    keep: bool  # hand back every delta as well
    stays: frozenset[str] = frozenset()  # parameters that stay where they are: their delta is 0
    delta: Params | None = None  # the sum so far
    done: list[Outcome] = field(default_factory=list)

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

    def add(self, outcome: Outcome) -> None:
        """Take a settled outcome; of its weighted sum nothing is kept beside the sum of all."""
        if self.weights is not None:
            share = tree.row(outcome.params, 0)
            if self.delta is None:
                self.delta = share
            else:  # into its memory
                torch._foreach_add_(list(self.delta.values()), list(share.values()))
            outcome = outcome._replace(params={})
        self.done.append(outcome._replace(memories={}))

    def results(self, cohort: Cohort) -> Results:
        """The results of a round whose outcomes were added.

        Raises:
            TrainingError: something that a client trained is not finite.
        """
        done = self.done
        at = [i for outcome in done for i in outcome.at]
        require_finite([outcome.checks for outcome in done], cohort.ids.tolist() if at != sorted(at) else ())
        report = cohort.reports._replace(loss=in_order(done, lambda outcome: outcome.reports.loss).double().cpu())
        cohort = cohort._replace(reports=report, uploads=in_order(done, lambda outcome: outcome.uploads))
        kept = in_order(done, lambda outcome: outcome.kept) if done[0].kept is not None else None
        if self.weights is None:
            cohort = cohort._replace(deltas=in_order(done, lambda outcome: outcome.params))
            kept = tree.map_tree(Tensor.cpu, cohort.deltas) if self.keep else None
        return Results(cohort, self.delta, in_order(done, lambda outcome: outcome.buffers), kept)


def chained(members: Sequence[Outcome]) -> Outcome:
    """The outcome of a chain, which counts as one client: that of its last member, with the report of all.

    Samples, steps and FedNova's ||a||_1 add up, the loss is the mean over all steps, the rate is the first member's.
    """
    samples, steps, loss, a_norm = (
        torch.cat([getattr(outcome.reports, n) for outcome in members]) for n in ("samples", "steps", "loss", "a_norm")
    )

    def total(values: Tensor) -> Tensor:
        return values.sum(0, keepdim=True)

    mean = total(loss * steps) / total(steps).clamp(min=1)
    report = Report(total(samples), total(steps), members[0].reports.lr, mean, total(a_norm))
    return members[-1]._replace(reports=report, checks=tuple(check for outcome in members for check in outcome.checks))
