"""Paces: batch size, steps and rate."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedskew.component import Pace
from fedskew.errors import require
from fedskew.types import PacePlan

__all__ = ["Fixed", "Staged"]


@dataclass(frozen=True)
class Fixed(Pace):
    """The same batch size, epochs and rate for every client; lr_t = lr * decay^(t-1)."""

    name = "fixed"

    batch_size: int = 64
    """rows of a mini-batch B; 0 takes all rows of a client at once"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.batch_size >= 0, "--batch-size", "be at least 1, or 0 for all rows at once", self.batch_size)

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

    warmup: int = 5
    """rounds over which the rate grows"""
    first: int = 160
    """last round at the full rate"""
    second: int = 180
    """last round at the middle rate"""
    middle: float = 0.01
    """factor after ``first``"""
    end: float = 1e-4
    """factor after ``second``"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.warmup >= 0, "--pace.warmup", "be at least 0", self.warmup)
        require(self.first >= self.warmup, "--pace.first", f"be at least the warm-up, {self.warmup}", self.first)
        require(self.second >= self.first, "--pace.second", f"be at least --pace.first, {self.first}", self.second)
        require(self.middle > 0, "--pace.middle", "be positive", self.middle)
        require(self.end > 0, "--pace.end", "be positive", self.end)

    def of(self, used: Tensor, round: int, rounds: int) -> PacePlan:
        """Constant over clients [K]."""
        plan = super().of(used, round, rounds)
        late = self.end if round > self.second else self.middle if round > self.first else 1.0
        return plan._replace(lr=plan.lr * (late if round > self.warmup else round / self.warmup))
