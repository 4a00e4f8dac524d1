"""Local steps of dense networks on stacks of clients, written out: plain steps, and steps around what a method brings.

A plain step is cross-entropy and SGD. By vmap and the tape it is some sixty operators for logistic regression, here it
is a dozen: stacked products of a client's rows with its weights, and the update is a product into the weights. A stack
may have any width.

Of other steps the network's passes are stacked products (`fedskew.engines.dense`). In between stands the method: under
vmap its losses map logits and features to one number a client, and the tape gives their slopes there, which then go
back through the network by hand. The tape is outside of vmap: the sum over a stack has for each client's values the
slope of that client's loss, so going back needs no vmap. A loss may read parameters beside the outputs, or call the
network itself; the tape then finds a second slope, which is added. What follows (corrections, what is learnt, the local
step) is the method's, under vmap; plain SGD alone is written out as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedskew import client as rounds
from fedskew.client import ClientInputs, Job
from fedskew.engines.dense import Dense, Gradients, Updates, taken
from fedskew.engines.guard import unguarded
from fedskew.engines.planning import ClientJob
from fedskew.engines.stacks import Now, mapped, positions
from fedskew.engines.stepper import is_fused, is_plain_loss, plain_decay
from fedskew.method import Method
from fedskew.types import Batch, Carry, Forward, Output, Params, Task, View

# Plain steps


class StackBatches(NamedTuple):
    """What the steps of a stack read, time first, so that the first clients of a step lie side by side."""

    at: Tensor  # [T, K, B] rows of the stack, 0 for padding
    y: Tensor  # [T, K, B, 1]
    share: Tensor  # [T, K, B] of each row in its client's mean; 0 for padding
    widths: list[int]  # [T] clients that have not ended: the first of the stack


@torch.no_grad()
def descend(net: Dense, params: Params, x: Tensor, steps: StackBatches, lr: Tensor, decay: float) -> Tensor:
    """All local steps of a stack, into ``params`` [K, ...]; the losses [K, T], 0 where a client has ended.

    w <- w - lr (g + decay w). The gradient of cross-entropy at the logits is (softmax - onehot) * share. It is scaled
    by -lr there, where it is smallest, so that every product behind it is the update itself.

    Args:
        net: the network.
        params: of each client, in memory of their own.
        x: rows of the stack [R, ...].
        steps: which of them, when.
        lr: [K].
        decay: weight decay.
    """
    scaled = (steps.share * -lr[:, None]).unsqueeze(3)
    minus = torch.full((1, 1, 1), -1.0, dtype=x.dtype).expand(*steps.y.shape[1:])
    right = torch.zeros(steps.y.shape, dtype=x.dtype)
    shrink = 1 - lr * decay if decay else None
    here, updates, last = params, Updates(params, shrink), -1
    for t, width in enumerate(steps.widths):
        if width != last:
            here, last = {name: p[:width] for name, p in params.items()}, width
            updates = Updates(here, None if shrink is None else shrink[:width])
        out, notes = net.forward(here, taken(x, steps.at[t, :width]))
        slope = torch.log_softmax(out, 2)
        torch.gather(slope, 2, steps.y[t, :width], out=right[t, :width])
        slope.exp_().scatter_add_(2, steps.y[t, :width], minus[:width]).mul_(scaled[t, :width])
        net.back(here, slope, notes, updates)
    return -(right.squeeze(3) * steps.share).sum(2).T.contiguous()


def steps_of(clients: Sequence[ClientJob], y: Tensor, dtype: torch.dtype) -> StackBatches:
    """What the steps of a sorted stack read; ``y`` are the labels of its rows."""
    padded = torch.from_numpy(positions(clients)[:, :, 0]).transpose(0, 1).contiguous()
    real = padded >= 0
    at = padded.clamp_(min=0)
    labels = torch.where(real, y[at], 0).unsqueeze(3)
    share = real.to(dtype)
    share /= share.sum(2, keepdim=True).clamp_(min=1)
    widths = real.any(2).sum(1).tolist()
    return StackBatches(at, labels, share, widths)


# Steps around what a method brings


Rows = tuple[Tensor, Tensor]


class StepInputs(NamedTuple):
    """What a step of a stack reads beside what it moves."""

    batch: Batch  # [K, B, ...]
    key: Tensor  # [K]
    epoch: Tensor  # [K]
    number: Tensor  # [K]


class FusedStep:
    """A step of a stack, the function of a `fedskew.engines.stepper.Stepper`."""

    def __init__(self, net: Dense, method: Method, task: Task, forward: Forward, dtype: torch.dtype) -> None:
        """Make the step of a method.

        Args:
            net: the network as pieces.
            method: its hooks are called as in `fedskew.client`.
            task: facts of the run.
            forward: the same network as a function, for hooks that call it.
            dtype: of masks.
        """
        self.net, self.method, self.task, self.forward, self.dtype = net, method, task, forward, dtype
        bare = unguarded(method)
        self.fused, self.decay = is_fused(bare), plain_decay(bare)
        self.plain = is_plain_loss(bare)  # and no bound method, which would keep the engine alive in a circle

    def __call__(self, rows: Rows, job: Job, carry: Carry, now: Now) -> tuple[Carry, Tensor]:
        """The carry after a step, and the losses [K]. Plain SGD writes into the parameters that it is given."""
        at, keys, epoch, number = now
        at, key, lr = at[:, 0], keys[:, 0], job.own.lr
        real, place = at >= 0, at.clamp(min=0)
        x, y = taken(rows[0], place), torch.where(real, rows[1].take(place), 0)
        batch = Batch(x.view(*place.shape, *rows[0].shape[1:]), y, real.to(self.dtype))
        step = StepInputs(batch, key, epoch, number)
        logits, notes = self.net.forward(carry.params, x)
        out = Output(logits, notes[-1])
        slopes_of = _plain_slopes if self.plain else self._slopes
        losses, slopes, direct = slopes_of(job, carry, out, step, -lr if self.fused else None)
        shrink = 1 - lr * self.decay if self.decay else None
        sink = Updates(carry.params, shrink) if self.fused else Gradients(carry.params)
        self.net.back(carry.params, slopes.logits, notes, sink, slopes.features)
        params = {n: sink.of(n) for n in carry.params}
        params |= {n: params[n] + slope for n, slope in direct.items()}
        if self.fused:
            return carry._replace(params=params), losses

        def rest(inputs: ClientInputs, *given: Any) -> Any:
            return self._rest(Job(job.shared, inputs), *given)

        after: tuple[Carry, Tensor] = mapped(rest, job.own, carry, out, step, params, losses)
        return after

    def _rest(
        self, job: Job, carry: Carry, out: Output, step: StepInputs, grads: Params, loss: Tensor
    ) -> tuple[Carry, Tensor]:
        """What follows a client's gradient: hooks and local step, as in any other engine."""

        def grad(objective: Any, params: Params) -> tuple[Params, Tensor, Any]:
            if params is not carry.params:
                raise RuntimeError(f"local step {self.method.local.name!r} takes gradients at other parameters")
            return grads, loss, (out, carry.buffers)

        ctx, progress = rounds.context(self.task, job), rounds.progress_at(job, step.epoch, step.number)
        batches, keys = (step.batch,), step.key.unsqueeze(0)
        return rounds.step(self.method, ctx, self.forward, grad, carry, batches, keys, progress)

    def _slopes(self, job: Job, carry: Carry, out: Output, step: StepInputs, scale: Tensor | None) -> Slopes:
        """The slopes of scale * loss by the tape, ``scale`` [K]."""

        def loss(inputs: ClientInputs, carry: Carry, out: Output, step: StepInputs) -> Tensor:
            here = Job(job.shared, inputs)
            ctx, progress = rounds.context(self.task, here), rounds.progress_at(here, step.epoch, step.number)
            view = View(
                self.forward, carry.params, carry.buffers, out, step.batch, ctx, carry.memory, step.key, progress
            )
            return rounds.loss_at(self.method, view)

        with torch.enable_grad():
            leaves = {n: p.detach().requires_grad_() for n, p in carry.params.items()}
            seen = Output(*(t.detach().requires_grad_() for t in out))
            losses: Tensor = mapped(loss, job.own, carry._replace(params=leaves), seen, step)
            read: list[Tensor] = [*seen, *leaves.values()]
            slopes: Any = [None] * len(read)
            if losses.requires_grad:
                # one number: slopes that are handed over for each client would import torch's compiler
                total = losses.sum() if scale is None else (losses * scale.to(losses.dtype)).sum()
                slopes = torch.autograd.grad(total, read, allow_unused=True)
        logits, features, *direct = slopes
        logits = torch.zeros_like(out.logits) if logits is None else logits
        of_params = {n: slope for n, slope in zip(leaves, direct, strict=True) if slope is not None}
        return losses.detach(), OutputSlopes(logits, features), of_params


class OutputSlopes(NamedTuple):
    """Slopes of a loss at what the network gave."""

    logits: Tensor  # [K, B, C]
    features: Tensor | None  # [K, B, F]; None where no loss reads them


Slopes = tuple[Tensor, OutputSlopes, Params]  # losses [K]; slopes at the outputs; those at parameters that losses read


@torch.no_grad()
def _plain_slopes(job: Job, carry: Carry, out: Output, step: StepInputs, scale: Tensor | None) -> Slopes:
    """Those of cross-entropy at the logits: (softmax - onehot) * share, share of a row in its client's mean."""
    batch = step.batch
    share = batch.mask / batch.mask.sum(1, keepdim=True).clamp(min=1)
    logs, y = torch.log_softmax(out.logits, 2), batch.y.unsqueeze(2)
    losses = -(logs.gather(2, y).squeeze(2) * share).sum(1)
    slope = logs.exp().scatter_add(2, y, torch.full_like(y, -1, dtype=logs.dtype))
    slope *= (share if scale is None else share * scale.unsqueeze(1)).unsqueeze(2)
    return losses, OutputSlopes(slope, None), {}
