"""One client's round: begin, step, finish. Engines map these; nothing else trains.

Everything here runs alike on one client and, under ``vmap``, on a stack of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedskew import tree
from fedskew.method import Method
from fedskew.tree import Tree
from fedskew.types import Batch, Carry, Context, Differentiate, Forward, LocalRun, Params, Progress, Report, Task, View

__all__ = ["Grad", "Job", "autograd", "begin", "context", "finish", "functorch", "step"]

Aux = Any
Objective = Callable[[Params], tuple[Tensor, Aux]]
Grad = Callable[[Objective, Params], tuple[Params, Tensor, Aux]]


class Job(NamedTuple):
    """One client's share of a round: tensors only, so an engine may map over it."""

    params: Params
    buffers: Params
    common: dict[str, Tree]  # broadcast to all, by component
    each: dict[str, Tree]  # broadcast to this client
    memory: dict[str, Tree]
    owned: Tensor  # [C]
    used: Tensor  # [C] rows it trains on this round
    lr: Tensor  # ()
    epochs: Tensor  # () int64
    steps: Tensor  # () int64
    samples: Tensor  # () int64
    a_norm: Tensor  # () FedNova's ||a||_1 of so many steps of the method's local rule
    round: Tensor  # () int64, one-based
    rounds: Tensor  # () int64


def autograd(objective: Objective, params: Params) -> tuple[Params, Tensor, Aux]:
    """Gradient by the tape: two to three times cheaper a small step than torch.func, but not under vmap."""
    with torch.enable_grad():
        leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
        loss, aux = objective(leaves)
        grads = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, grads, strict=True)), loss.detach(), _detach(aux)


def functorch(objective: Objective, params: Params) -> tuple[Params, Tensor, Aux]:
    """Gradient by torch.func, for use inside vmap."""
    grads, (loss, aux) = torch.func.grad_and_value(objective, has_aux=True)(params)
    return grads, loss, aux


def _detach(aux: Aux) -> Aux:
    out, buffers = aux
    return type(out)(*(t.detach() for t in out)), {name: b.detach() for name, b in buffers.items()}


def context(task: Task, job: Job) -> Context:
    """What the client may read, from its job."""
    shared = {name: {**job.common.get(name, {}), **job.each.get(name, {})} for name in {**job.common, **job.each}}
    return Context(task, job.params, job.buffers, shared, job.memory, job.owned, job.used, job.lr)


def begin(method: Method, ctx: Context) -> Carry:
    """The carry before the first step: every component's `start`, chained."""
    params, memory = ctx.params, dict(ctx.memory)
    for part in method.having("start"):
        params, memory[part.name] = part.start(params, ctx)
    return Carry(params, ctx.buffers, memory)


def differentiate_at(
    method: Method,
    ctx: Context,
    forward: Forward,
    grad: Grad,
    batches: tuple[Batch, ...],
    keys: Tensor,
    progress: Progress,
) -> Differentiate:
    """The one place where losses are summed, differentiated and corrected. keys is [D], one a mini-batch."""
    losses, correctors, learners = method.having("loss"), method.having("correct"), method.having("learn")

    def differentiate(carry: Carry, batch: int = 0) -> tuple[Params, Tensor, Carry]:
        rows, key = batches[batch], keys[batch]

        def view(params: Params, buffers: Params, out: Any) -> View:
            return View(forward, params, buffers, out, rows, ctx, carry.memory, key, progress)

        def objective(params: Params) -> tuple[Tensor, Aux]:
            out, buffers = forward(params, carry.buffers, rows.x, rows.mask, train=True, key=key)
            seen = view(params, buffers, out)
            return sum((part.loss(seen) for part in losses), start=out.logits.new_zeros(())), (out, buffers)

        grads, loss, (out, buffers) = grad(objective, carry.params)
        seen = view(carry.params, buffers, out)
        for part in correctors:
            grads = part.correct(grads, seen)
        learnt = {part.name: part.learn(seen) for part in learners}
        return grads, loss, Carry(carry.params, buffers, {**carry.memory, **learnt})

    return differentiate


def step(
    method: Method,
    ctx: Context,
    forward: Forward,
    grad: Grad,
    carry: Carry,
    batches: tuple[Batch, ...],
    keys: Tensor,
    progress: Progress,
    active: Tensor | None = None,
) -> tuple[Carry, Tensor]:
    """One local step. With ``active`` (), a padded step returns the old carry and loss 0."""
    differentiate = differentiate_at(method, ctx, forward, grad, batches, keys, progress)
    new, loss = method.local.step(carry, ctx, differentiate)
    if active is None:
        return new, loss
    kept = Carry(*(tree.where(active, a, b) for a, b in zip(new, carry, strict=True)))
    return kept, torch.where(active, loss, torch.zeros_like(loss))


def finish(
    method: Method, ctx: Context, carry: Carry, job: Job, loss: Tensor
) -> tuple[dict[str, Tree], dict[str, Tree], Report]:
    """(uploads, memories, report) of a finished run; ``loss`` is the mean over its steps."""
    report = Report(job.samples, job.steps, job.lr, loss, job.a_norm)
    local = LocalRun(ctx, carry.params, carry.buffers, carry.memory, report)
    uploads, memory = {}, dict(carry.memory)
    for part in method.having("finish"):
        upload, memory[part.name] = part.finish(local)
        if upload:
            uploads[part.name] = upload
    return uploads, memory, report
