"""FedLC: logits calibrated by the client's class counts (Zhang et al. 2022); and logit adjustment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from torch import Tensor

from fedskew import functional as F
from fedskew.fields import AtLeast
from fedskew.method import Component, Method
from fedskew.tree import Tree
from fedskew.types import Params, Task, View

if TYPE_CHECKING:
    from fedskew.data.federation import Federation

__all__ = ["LogitAdjustment", "LogitCalibration", "PooledLogitCalibration", "fedlc"]


@dataclass(frozen=True)
class LogitCalibration(Component):
    """CE of z_c - tau n_c^(-1/4); a class without rows is left out of the softmax. tau = 0 is cross-entropy."""

    name = "logit_calibration"
    compute = "O(C) a row"
    classification = True

    tau: Annotated[float, AtLeast(0)] = 1.0
    """strength of the margin"""
    denominator: Literal["full", "exclude_true"] = "full"
    """exclude_true is the printed equation, unbounded below"""
    missing: Literal["mask", "tiny"] = "mask"
    """a class without rows: left out of the softmax, or, in FL-bench, one of 1e-8 rows, a margin of 100 tau"""

    def loss(self, view: View) -> Tensor:
        """See the class."""
        options = (self.tau, self.denominator, self.missing)
        return view.batch.mean(F.fedlc_loss(view.out.logits, view.batch.y, view.ctx.used, *options))


@dataclass(frozen=True)
class PooledLogitCalibration(Component):
    """CE of z_c - tau n_c^(-1/4) with n_c the rows of all clients together: what PFLlib runs as FedLC."""

    name = "pooled_logit_calibration"
    compute = "O(C) a row"
    classification = True
    discloses = "class histogram, once"
    downloads = "C"

    tau: Annotated[float, AtLeast(0)] = 1.0
    """strength of the margin"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """{"counts": global histogram [C]}: the sum of the histograms that clients sent once."""
        return {"counts": fed.counts.sum(0)}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """The global histogram to all."""
        return state, None

    def loss(self, view: View) -> Tensor:
        """See the class."""
        counts = view.ctx.shared[self.name]["counts"]
        return view.batch.mean(F.fedlc_loss(view.out.logits, view.batch.y, counts, self.tau))


@dataclass(frozen=True)
class LogitAdjustment(Component):
    """CE of z_c + tau log(n_c / n): logit adjustment, with tau = 1 balanced softmax."""

    name = "logit_adjustment"
    reference = "menon2021"
    classification = True

    tau: float = 1.0
    """strength; 0 is cross-entropy"""

    def loss(self, view: View) -> Tensor:
        """See the class."""
        return view.batch.mean(F.logit_adjusted_loss(view.out.logits, view.batch.y, view.ctx.used, self.tau))


def fedlc(tau: float = 1.0) -> Method:
    """FedLC with the full denominator."""
    return Method("fedlc", parts=(LogitCalibration(tau),), reference="zhang2022")
