"""Paces: batch size, number of steps and learning rate of the clients."""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedskew.fields import Above, AtLeast, Within, demand
from fedskew.method.component import Pace
from fedskew.types import PacePlan


@dataclass(frozen=True)
class Fixed(Pace):
    """The same batch size, number of epochs and learning rate for every client.

    lr_t = lr * decay^(t - 1) in round t = 1, 2, ...

    Source: McMahan et al. 2017, algorithm 1, https://arxiv.org/abs/1602.05629

    Example:
        >>> import torch
        >>> Fixed(lr=0.5, decay=0.1).of(torch.tensor([30, 40]), round=2, rounds=10).lr
        tensor([0.0500, 0.0500], dtype=torch.float64)
    """

    name = "fixed"

    batch_size: Annotated[int, AtLeast(0, hint="0 takes all rows at once")] = 64
    """rows of a mini-batch B; 0 takes all rows of a client at once"""

    def of(self, used: Tensor, round: int, rounds: int) -> PacePlan:
        """The same plan for every client: tensors [K]."""
        ones = torch.ones_like(used)
        rate = self.lr * self.decay ** (round - 1)
        return PacePlan(ones * self.batch_size, ones * self.epochs, ones * 0, ones.double() * rate)


@dataclass(frozen=True)
class Staged(Fixed):
    """The fixed pace with a warm-up and two drops of the learning rate.

    lr_t = lr * decay^(t - 1) * s_t with s_t = t / warmup up to round `warmup`, then 1, `middle` after round
    `first`, and `end` after round `second`. The defaults are those of Feature-Balanced Loss on CIFAR: 200 epochs
    of one client, as rounds of one epoch.

    Source: code of Li et al. 2022, https://arxiv.org/abs/2305.10772

    Example:
        >>> import torch
        >>> pace = Staged(lr=1.0, warmup=2, first=3, second=4)
        >>> [float(pace.of(torch.tensor([9]), t, 5).lr) for t in (1, 2, 3, 4, 5)]
        [0.5, 1.0, 1.0, 0.01, 0.0001]
    """

    name = "staged"
    reference = "li2022fbl"

    warmup: Annotated[int, AtLeast(0)] = 5
    """rounds over which the rate grows"""
    first: int = 160
    """last round at the full rate"""
    second: int = 180
    """last round at the middle rate"""
    middle: Annotated[float, Above(0)] = 0.01
    """factor after `first`"""
    end: Annotated[float, Above(0)] = 1e-4
    """factor after `second`"""

    def __post_init__(self) -> None:
        super().__post_init__()
        demand(self, "first", self.first >= self.warmup, f"be at least warmup, {self.warmup}")
        demand(self, "second", self.second >= self.first, f"be at least first, {self.first}")

    def of(self, used: Tensor, round: int, rounds: int) -> PacePlan:
        """The fixed plan with the rate of this stage: tensors [K]."""
        plan = super().of(used, round, rounds)
        late = self.end if round > self.second else self.middle if round > self.first else 1.0
        return plan._replace(lr=plan.lr * (late if round > self.warmup else round / self.warmup))


@dataclass(frozen=True)
class Steps(Fixed):
    """The same number of local steps for every client; `epochs` is ignored.

    Client k goes through its rows as often as it takes, shuffled anew each time, and stops after `steps` steps. A
    last mini-batch of a pass may be smaller than the others. All clients count alike, so quantity skew changes no
    client's reach; see FedNova for the same aim by weights.

    Source: Li et al. 2020, local steps E of SGD, https://arxiv.org/abs/1907.02189

    Example:
        >>> import torch
        >>> plan = Steps(batch_size=10, steps=7).of(torch.tensor([30, 200]), round=1, rounds=10)
        >>> plan.epochs, plan.total
        (tensor([3, 1]), tensor([7, 7]))
    """

    name = "steps"
    reference = "li2020convergence"

    steps: Annotated[int, AtLeast(1)] = 10
    """local steps of every client in a round"""

    def of(self, used: Tensor, round: int, rounds: int) -> PacePlan:
        """As many epochs as the steps take, and the steps: tensors [K]."""
        return _cut(super().of(used, round, rounds), used, torch.full_like(used, self.steps))


