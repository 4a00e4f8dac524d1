"""Whether local runs stayed finite. Engines note a few numbers of every run; they are read once a round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedskew import tree
from fedskew.engines.jobs import Place
from fedskew.errors import TrainingError
from fedskew.tree import Tree

__all__ = ["Fault", "Watch", "check", "extremes", "fetched", "not_finite"]

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


def not_finite(faults: Sequence[Fault], told: str = "") -> TrainingError:
    """The error for local runs of a round that are not finite; it names the first fault."""
    return TrainingError(f"{told}{faults[0].words}; {HINT}", tuple(faults))


class Watch(NamedTuple):
    """What tells whether k local runs stayed finite. Nothing of it is read before the round has trained."""

    places: list[Place]
    losses: Tensor  # [k, T]; 0 where a run is shorter
    names: list[str]
    bounds: list[Tensor]  # the least and the greatest value of each named tensor, [k] or (); NaN where it has one


def extremes(found: Tree, k: int | None = None) -> tuple[list[str], list[Tensor]]:
    """(names, least and greatest value) of the floating-point leaves of a tree.

    Two reductions a tensor are the cheapest exact test: sums may overflow, and `torch.isfinite` makes a mask.

    Args:
        found: {"parameter": tree, "buffer": tree, ...}.
        k: leaves are [k, ...] and every row counts for itself; None: each leaf is of one client.
    """
    names: list[str] = []
    bounds: list[Tensor] = []
    for path, leaf in tree.flatten(found):
        if leaf is None or not leaf.is_floating_point() or not leaf.numel():
            continue
        names.append(f"{path[0]} {'.'.join(path[1:])}")
        if k is None:
            bounds += torch.aminmax(leaf)
        else:
            rows = leaf.reshape(k, -1)
            bounds += (rows.amin(1), rows.amax(1))
    return names, bounds


def check(groups: Iterable[Sequence[Watch]]) -> None:
    """Look at the local runs of a round.

    Args:
        groups: watches that count for themselves. Of the members of a chain, which are one group, only the first fault
            counts: the others began from its model.

    Raises:
        TrainingError: a loss, a parameter, a buffer, an upload or a memory is not finite.
    """
    waiting = [list(group) for group in groups]
    if _all_finite([leaf for group in waiting for w in group for leaf in (w.losses, *w.bounds)]):
        return
    faults: list[Fault] = []
    for group in waiting:
        found = [fault for watch in group for fault in _faults(watch)]
        faults += found if len(group) == 1 else found[:1]
    if faults:
        raise not_finite(faults)


def _all_finite(leaves: list[Tensor]) -> bool:
    """Whether all values are finite; a device is asked once."""
    alike: dict[tuple[torch.device, torch.dtype, int], list[Tensor]] = {}
    for leaf in leaves:
        alike.setdefault((leaf.device, leaf.dtype, leaf.dim()), []).append(leaf)
    flags: dict[torch.device, list[Tensor]] = {}
    for (device, _, axes), some in alike.items():
        whole = torch.cat([leaf.flatten() for leaf in some]) if axes else torch.stack(some)
        flags.setdefault(device, []).append(torch.isfinite(whole).all())
    return all(bool(torch.stack(some).all()) for some in flags.values())


def fetched(numbers: Sequence[Tensor]) -> Tensor:
    """Numbers (), on the host, float64 [n]; a device is asked once."""
    found = torch.empty(len(numbers), dtype=torch.float64)
    for device in {number.device for number in numbers}:
        at = [i for i, number in enumerate(numbers) if number.device == device]
        found[at] = torch.stack([numbers[i].double() for i in at]).cpu()
    return found


def _faults(watch: Watch) -> Iterable[Fault]:
    """The first fault of each client that has one: a loss, else what is looked at after the run."""
    losses = watch.losses.cpu()
    bounds = [b.cpu().reshape(-1) for b in watch.bounds]
    for i, place in enumerate(watch.places):
        steps = max(len(place.plan.batches), 1)
        client, round = place.plan.client, int(place.job.shared.round)
        bad = torch.nonzero(~torch.isfinite(losses[i, :steps]))
        if len(bad):
            step = int(bad[0])
            yield Fault(client, round, step + 1, steps, "loss", float(losses[i, step]))
            continue
        for j, name in enumerate(watch.names):
            if not (torch.isfinite(bounds[2 * j][i]) and torch.isfinite(bounds[2 * j + 1][i])):
                yield Fault(client, round, steps, steps, name)
                break
