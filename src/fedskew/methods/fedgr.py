"""FedGR: the unbalanced softmax and the gravitation regulariser (Guo et al. 2023)."""

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from fedskew import functional as F
from fedskew.fields import AtLeast
from fedskew.method import Component, Method, Read
from fedskew.types import Cohort, Params, Tree, View

Gamma = Literal["max1", "raw", "one", "weight"]

OF_ROWS: tuple[Read, ...] = (Read("labels", "each"), Read("rows", "each", "learning rate"), Read("update", "each"))


@dataclass(frozen=True)
class UnbalancedSoftmax(Component):
    """Cross-entropy over the client's classes, with each logit scaled by the rarity of its class.

    L = mean_b -log(exp(gamma_y z_y) / sum_c exp(gamma_c z_c)), c over the owned classes. gamma_c = n_min / n_c
    ("max1"), N_k / n_c ("raw", the printed formula), or 1 ("one": the owned classes alone are left). "weight" leaves
    the logits and weighs the rows: L = sum_b gamma_y CE_b / sum_b gamma_y.

    Source: Guo et al. 2023, equations 3 and 4, "weight" equations 5 and 6, code at https://github.com/Guosy-wxy/FedGR

    Example:
        >>> import torch
        >>> F.fedgr_gamma(torch.tensor([100.0, 10.0]), "max1")
        tensor([0.1000, 1.0000])
    """

    name = "unbalanced_softmax"
    compute = "O(C) a row"
    classification = True

    gamma: Gamma = "max1"
    """definition of gamma: the code's, the printed one, 1, or the code's as class weights"""
    missing: Literal["mask", "code"] = "mask"
    """labels without rows: left out of the softmax, or the authors' code's n_min / (4 n_max)"""

    @property
    def needs_two_classes(self) -> bool:
        """Where classes without rows are left out: of one class the softmax is 1."""
        return self.missing == "mask"

    def loss(self, view: View) -> Tensor:
        """Mean loss of the mini-batch, (); weighted by gamma_y for "weight"."""
        logits, y, counts = view.out.logits, view.batch.y, view.ctx.used
        loss = view.batch.mean(F.unbalanced_softmax_loss(logits, y, counts, self.gamma, self.missing))
        if self.gamma != "weight":
            return loss
        return loss / view.batch.mean(F.fedgr_gamma(counts.to(logits), "weight")[y]).clamp(min=1e-12)


@dataclass(frozen=True)
class Gravitation(Component):
    """One gradient step on the clients' classifier rows before they are averaged.

    U <- U - strength lr dReg/dU on the rows of owned classes. Reg attracts rows of the same class of different clients
    and repels rows of different classes.

    Source: Guo et al. 2023, equation 9 and algorithm 1, code at https://github.com/Guosy-wxy/FedGR

    Example:
        >>> Gravitation(strength=0.1)
        Gravitation(strength=0.1, row_average='all')
    """

    name = "gravitation"
    compute = "server: O((sum of owned labels)^2 F)"
    reads = OF_ROWS
    uploads = "C bits"

    strength: Annotated[float, AtLeast(0)] = 0.5
    """lambda; the step is lambda times the clients' learning rate"""
    row_average: Literal["all", "owners"] = "all"
    """clients in the mean of a global row: all participants, or those with the label"""

    def combine(self, state: Tree, cohort: Cohort) -> Params:
        """Deltas with corrected classifier rows."""
        name, owned = cohort.task.weight, cohort.used > 0
        before = cohort.before[name]
        owned = owned.to(before.device)
        step = self.strength * cohort.reports.lr[:, None, None].to(before)  # each client's own rate
        rows = F.gravitation_step(before + cohort.deltas[name], owned, step, self._mass(cohort))
        if self.row_average == "owners":
            mean = F.mean_rows(rows, owned, cohort.weights.average.to(rows), "owners")
            held = owned.any(0).unsqueeze(1)
            rows = mean.where(held, before).expand_as(rows)
        return {**cohort.deltas, name: rows - before}

    def _mass(self, cohort: Cohort) -> Tensor | None:
        """Weights of the anchors; None counts every row once."""
        return None


@dataclass(frozen=True)
class WeightedGravitation(Gravitation):
    """Gravitation whose anchors are weighted by rows: the regulariser as a mean over samples.

    What weighs what is our reading of the two equations, so both are options.
    The terms of the row of label i at client k count n_ki / n ("sample") or N_k / n ("client") instead of 1, with n the
    rows of all participants. The step becomes shorter, for "sample" by about the number of owned labels of all
    participants together, so that a `strength` tuned for `gravitation` does not serve here.

    Source: Guo et al. 2023, equations 10 and 15, https://doi.org/10.1007/978-3-031-30637-2_47

    Example:
        >>> import torch
        >>> F.gravitation_mass(torch.tensor([[3, 1], [0, 4]]), "client")
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]], dtype=torch.float64)
    """

    name = "weighted_gravitation"
    reads = (Read("histogram", "each"), *OF_ROWS)
    uploads = "C"
    reference = "guo2023"

    by: Literal["sample", "client"] = "sample"
    """rows that count: those of the label at the client, or all of the client"""

    def _mass(self, cohort: Cohort) -> Tensor | None:
        """n_ki / n or N_k / n of the rows that the participants trained on."""
        return F.gravitation_mass(cohort.used, self.by)


def fedgr(softmax: bool = True, gravitation: bool = True, strength: float = 0.5, gamma: Gamma = "weight") -> Method:
    """FedGR: the unbalanced softmax at the clients, the gravitation regulariser at the server, or one of them.

    The first weighs each row by the rarity of its class, among the client's classes; the second draws rows of one class
    in the clients' classifiers together and rows of different classes apart.

    Equation 3's gamma does not train. Of its readings "weight" (equations 5 and 6) is the default: it is the best on
    held-out training rows of six federations; "max1", the code's, is below FedAvg on four of them (notes/five.md).

    Where it fails: with one class at a client the softmax has one entry and nothing trains.

    The sample-weighted form of the regulariser is `weighted_gravitation` in the place of `gravitation`.

    Source: Guo et al. 2023, code at https://github.com/Guosy-wxy/FedGR

    Args:
        softmax: Use the unbalanced softmax.
        gravitation: Use the gravitation regulariser.
        strength: Factor lambda of the regulariser's step.
        gamma: Reading of gamma: "weight", "max1", "one" or "raw".

    Returns:
        The method.

    Example:
        >>> fedgr(gravitation=False).parts
        (UnbalancedSoftmax(gamma='weight', missing='mask'),)
    """
    client = (UnbalancedSoftmax(gamma),) if softmax else ()
    server = (Gravitation(strength),) if gravitation else ()
    return Method("fedgr", parts=(*client, *server), reference="guo2023")
