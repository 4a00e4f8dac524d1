"""Local steps of dense networks on stacks of clients, written out around what a method brings.

The network's passes are stacked products (`fedskew.engines.dense`). In between stands the method: under vmap its losses
map logits and features to one number a client, and the tape gives their slopes there, which then go back through the
network by hand. The tape is outside of vmap: the sum over a stack has for each client's values the slope of that
client's loss, so going back needs no vmap. A loss may read parameters beside the outputs, or call the network itself;
the tape then finds a second slope, which is added. What follows (corrections, what is learnt, the local step) is the
method's, under vmap; plain SGD alone is written out as well.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedskew import client as rounds
from fedskew import tree
from fedskew.client import Job, Own
from fedskew.component import LocalStep, overrides
from fedskew.engines.dense import Dense, Gradients, Into, Updated, along, taken
from fedskew.engines.guard import unguarded
from fedskew.engines.programs import StepFunction
from fedskew.engines.stacks import Now, mapped
from fedskew.method import Method
from fedskew.models.prepare import Model
from fedskew.shared.parts import CrossEntropy
from fedskew.shared.steps import SGD
from fedskew.types import Batch, Carry, Context, Forward, Output, Params, Task, View

__all__ = ["Way", "agree", "around", "once", "way_of"]

Rows = tuple[Tensor, Tensor]


class Way(Enum):
    """What runs the steps of a stack of dense networks."""

    WRITTEN = "written out"  # whole (`fedskew.engines.written`)
    AROUND = "written out around the method's loss"
    TRIED = "written out around the method's loss where a trial agrees"  # a user's component may do anything
    VMAP = "by vmap"


def way_of(method: Method, model: Model) -> Way:
    """The way of a method whose network is `Dense`."""
    bare = unguarded(method)
    if _plain_sgd(bare) and _plain_loss(bare):
        return Way.WRITTEN
    if bare.local.batches != 1 or not once(bare.local, model):
        return Way.VMAP
    ours = all(type(part).__module__.startswith("fedskew.") for part in bare.components)
    return Way.AROUND if ours else Way.TRIED


def _plain_loss(bare: Method) -> bool:
    return list(map(type, bare.having("loss"))) == [CrossEntropy]


def _plain_sgd(bare: Method) -> bool:
    """Whether a step adds -lr times the gradient, and nothing looks in between."""
    local = bare.local
    simple = type(local) is SGD and not local.momentum and not local.clip
    return simple and not (bare.having("correct") + bare.having("learn"))


def once(local: LocalStep, model: Model) -> bool:
    """Whether a local step takes one gradient, at the very carry that it is given. It is tried on zeros.

    Others (several inner steps, gradients at a look-ahead) differentiate inside of the step.
    """
    if type(local) is SGD:
        return True
    params, asked = tree.zeros_like(model.params), 0

    def differentiate(carry: Carry, batch: int = 0) -> tuple[Params, Tensor, Carry]:
        nonlocal asked
        asked += 1 if carry is given and not batch else 2
        return tree.zeros_like(params), torch.zeros(()), carry

    label = torch.ones(model.classes, dtype=torch.int64)
    ctx = Context(model.task(1, 1), params, {}, {}, {}, label, label, torch.ones(()))
    try:
        start, memory = local.start(params, ctx) if overrides(local, "start") else (params, {})
        given = Carry(start, {}, {local.name: memory})
        local.step(given, ctx, differentiate)
    except Exception:  # it reads more than is here
        return False
    return asked == 1


class Moment(NamedTuple):
    """What a step of a stack reads beside what it moves."""

    batch: Batch  # [K, B, ...]
    key: Tensor  # [K]
    epoch: Tensor  # [K]
    number: Tensor  # [K]


def around(
    net: Dense, method: Method, task: Task, forward: Forward, dtype: torch.dtype, *, owned: bool = False
) -> StepFunction:
    """A step of a stack, the function of a `fedskew.engines.stepper.Stepper`.

    Args:
        net: the network as pieces.
        method: its hooks are called as in `fedskew.client`.
        task: facts of the run.
        forward: the same network as a function, for hooks that call it.
        dtype: of masks.
        owned: a step may write into the parameters that it is given.
    """
    bare = unguarded(method)
    fused, decay = _plain_sgd(bare), getattr(bare.local, "weight_decay", 0.0)
    slopes_of = _plain_slopes if _plain_loss(bare) else _Slopes(method, task, forward)

    def rest(job: Job, carry: Carry, out: Output, moment: Moment, known: Params, loss: Tensor, *active: Tensor) -> Any:
        """What follows a client's gradient: hooks and local step, as in any other engine."""

        def grad(objective: Any, params: Params) -> tuple[Params, Tensor, Any]:
            if params is not carry.params:
                raise RuntimeError(f"local step {method.local.name!r} takes gradients at other parameters")
            return known, loss, (out, carry.buffers)

        ctx, progress = rounds.context(task, job), rounds.progress_at(job, moment.epoch, moment.number)
        keys = moment.key.unsqueeze(0)
        return rounds.step(method, ctx, forward, grad, carry, (moment.batch,), keys, progress, *active)

    def step(rows: Rows, job: Job, carry: Carry, now: Now) -> tuple[Carry, Tensor]:
        at, keys, epoch, number, *active = now
        at, key = at[:, 0], keys[:, 0]
        real, place = at >= 0, at.clamp(min=0)
        x, y = taken(rows[0], place), torch.where(real, rows[1].take(place), 0)
        batch = Batch(x.view(*place.shape, *rows[0].shape[1:]), y, real.to(dtype))
        moment = Moment(batch, key, epoch, number)
        logits, notes = net.forward(carry.params, x, key)
        out = Output(logits, notes[-1])
        scale = -job.own.lr if fused else None
        losses, slopes, direct = slopes_of(job, carry, out, moment, scale)
        sink: Gradients | Updated = Gradients(carry.params)
        if fused:
            sink = (Into if owned and not active else Updated)(carry.params, 1 - job.own.lr * decay if decay else None)
        net.back(carry.params, slopes.logits, notes, sink, slopes.features)
        found = {n: sink.of(n) for n in carry.params}
        found |= {n: found[n] + slope for n, slope in direct.items()}
        if not fused:

            def one(own: Own, *given: Any) -> Any:
                return rest(Job(job.shared, own), *given)

            after: tuple[Carry, Tensor] = mapped(one, job.own, carry, out, moment, found, losses, *active)
            return after
        if active:
            found = {n: torch.where(along(active[0], p), p, carry.params[n]) for n, p in found.items()}
            losses = torch.where(active[0], losses, 0.0)
        return carry._replace(params=found), losses

    return step


