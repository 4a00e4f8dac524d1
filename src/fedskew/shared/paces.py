"""Paces: batch size, steps and rate."""

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
    """The same batch size, epochs and rate for every client; lr_t = lr * decay^(t-1)."""

    name = "fixed"

    batch_size: Annotated[int, AtLeast(0, hint="0 takes all rows at once")] = 64
    """rows of a mini-batch B; 0 takes all rows of a client at once"""

    def of(self, used: Tensor, round: int, rounds: int) -> PacePlan:
        """Constant over clients [K]."""
        ones = torch.ones_like(used)
        rate = self.lr * self.decay ** (round - 1)
        return PacePlan(ones * self.batch_size, ones * self.epochs, ones * 0, ones.double() * rate)


@dataclass(frozen=True)
class Staged(Fixed):
    """lr_t = lr * decay^(t-1) * s_t, s_t = t / warmup at first, then 1, middle after round first, end after second.

    The two-stage schedule of Feature-Balanced Loss (CIFAR, 200 epochs of one client: rounds of one epoch).
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
        """Constant over clients [K]."""
        plan = super().of(used, round, rounds)
        late = self.end if round > self.second else self.middle if round > self.first else 1.0
        return plan._replace(lr=plan.lr * (late if round > self.warmup else round / self.warmup))
