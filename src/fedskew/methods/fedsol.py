"""FedSOL: the gradient is taken where the divergence from the global model is larger (Lee et al. 2024)."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew import tree
from fedskew.fields import Above, AtLeast
from fedskew.method import SGD, Method
from fedskew.types import Carry, Context, Differentiate, Params, Raw, Tree, View


@dataclass(frozen=True)
class StabilisedOrthogonal(SGD):
    """A step of SGD along the gradient at a point perturbed against the global model, on the same mini-batch.

    d = gradient of KL(softmax(z^g / tau) || softmax(z / tau)) at w, z^g the logits of the global model x;
    e = rho s d / ||d||_2, and g(w + e) takes the place of g(w). s is 1 everywhere, or per tensor |w - x| divided by its
    norm over the first axis, so that the first step of a round is not perturbed. Corrections, clipping, weight decay
    and momentum act at w; BatchNorm statistics are those of the pass at w.

    Source: Lee et al. 2024, https://arxiv.org/abs/2308.12532

    Example:
        >>> StabilisedOrthogonal(rho=0.5).scale
        'adaptive'
    """

    name = "stabilised_orthogonal"
    compute = "4 gradients and 2 forward passes a step"
    reference = "lee2024"

    rho: Annotated[float, AtLeast(0)] = 1.0
    """length rho of the perturbation; 0 is SGD"""
    scale: Literal["adaptive", "fixed"] = "adaptive"
    """adaptive: by how far each parameter has moved from the global model; fixed: all alike"""
    tau: Annotated[float, Above(0)] = 3.0
    """temperature of the divergence"""
    perturbs: Literal["all", "head"] = "all"
    """which parameters are perturbed: all, or those of the classifier"""

    def start(self, params: Params, ctx: Context) -> tuple[Params, Tree]:
        """The parameters, and d = 0."""
        params, memory = super().start(params, ctx)
        return params, {**memory, "slope": tree.zeros_like(params)}

    def learn(self, view: View) -> Tree:
        """d at the parameters of the view."""
        batch, teacher = view.batch, view.teacher().logits

        def divergence(params: Params) -> Tensor:
            out, _ = view.forward(params, view.buffers, batch.x, batch.mask, train=True, key=view.key)
            target, log_p = (z.div(self.tau).log_softmax(-1) for z in (teacher, out.logits))
            return batch.mean((target.exp() * (target - log_p)).sum(-1))

        return {**view.memory[self.name], "slope": tree.slope(divergence, view.params)}

    def step(self, carry: Carry, ctx: Context, differentiate: Differentiate) -> tuple[Carry, Tensor]:
        """One step on one mini-batch, with three gradients."""
        passed: list[tuple[Tensor, Any]] = []

        def here(raw: Raw, w: Params) -> tuple[Params, Tensor, Any]:
            grads, loss, seen = raw(w)
            passed.append((loss, seen))
            return grads, loss, seen

        _, _, learnt = differentiate(carry, rule=here)
        ascent = self._ascent(learnt.memory[self.name]["slope"], carry.params, ctx)

        def ahead(raw: Raw, w: Params) -> tuple[Params, Tensor, Any]:
            return raw(tree.add(w, ascent))[0], *passed[0]

        return super().step(carry, ctx, partial(differentiate, rule=ahead))

    def _ascent(self, slope: Params, w: Params, ctx: Context) -> Params:
        """e."""
        head = (ctx.task.weight, ctx.task.bias)
        masked = {n: d if self.perturbs == "all" or n in head else torch.zeros_like(d) for n, d in slope.items()}
        if self.scale == "fixed":
            return F.sam_ascent(masked, self.rho)
        size = torch.stack([d.square().sum() for d in masked.values()]).sum().sqrt() + 1e-12
        moved = {n: (w[n] - ctx.params[n]).abs() for n in masked}
        return {n: self.rho * F.unit_columns(moved[n]) * d / size for n, d in masked.items()}


def fedsol(rho: float = 1.0) -> Method:
    """FedSOL: clients step along the gradient at a point perturbed against the global model's outputs.

    Local learning then disturbs what the global model knows less; the perturbation adapts to each tensor.

    Source: Lee et al. 2024, https://arxiv.org/abs/2308.12532

    Args:
        rho: Length of the perturbation; 0 is FedAvg.

    Returns:
        The method.

    Example:
        >>> fedsol(rho=0.5).local.rho
        0.5
    """
    return Method("fedsol", local=StabilisedOrthogonal(rho=rho), reference="lee2024")
