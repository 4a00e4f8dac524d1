"""FedMLB: hybrid paths through the local network's first blocks and the global one's last (Kim et al. 2022)."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew.fields import Above, AtLeast
from fedskew.method import Component, Method
from fedskew.method.keeping import blocks
from fedskew.types import Federation, Params, Task, Tree, View


@dataclass(frozen=True)
class HybridPaths(Component):
    """Cross-entropy of hybrid paths, and the local network's divergence from them.

    (1 / (M - 1)) sum_m ( lambda_1 CE(z^m, y) + lambda_2 KL(softmax(z^m / tau) || softmax(z / tau)) ), m = 1..M-1; z^m
    are the logits of the path through the local network's blocks 1..m and the global one's blocks m+1..M, which do not
    move. Gradients go through both sides of the divergence. A network of one block has no path, and no term.

    A path runs in training mode with the dropout of the main path; BatchNorm takes the mini-batch's statistics in both
    halves, and only the main path moves the running ones. Parameters that a component adds are in no block.

    Source: Kim, Kim and Han 2022, https://arxiv.org/abs/2206.06936, code at https://github.com/jinkyu032/FedMLB

    Example:
        >>> HybridPaths(cuts=("layer2", "head")).cuts
        ('layer2', 'head')
    """

    name = "hybrid_paths"
    compute = "M - 1 forward and backward passes a step, M blocks"
    reference = "kim2022"

    lam1: Annotated[float, AtLeast(0)] = 1.0
    """weight lambda_1 of the paths' cross-entropy"""
    lam2: Annotated[float, AtLeast(0)] = 1.0
    """weight lambda_2 of the divergence"""
    tau: Annotated[float, Above(0)] = 1.0
    """temperature of the divergence"""
    cuts: tuple[str, ...] = ()
    """first layers of the blocks, named as in `private`; none: every first part of a parameter's name"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """Nothing; a cut that names no layer is an error here, before the first round."""
        blocks(tuple(params), task, self.cuts, type(self).__name__)
        return {}

    def loss(self, view: View) -> Tensor:
        """The mean over the paths, ()."""
        names = tuple(name for name in view.params if name.partition(".")[0] not in view.ctx.memory)
        parts = blocks(names, view.ctx.task, self.cuts, type(self).__name__)
        behind = [frozenset[str]().union(*parts[m:]) for m in range(1, len(parts))]
        terms = [self._path(view, late) for late in behind]
        return view.batch.mean(torch.stack(terms).mean(0)) if terms else view.out.logits.new_zeros(())

    def _path(self, view: View, behind: frozenset[str]) -> Tensor:
        """Both terms of the path that ends in the global network's parameters `behind`, [B]."""
        mixed = {n: view.ctx.params[n].detach() if n in behind else w for n, w in view.params.items()}
        out, _ = view.forward(mixed, view.buffers, view.batch.x, view.batch.mask, train=True, key=view.key)
        apart = F.hybrid_divergence(view.out.logits, out.logits, self.tau)
        return self.lam1 * F.cross_entropy(out.logits, view.batch.y) + self.lam2 * apart


def fedmlb(lam1: float = 1.0, lam2: float = 1.0, tau: float = 1.0) -> Method:
    """FedMLB: the client's early layers are also trained through the frozen late layers of the global model.

    Cross-entropy and distillation on these hybrid paths keep the features in agreement with the global model.

    Source: Kim, Kim and Han 2022, https://arxiv.org/abs/2206.06936

    Args:
        lam1: Weight of the paths' cross-entropy.
        lam2: Weight of the divergence; with both weights 0 it is FedAvg.
        tau: Temperature, positive.

    Returns:
        The method.

    Example:
        >>> fedmlb(lam2=0.5).parts[1]
        HybridPaths(lam1=1.0, lam2=0.5, tau=1.0, cuts=())
    """
    return Method("fedmlb", parts=(HybridPaths(lam1, lam2, tau),), reference="kim2022")
