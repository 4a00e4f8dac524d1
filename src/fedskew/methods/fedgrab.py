"""Fed-GraB: binary losses whose positive and negative gradients a controller balances (Xiao et al. 2023)."""

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import rng
from fedskew.errors import require
from fedskew.fields import Within
from fedskew.method import SGD, Component, Fixed, Method
from fedskew.types import Cohort, Federation, Params, Task, Tree, View


@dataclass(frozen=True)
class GradientBalancer(Component):
    """Binary cross-entropy of each class, with weights that a PID controller sets for positive and negative rows.

    L = mean_b sum_c w_c BCE_c with w_c = f(u_c) for the row's own class and f(-u_c) for the others, f(x) = (10/9) /
    (1/9 + e^(-x/2)). u_c follows an incremental PID controller on the error -(P_c - N_c), P_c and N_c the accumulated
    sizes of positive and negative gradients of class c. Gains of 0 give plain BCE.

    The released script puts every class under control, and its hook sets the weights of classes that it draws anew for
    each mini-batch back to 1 and leaves their gradients out of P and N (`release`). The paper's prior analyser stands
    in the repository, but the script does not call it: the part `prior_analyser`. The script also trains the backbone
    alone: its optimizer does not hold the classifier, which fedskew trains.

    Source: Xiao et al. 2023, https://arxiv.org/abs/2310.07587

    Example:
        >>> F.fedgrab_map(torch.tensor([-2.0, 0.0, 2.0]))
        tensor([0.3927, 1.0000, 2.3197])
    """

    name = "gradient_balancer"
    keeps = "5 C on every client"
    compute = "O(C) a row"
    classification = True

    kp: float = 10.0
    """proportional gain"""
    ki: float = 0.01
    """integral gain"""
    kd: float = 0.1
    """derivative gain"""
    release: bool = False
    """keep weight 1 for classes drawn at random in each mini-batch, as in the released code"""

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        """Zeros [C] for every class: both accumulators, the last two errors and the output u."""
        zero = torch.zeros(task.classes, dtype=params[task.weight].dtype, device=params[task.weight].device)
        return dict.fromkeys(("positive", "negative", "earlier", "previous", "u"), zero)

    def _controlled(self, view: View) -> Tensor:
        """1 for classes under control, [C]: all, or those that the analyser tells."""
        everything = {"tail": torch.ones_like(view.memory[self.name]["u"])}
        tail: Tensor = view.ctx.shared.get(PriorAnalyser.name, everything)["tail"]
        return tail

    def _weights(self, view: View) -> tuple[Tensor, Tensor, Tensor]:
        """(weights of positive entries, of negative entries, 1 for classes whose gradients are accumulated), [C]."""
        controlled = self._controlled(view)
        u = view.memory[self.name]["u"] * controlled
        if not self.release:
            return F.fedgrab_map(u), F.fedgrab_map(-u), torch.ones_like(u)
        held = ~F.fedgrab_release(rng.uniform(rng.fold(view.key, 301), u.shape, u.dtype).to(u), controlled)
        return F.fedgrab_map(u * held), F.fedgrab_map(-u * held), held.to(u)

    def loss(self, view: View) -> Tensor:
        """Mean weighted binary cross-entropy of the mini-batch, ()."""
        return view.batch.mean(F.weighted_bce(view.out.logits, view.batch.y, *self._weights(view)[:2]))

    def learn(self, view: View) -> Tree:
        """The accumulators with the gradients of this mini-batch, and one step of the controller."""
        memory, controlled = view.memory[self.name], self._controlled(view)
        weights = self._weights(view)
        truth = view.batch.y.unsqueeze(1) == torch.arange(view.ctx.task.classes, device=view.batch.y.device)
        size = (view.out.logits.sigmoid() - truth.to(view.out.logits)).abs() * view.batch.mask.unsqueeze(1)
        size = size / view.batch.mask.sum().clamp(min=1)
        positive = memory["positive"] + weights[0] * (size * truth).sum(0) * weights[2]
        negative = memory["negative"] + weights[1] * (size * ~truth).sum(0) * weights[2]
        errors = negative - positive, memory["earlier"], memory["previous"]
        increment, earlier, previous = F.fedgrab_pid(*errors, self.kp, self.ki, self.kd)
        after = {"earlier": earlier, "previous": previous, "u": memory["u"] + increment}  # closed controllers stay at 0
        return {"positive": positive, "negative": negative, **{n: v * controlled for n, v in after.items()}}


@dataclass(frozen=True)
class PriorAnalyser(Component):
    """The direct prior analyser (DPA): only the tail classes stay under `gradient_balancer`'s control.

    s_c = (n_c - min n) / sum_j (n_j - min n) estimates the share of class c, n_c the norm of its row in the global
    classifier; the mean over the rounds so far counts. The tail are the classes behind those that hold `most` of the
    rows. In round 1 no class is under control. A class outside of the tail has weight 1, its controller starts anew.

    Source: Xiao et al. 2023, https://arxiv.org/abs/2310.07587; the form is that of the code's util/wene.py

    Example:
        >>> F.fedgrab_tail(F.fedgrab_prior(torch.tensor([[9.0], [5.0], [1.0], [1.0]])))
        tensor([0., 0., 1., 1.])
    """

    name = "prior_analyser"
    keeps = "2 C at the server"
    downloads = "C"

    most: Annotated[float, Within(0, 1, "[]")] = 0.95
    """share of the rows that head and middle classes hold together"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """No estimate yet: {"shares", "tail"}, zeros [C]."""
        zero = params[task.weight].new_zeros(task.classes)
        return {"shares": zero, "tail": zero}

    def broadcast(self, state: Tree, ids: Tensor | None) -> tuple[Tree, Tree | None]:
        """The tail classes to all."""
        return {"tail": state["tail"]}, None

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        """The tail by the sum of the shares that the global classifiers told so far."""
        shares = state["shares"] + F.fedgrab_prior(cohort.after[cohort.task.weight])
        return {"shares": shares, "tail": F.fedgrab_tail(shares / cohort.round, self.most)}, None

    def record(self, state: Tree) -> dict[str, Any]:
        """The tail classes of the next round."""
        return {"tail": state["tail"].nonzero().flatten().tolist()}

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """There must be a controller to tell."""
        beside = any(p.name == GradientBalancer.name for p in method.parts)
        require(beside, "parts", f"hold {GradientBalancer.name} beside {self.name}", [p.name for p in method.parts])


def fedgrab(analyser: bool = False) -> Method:
    """Fed-GraB: a controller on each client balances the positive and negative gradients of every class.

    Rate and momentum are the authors'; all classes are under control, and none is released at random.

    The released script releases random classes, too: `fedgrab().with_("gradient_balancer", release=True)`. In it all
    clients take part in every round.

    Source: Xiao et al. 2023, https://arxiv.org/abs/2310.07587

    Args:
        analyser: Control only the tail classes that the paper's prior analyser finds.

    Returns:
        The method.

    Example:
        >>> fedgrab().pace.lr, fedgrab().local.momentum, fedgrab(analyser=True).parts[1]
        (0.03, 0.5, PriorAnalyser(most=0.95))
    """
    parts = (GradientBalancer(), *((PriorAnalyser(),) if analyser else ()))
    return Method("fedgrab", parts=parts, pace=Fixed(lr=0.03), local=SGD(momentum=0.5), reference="xiao2023")
