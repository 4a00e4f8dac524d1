"""Whether local runs stayed finite. Engines note a few numbers of every run; they are read once a round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedskew import tree
from fedskew.engines.jobs import Place
from fedskew.errors import TrainingError
from fedskew.tree import Tree
from fedskew.types import Results

__all__ = ["Fault", "Watch", "Watcher", "check", "extremes", "fetched", "not_finite"]

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


def not_finite(faults: Sequence[Fault], told: str = "") -> TrainingError:
    """The error for local runs of a round that are not finite; it names the first fault."""
    return TrainingError(f"{told}{faults[0].words}; {HINT}", tuple(faults))


class Watch(NamedTuple):
    """What tells whether k local runs stayed finite. Nothing of it is read before the round has trained."""

    places: list[Place]
    losses: Tensor  # [k, T]; 0 where a run is shorter
    names: list[str]
    sums: list[Tensor]  # of each named tensor, [k] or (): not finite where the tensor is not
    told: Fault | None = None  # what another machine, where its one client trained, has found


class Watcher:
    """Makes the watches of an engine.

    The sum of a tensor is the cheapest number that is not finite where the tensor is not. It may overflow, so a round
    that looks faulty is trained again with ``exact``, and only that says so.
    """

    def __init__(self) -> None:
        self.exact = False
        self._endless: set[str] = set()  # memories that begin with an infinity, as "nothing seen yet" may be written

    def birth(self, template: Tree) -> None:
        """What every client's memory begins with."""
        found = tree.flatten({"memory": template})
        self._endless = {_spelled(p) for p, leaf in found if leaf is not None and not bool(torch.isfinite(leaf).all())}

    def watch(self, places: list[Place], losses: Tensor, *after: dict[str, Any]) -> Watch:
        """A watch over finished local runs.

        Args:
            places: of the clients.
            losses: [k, T].
            *after: parameters, buffers, uploads and memories; leaves [k, ...], of one client also [...].
        """
        names, sums = [], []
        for path, leaf in tree.flatten(dict(zip(KINDS, after, strict=True))):
            if leaf is not None and leaf.is_floating_point() and (name := _spelled(path)) not in self._endless:
                names.append(name)
                sums.append(_sum(leaf - leaf if self.exact else leaf, len(places)))  # exactly: 0, or NaN
        return Watch(places, losses, names, sums)

    def settled(self, train: Callable[[], Results], forget: Callable[[], None]) -> Results:
        """The results of a round, trained a second time where sums are not finite and may only have overflowed.

        Args:
            train: trains the round.
            forget: undoes what the first time left behind.

        Raises:
            TrainingError: something is not finite.
        """
        try:
            return train()
        except TrainingError as error:
            if not any(fault.tensor.partition(" ")[0] in KINDS for fault in error.faults):
                raise
        forget()
        self.exact = True
        try:
            return train()
        finally:
            self.exact = False


def _spelled(path: tuple[str, ...]) -> str:
    return f"{path[0]} {'.'.join(path[1:])}"


def _sum(leaf: Tensor, k: int) -> Tensor:
    return leaf.sum() if k == 1 else leaf.reshape(k, -1).sum(1)


def extremes(found: Tree) -> tuple[list[str], list[Tensor]]:
    """(names, least and greatest value ()) of the floating-point leaves of a tree.

    Args:
        found: {"parameter": tree, "buffer": tree, ...}.
    """
    names: list[str] = []
    bounds: list[Tensor] = []
    for path, leaf in tree.flatten(found):
        if leaf is not None and leaf.is_floating_point() and leaf.numel():
            names.append(_spelled(path))
            bounds += torch.aminmax(leaf)
    return names, bounds


def check(groups: Iterable[Sequence[Watch]], clients: Sequence[int] = ()) -> None:
    """Look at the local runs of a round.

    Args:
        groups: watches that count for themselves. Of the members of a chain, which are one group, only the first fault
            counts: the others began from its model.
        clients: in the order in which faults are told, where watches are not in the order of the cohort.

    Raises:
        TrainingError: a loss, a parameter, a buffer, an upload or a memory is not finite.
    """
    waiting = [list(group) for group in groups]
    told = any(w.told for group in waiting for w in group)
    if not told and _all_finite([leaf for group in waiting for w in group for leaf in (w.losses, *w.sums)]):
        return
    faults: list[Fault] = []
    for group in waiting:
        found = [fault for watch in group for fault in _faults(watch)]
        faults += found if len(group) == 1 else found[:1]
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


def fetched(numbers: Sequence[Tensor]) -> Tensor:
    """Numbers (), on the host, float64 [n]; a device is asked once."""
    try:
        return torch.stack(list(numbers)).cpu().double()
    except RuntimeError:  # of two dtypes, or on two devices
        found = torch.empty(len(numbers), dtype=torch.float64)
        for device in {number.device for number in numbers}:
            at = [i for i, number in enumerate(numbers) if number.device == device]
            found[at] = torch.stack([numbers[i].double() for i in at]).cpu()
        return found


def _faults(watch: Watch) -> Iterable[Fault]:
    """The first fault of each client that has one: a loss, else what is looked at after the run."""
    if watch.told is not None:
        yield watch.told
        return
    losses = watch.losses.cpu()
    sums = [s.cpu().reshape(-1) for s in watch.sums]
    for i, place in enumerate(watch.places):
        steps = max(len(place.plan.batches), 1)
        client, round = place.plan.client, int(place.job.shared.round)
        bad = torch.nonzero(~torch.isfinite(losses[i, :steps]))
        if len(bad):
            step = int(bad[0])
            yield Fault(client, round, step + 1, steps, "loss", float(losses[i, step]))
            continue
        for name, total in zip(watch.names, sums, strict=True):
            if not torch.isfinite(total[i]):
                yield Fault(client, round, steps, steps, name)
                break