class OutputSlopes(NamedTuple):
    """Slopes of a loss at what the network gave."""

    logits: Tensor  # [K, B, C]
    features: Tensor | None  # [K, B, F]; None where no loss reads them


Slopes = tuple[Tensor, OutputSlopes, Params]  # losses [K]; slopes at the outputs; those at parameters that losses read


class _Slopes:
    """The slopes of a method's losses, by the tape."""

    def __init__(self, method: Method, task: Task, forward: Forward) -> None:
        self.method, self.task, self.forward = method, task, forward

    def __call__(self, job: Job, carry: Carry, out: Output, moment: Moment, scale: Tensor | None) -> Slopes:
        """Of scale * loss, ``scale`` [K]."""

        def loss(own: Own, carry: Carry, out: Output, moment: Moment) -> Tensor:
            here = Job(job.shared, own)
            ctx, progress = rounds.context(self.task, here), rounds.progress_at(here, moment.epoch, moment.number)
            view = View(
                self.forward, carry.params, carry.buffers, out, moment.batch, ctx, carry.memory, moment.key, progress
            )
            return rounds.loss_at(self.method, view)

        with torch.enable_grad():
            leaves = {n: p.detach().requires_grad_() for n, p in carry.params.items()}
            seen = Output(*(t.detach().requires_grad_() for t in out))
            losses: Tensor = mapped(loss, job.own, carry._replace(params=leaves), seen, moment)
            wanted: list[Tensor] = [*seen, *leaves.values()]
            found: Any = [None] * len(wanted)
            if losses.requires_grad:
                each = torch.ones_like(losses) if scale is None else scale.to(losses.dtype)
                found = torch.autograd.grad(losses, wanted, each, allow_unused=True)
        logits, features, *direct = found
        logits = torch.zeros_like(out.logits) if logits is None else logits
        read = {n: slope for n, slope in zip(leaves, direct, strict=True) if slope is not None}
        return losses.detach(), OutputSlopes(logits, features), read


@torch.no_grad()
def _plain_slopes(job: Job, carry: Carry, out: Output, moment: Moment, scale: Tensor | None) -> Slopes:
    """Those of cross-entropy at the logits: (softmax - onehot) * share, share of a row in its client's mean."""
    batch = moment.batch
    share = batch.mask / batch.mask.sum(1, keepdim=True).clamp(min=1)
    logs, y = torch.log_softmax(out.logits, 2), batch.y.unsqueeze(2)
    losses = -(logs.gather(2, y).squeeze(2) * share).sum(1)
    slope = logs.exp().scatter_add(2, y, torch.full_like(y, -1, dtype=logs.dtype))
    slope *= (share if scale is None else share * scale.unsqueeze(1)).unsqueeze(2)
    return losses, OutputSlopes(slope, None), {}


def agree(one: tuple[Carry, Tensor], other: tuple[Carry, Tensor], before: Carry) -> bool:
    """Whether two ways of one step agree, as far as rounding lets them: a hundredth of how far each leaf moves."""
    pairs = [(one[1], other[1], torch.zeros_like(other[1]))]
    for fields in zip(one[0], other[0], before, strict=True):
        a, b, c = (list(tree.leaves(field)) for field in fields)
        if not len(a) == len(b) == len(c):
            return False
        pairs += zip(a, b, c, strict=True)
    return all(_near(*pair) for pair in pairs)


def _near(a: Tensor, b: Tensor, before: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b, before = a.double(), b.double(), before.double()
    both = a.isfinite() & b.isfinite() & before.isfinite()
    if not torch.equal(a.isfinite(), b.isfinite()) or not both.any():
        return torch.equal(a.isfinite(), b.isfinite())
    moved, size = (b - before)[both].abs().max(), before[both].abs().max()
    return bool(((a - b)[both].abs() <= 0.01 * moved + 1e-5 * size + 1e-12).all())
