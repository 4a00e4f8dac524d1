"""Paces: batch size, number of steps and learning rate of the clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedskew.component import Pace
from fedskew.fields import Above, AtLeast, demand
from fedskew.types import PacePlan

__all__ = ["Fixed", "Staged"]


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

    lr_t = lr * decay^(t - 1) * s_t with s_t = t / warmup up to round ``warmup``, then 1, ``middle`` after round
    ``first``, and ``end`` after round ``second``. The defaults are those of Feature-Balanced Loss on CIFAR: 200 epochs
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
    """factor after ``first``"""
    end: Annotated[float, Above(0)] = 1e-4
    """factor after ``second``"""

    def __post_init__(self) -> None:
        super().__post_init__()
        demand(self, "first", self.first >= self.warmup, f"be at least warmup, {self.warmup}")
        demand(self, "second", self.second >= self.first, f"be at least first, {self.first}")

    def of(self, used: Tensor, round: int, rounds: int) -> PacePlan:
        """The fixed plan with the rate of this stage: tensors [K]."""
        plan = super().of(used, round, rounds)
        late = self.end if round > self.second else self.middle if round > self.first else 1.0
        return plan._replace(lr=plan.lr * (late if round > self.warmup else round / self.warmup))
