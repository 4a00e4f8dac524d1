"""FedRL: the ratio loss, with class weights from rows that the server holds (Wang et al. 2021)."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew.errors import require
from fedskew.method import SGD, Component, Fixed, Method, Read, Uniform
from fedskew.method.parts import mean_gradient
from fedskew.types import Answers, Cohort, Federation, Params, Query, Task, Tree, View, What


def head_gradient(view: View) -> Tree:
    """The gradient of the mean cross-entropy by the classifier's weight, in evaluation mode, under its name."""
    name = view.ctx.task.weight
    return mean_gradient(view, {name: view.params[name]})


def minus_head_gradient(view: View) -> Tree:
    """Minus `head_gradient`: the direction in which a step of training would change the weight."""
    return {name: -gradient for name, gradient in head_gradient(view).items()}


@dataclass(frozen=True)
class RatioLoss(Component):
    """Cross-entropy with class weights that the server estimates on auxiliary rows.

    L = mean_b (alpha + beta Ra_y) CE_b with Ra_p = |sum_M DeltaW_p| / |sum_M mean_(q != p) DeltaW_q|. DeltaW_p is the
    change of the classifier after training the round's model on the auxiliary rows of class p, and M the weights that
    class p changes most. The weights serve the next round; the first has ones.

    `fedrl` trains at the authors' pace, at which a small federation stays at chance for a hundred rounds.

    The copy of FedGA's authors is `estimator="unflipped"`, `by="quotient"`, `zeros=True` and `serves="same"`
    with one auxiliary row a class; theirs are rows that clients train on, too. CLIMB's copy has
    `estimator="gradient"`, `ratio="row"` and `divide="weights"` with 5 rows a class.

    Source: Wang et al. 2021, https://arxiv.org/abs/2008.06217

    Example:
        >>> RatioLoss(beta=0.5).auxiliary
        63
    """

    name = "ratio_loss"
    keeps = "auxiliary rows and C weights at the server"
    compute = "server: C local runs a round"
    classification = True
    downloads = "C"
    auxiliary = 63

    alpha: float = 1.0
    """weight of plain cross-entropy"""
    beta: float = 0.1
    """weight of the ratio"""
    threshold: float = 0.8
    """a weight belongs to a class if no other class exceeds this share of its change"""
    by: Literal["signed", "magnitude", "quotient"] = "signed"
    """what "changes most" means: the largest signed change (the authors' code), the largest in size, or FedGA's copy"""
    zeros: bool = False
    """a largest change of exactly 0 gives the weight to its class, as in the authors' code and FedGA's copy"""
    estimator: Literal["training", "gradient", "unflipped"] = "training"
    """changes after training on a class's rows, minus their gradient, or the gradient itself (FedGA's copy)"""
    serves: Literal["next", "same"] = "next"
    """round that uses the weights: the next one, or the one at whose model they were estimated (FedGA's copy)"""
    broken_broadcast: bool = False
    """use the loss of the authors' code, whose weights do not act by class: mean weight times mean cross-entropy"""
    monitor: bool = False
    """estimate the cohort's class counts from the round's update: "estimated" in the server state"""
    ratio: Literal["masked", "row"] = "masked"
    """of sums over the weights that a class changes most, or, in CLIMB's copy, the mean over the class's own row"""
    divide: Literal["rows", "weights"] = "rows"
    """a mini-batch's sum is divided by its rows, or, in CLIMB's copy, by its rows' weights"""

    @property
    def reads(self) -> tuple[Read, ...]:
        """The rows of all participants, for the monitor; the rows that are trained on are the server's own."""
        return (Read("rows", "sum"),) if self.monitor else ()

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """Class weights, ones in the first round, and the auxiliary rows of a class."""
        rows = torch.tensor(len(fed.auxiliary_rows) / task.classes)
        named = {"head": {task.weight: torch.zeros(())}} if self.serves == "same" else {}  # for `receive`
        return {"weights": params[task.weight].new_ones(task.classes), "rows": rows, **named}

    def ask(self, state: Tree, round: int, key: Tensor) -> Query | None:
        """The change of the model after a client round on the auxiliary rows of each class."""
        what: dict[str, What] = {"training": "delta", "gradient": minus_head_gradient, "unflipped": head_gradient}
        return Query("all", what[self.estimator], rows="auxiliary")

    def receive(self, state: Tree, answers: Answers, key: Tensor) -> Tree:
        """The change of the model by class, kept until the round ends; where they serve this round, the weights too."""
        estimated = [self._weights(answers.values[name]) for name in state.get("head", ())]
        return {**state, "changes": answers.values, "weights": [*estimated, state["weights"]][0]}

    def _weights(self, d: Tensor) -> Tensor:
        masked = self.ratio == "masked"
        ratios = F.ratio_of_changes(d, self.threshold, by=self.by, zeros=self.zeros) if masked else F.ratio_of_rows(d)
        return F.ratio_weights(ratios, self.alpha, self.beta)

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """This round's class weights to all."""
        return {"weights": state["weights"]}, None

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """The weights estimated at this round's model, for the next round."""
        name, changes = cohort.task.weight, state["changes"][cohort.task.weight]
        after = {n: state[n] for n in ("weights", "rows", "head") if n in state}
        after |= {"weights": self._weights(changes)} if self.serves == "next" else {}
        if self.monitor:
            update, total = cohort.after[name] - cohort.before[name], cohort.reports.samples.sum()
            scale = state["rows"] * len(cohort.ids)
            after["estimated"] = F.ratio_monitor(changes, update, total, scale, self.threshold, self.by)
        return after, None

    def record(self, state: Tree) -> dict[str, Any]:
        """The next round's class weights, and the monitor's class counts."""
        return {n: [float(v) for v in state[n]] for n in ("weights", "estimated") if n in state}

    def loss(self, view: View) -> Tensor:
        """Mean weighted cross-entropy of the mini-batch, ()."""
        weights, batch = view.ctx.shared[self.name]["weights"], view.batch
        loss = batch.mean(F.ratio_loss(view.out.logits, batch.y, weights, self.broken_broadcast, batch.mask))
        return loss if self.divide == "rows" else loss / batch.mean(weights[batch.y]).clamp(min=1e-12)

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """The server must hold auxiliary rows."""
        rule = "be at least 1 row a class for ratio_loss, which trains on server data"
        require(len(fed.auxiliary_rows) > 0, "auxiliary", rule, 0)