@dataclass(frozen=True)
class Part(Fixed):
    """A fractional number of epochs; `epochs` is ignored.

    Client k with S_k mini-batches an epoch takes max(1, round(part S_k)) steps.

    Example:
        >>> import torch
        >>> plan = Part(batch_size=10, part=1.5).of(torch.tensor([40, 5]), round=1, rounds=10)
        >>> plan.epochs, plan.total
        (tensor([2, 2]), tensor([6, 2]))
    """

    name = "part"

    part: Annotated[float, Above(0)] = 0.5
    """epochs of a round, such as 0.5 or 1.5"""

    def of(self, used: Tensor, round: int, rounds: int) -> PacePlan:
        """As many epochs as the steps take, and the steps: tensors [K]."""
        plan = super().of(used, round, rounds)
        total = (self.part * _batches(plan, used).double()).round().long()
        return _cut(plan, used, total.clamp(min=1))


@dataclass(frozen=True)
class Drops(Fixed):
    """The fixed pace whose learning rate drops after every so many rounds.

    lr_t = lr * decay^(t - 1) * factor^floor((t - 1) / every).

    Example:
        >>> import torch
        >>> pace = Drops(lr=1.0, every=2, factor=0.5)
        >>> [float(pace.of(torch.tensor([9]), t, 5).lr) for t in (1, 2, 3, 4, 5)]
        [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    name = "drops"

    every: Annotated[int, AtLeast(1)] = 100
    """rounds at one rate"""
    factor: Annotated[float, Above(0)] = 0.1
    """factor at each drop"""

    def of(self, used: Tensor, round: int, rounds: int) -> PacePlan:
        """The fixed plan with the rate of this round: tensors [K]."""
        plan = super().of(used, round, rounds)
        return plan._replace(lr=plan.lr * self.factor ** ((round - 1) // self.every))


@dataclass(frozen=True)
class Cosine(Fixed):
    """The fixed pace whose learning rate grows for some rounds and then falls along a cosine over the run.

    lr_t = lr * decay^(t - 1) * s_t with s_t = t / warmup up to round `warmup`, then
    s_t = floor + (1 - floor) (1 + cos(pi (t - 1 - warmup) / (T - warmup))) / 2 in a run of T rounds.

    Source: Loshchilov and Hutter 2017, eq. 5 with one period, https://arxiv.org/abs/1608.03983

    Example:
        >>> import torch
        >>> pace = Cosine(lr=1.0)
        >>> [round(float(pace.of(torch.tensor([9]), t, 4).lr), 3) for t in (1, 2, 3, 4)]
        [1.0, 0.854, 0.5, 0.146]
    """

    name = "cosine"
    reference = "loshchilov2017"

    warmup: Annotated[int, AtLeast(0)] = 0
    """rounds over which the rate grows"""
    floor: Annotated[float, Within(0, 1, "[]")] = 0.0
    """final rate as a share of lr"""

    @property
    def reads_rounds(self) -> bool:
        """True: the cosine ends with the run."""
        return True

    def of(self, used: Tensor, round: int, rounds: int) -> PacePlan:
        """The fixed plan with the rate of this round: tensors [K]."""
        plan = super().of(used, round, rounds)
        if round <= self.warmup:
            return plan._replace(lr=plan.lr * (round / self.warmup))
        along = (round - 1 - self.warmup) / max(rounds - self.warmup, 1)
        return plan._replace(lr=plan.lr * (self.floor + (1 - self.floor) * (1 + math.cos(math.pi * along)) / 2))


def _batches(plan: PacePlan, used: Tensor) -> Tensor:
    """Mini-batches of an epoch, [K]; 1 of a client without rows."""
    size = torch.where(plan.batch > 0, plan.batch, used).clamp(min=1)
    return ((used + size - 1) // size).clamp(min=1)


def _cut(plan: PacePlan, used: Tensor, total: Tensor) -> PacePlan:
    """The plan with as many epochs as `total` local steps take, [K]."""
    each = _batches(plan, used)
    return plan._replace(epochs=(total + each - 1) // each, total=total)
