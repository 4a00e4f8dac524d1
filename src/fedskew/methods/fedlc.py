"""FedLC: logits calibrated by the client's class counts (Zhang et al. 2022); and logit adjustment."""

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from fedskew import functional as F
from fedskew.fields import AtLeast
from fedskew.method import Component, Method, Read
from fedskew.types import Federation, Params, Task, Tree, View


@dataclass(frozen=True)
class LogitCalibration(Component):
    """Cross-entropy of logits with a margin that is larger for rarer classes of the client.

    L = CE(z_c - tau n_c^(-1/4), y). A class without rows is left out of the softmax. tau = 0 is cross-entropy.

    Source: Zhang et al. 2022, https://arxiv.org/abs/2209.00189

    Example:
        >>> import torch
        >>> F.fedlc_loss(torch.ones(1, 3), torch.tensor([2]), torch.tensor([16.0, 81.0, 1.0]), 1.0)
        tensor([1.5253])
    """

    name = "logit_calibration"
    compute = "O(C) a row"
    classification = True

    tau: Annotated[float, AtLeast(0)] = 1.0
    """strength of the margin"""
    denominator: Literal["full", "exclude_true"] = "full"
    """exclude_true is the printed equation, unbounded below"""
    missing: Literal["mask", "tiny"] = "mask"
    """a class without rows: left out of the softmax, or counted as 1e-8 rows as in FL-bench, a margin of 100 tau"""

    @property
    def needs_two_classes(self) -> bool:
        """A class without rows is left out, or has a margin of 100 tau."""
        return self.tau >= 0.1 or (self.tau > 0 and self.missing == "mask")

    def loss(self, view: View) -> Tensor:
        """Mean cross-entropy of the calibrated logits, ()."""
        options = (self.tau, self.denominator, self.missing)
        return view.batch.mean(F.fedlc_loss(view.out.logits, view.batch.y, view.ctx.used, *options))


@dataclass(frozen=True)
class PooledLogitCalibration(Component):
    """Cross-entropy of logits with a margin from the rows of all clients together.

    L = CE(z_c - tau n_c^(-1/4), y) with n_c the rows of class c of all clients: what PFLlib runs as FedLC.

    Source: code of PFLlib, https://github.com/TsingZ0/PFLlib

    Example:
        >>> PooledLogitCalibration(tau=0.5)
        PooledLogitCalibration(tau=0.5)
    """

    name = "pooled_logit_calibration"
    compute = "O(C) a row"
    classification = True
    reads = (Read("histogram", "sum"),)
    downloads = "C"

    tau: Annotated[float, AtLeast(0)] = 1.0
    """strength of the margin"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """The global histogram: {"counts": [C]}, the sum of those that clients sent once."""
        return {"counts": fed.counts.sum(0)}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """The global histogram to all."""
        return state, None

    def loss(self, view: View) -> Tensor:
        """Mean cross-entropy of the calibrated logits, ()."""
        counts = view.ctx.shared[self.name]["counts"]
        return view.batch.mean(F.fedlc_loss(view.out.logits, view.batch.y, counts, self.tau))


@dataclass(frozen=True)
class LogitAdjustment(Component):
    """Cross-entropy of logits plus the logarithm of the client's class shares.

    L = CE(z_c + tau log(n_c / n), y); tau = 1 is the balanced softmax.

    Source: Menon et al. 2021, equation 10, https://arxiv.org/abs/2007.07314

    Example:
        >>> LogitAdjustment(tau=0.5)
        LogitAdjustment(tau=0.5)
    """

    name = "logit_adjustment"
    reference = "menon2021"
    classification = True

    tau: float = 1.0
    """strength; 0 is cross-entropy"""

    @property
    def needs_two_classes(self) -> bool:
        """A class without rows is left out."""
        return self.tau > 0

    def loss(self, view: View) -> Tensor:
        """Mean cross-entropy of the adjusted logits, ()."""
        return view.batch.mean(F.logit_adjusted_loss(view.out.logits, view.batch.y, view.ctx.used, self.tau))


def fedlc(tau: float = 1.0) -> Method:
    """FedLC: cross-entropy of logits that are lowered by a margin, the larger the rarer a class is on the client.

    The true class stays in the denominator of the softmax, as in usual cross-entropy.

    Source: Zhang et al. 2022, https://arxiv.org/abs/2209.00189

    Args:
        tau: Strength of the margin; 0 is FedAvg.

    Returns:
        The method.

    Example:
        >>> fedlc(tau=0.5).parts
        (LogitCalibration(tau=0.5, denominator='full', missing='mask'),)
    """
    return Method("fedlc", parts=(LogitCalibration(tau),), reference="zhang2022")