def fedrl(alpha: float = 1.0, beta: float = 0.1) -> Method:
    """FedRL: the ratio loss at the authors' rate, 0.001; small federations stay at chance for a hundred rounds.

    The server estimates class weights for the next round from what training on a few rows of each class changes.

    The mean is uniform, and the server needs rows of each class, 63 by default. On 20 clients of the digits this pace
    is at chance after 100 rounds (0.13) where `lr` 0.1 without momentum gives 0.93; on 100 clients of Fashion-MNIST
    it reaches 0.73 in 50 rounds (notes/log.md). Set `pace` for a comparison at common settings.

    Source: Wang et al. 2021, https://arxiv.org/abs/2008.06217

    Args:
        alpha: Weight of plain cross-entropy.
        beta: Weight of the ratio; alpha = 1 and beta = 0 is FedAvg at this rate.

    Returns:
        The method.

    Example:
        >>> fedrl().pace.lr, fedrl().local
        (0.001, SGD(momentum=0.9, weight_decay=0.0005, clip=0.0))
    """
    return Method(
        "fedrl", parts=(RatioLoss(alpha, beta),), pace=Fixed(lr=0.001), weighting=Uniform(),
        local=SGD(momentum=0.9, weight_decay=5e-4), reference="wang2021",
    )  # fmt: skip
