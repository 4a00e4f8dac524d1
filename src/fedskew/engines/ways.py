"""Which way the steps of a stack go: written out whole, written out around the method, or under vmap.

"Written out" is for dense networks on a CPU. All ways give the same steps up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from fedskew import client as rounds
from fedskew import tree
from fedskew.client import Job
from fedskew.component import LocalStep, overrides
from fedskew.data.store import Store
from fedskew.engines.around import Around, plain_loss, plain_sgd
from fedskew.engines.dense import Dense
from fedskew.engines.guard import unguarded
from fedskew.engines.programs import StepFunction
from fedskew.engines.runtime import Runtime
from fedskew.engines.stacks import DIMS, Now
from fedskew.method import Method
from fedskew.models.prepare import Model
from fedskew.shared.steps import SGD
from fedskew.types import Batch, Carry, Context, Output, Params, Rule, Task

__all__ = ["Way", "Ways", "agree", "fused", "once", "way_of"]

Rows = tuple[Tensor, Tensor]  # x and y of all clients of a stack, one after another


class Way(Enum):
    """What runs the steps of a stack of dense networks."""

    WRITTEN = "written out"  # whole (`fedskew.engines.written`)
    AROUND = "written out around the method's loss"
    TRIED = "written out around the method's loss where a trial agrees"  # a user's component may do anything
    VMAP = "by vmap"


def way_of(method: Method, model: Model) -> Way:
    """The way of a method whose network is `Dense`."""
    bare = unguarded(method)
    if plain_sgd(bare) and plain_loss(bare):
        return Way.WRITTEN
    if bare.local.batches != 1 or not once(bare.local, model):
        return Way.VMAP
    ours = all(type(part).__module__.startswith("fedskew.") for part in bare.components)
    return Way.AROUND if ours else Way.TRIED


def fused(method: Method) -> bool:
    """Whether the update is part of the written-out product, so that no gradient stands in memory."""
    return plain_sgd(unguarded(method))


def once(local: LocalStep, model: Model) -> bool:
    """Whether a local step takes one gradient, at the very carry that it is given. It is tried on zeros.

    Others (several inner steps, gradients at a look-ahead) differentiate inside of the step.
    """
    if type(local) is SGD:
        return True
    params, asked = tree.zeros_like(model.params), 0

    def differentiate(carry: Carry, batch: int = 0, rule: Rule | None = None) -> tuple[Params, Tensor, Carry]:
        nonlocal asked
        asked += 1 if carry is given and not batch and rule is None else 2
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


class Ways:
    """The ways of the methods that an engine meets, and their steps."""

    def __init__(self, model: Model, task: Task, store: Store, runtime: Runtime) -> None:
        """``store`` augments rows, ``runtime`` has the network of each thread."""
        self.model, self.task, self.store, self.runtime = model, task, store, runtime
        self.dense = Dense.of(model) if runtime.device.type == "cpu" and not store.augmentation else None
        self._known: list[tuple[Method, Way]] = []

    def of(self, method: Method) -> Way:
        """What runs the steps of a method."""
        for known, way in self._known:
            if known is method or known == method:
                return way
        self._known.append((method, Way.VMAP if self.dense is None else way_of(method, self.model)))
        return self._known[-1][1]

    def settle(self, method: Method, first: Callable[[Method], tuple[Any, ...]]) -> None:
        """Try the steps of a method with a user's components both ways, once.

        Args:
            method: nothing happens where it is known to agree.
            first: the arguments of some first step of a method.
        """
        if self.of(method) is not Way.TRIED or self.dense is None:
            return
        bare, way = unguarded(method), Way.VMAP
        try:
            given = first(bare)
            one, other = (step(*given) for step in (self._around(bare, self.dense), self._general(bare)))
            way = Way.AROUND if agree(one, other, given[2]) else Way.VMAP
        except Exception:  # it cannot be written out, or the round raises it again, and says where
            pass
        self._known = [(known, way if known is method or known == method else its) for known, its in self._known]

    def step(self, method: Method) -> StepFunction:
        """A step of a stack."""
        if self.dense is None or self.of(method) is Way.VMAP:
            return self._general(method)
        return self._around(method, self.dense)

    def _around(self, method: Method, net: Dense) -> StepFunction:
        return Around(net, method, self.task, self._forward, self.runtime.dtype)

    def _forward(self, *given: Any, **named: Any) -> tuple[Output, Params]:
        """The network as a function, by the calling thread's copy."""
        return self.runtime.net.forward(*given, **named)

    def _general(self, method: Method) -> StepFunction:
        """A step of any network under any method: that of a client, under vmap."""

        def one(job: Job, carry: Carry, x: Tensor, y: Tensor, real: Tensor, now: Now) -> tuple[Carry, Tensor]:
            keys, epoch, number, *active = now
            mask = real.to(self.runtime.dtype)
            batches = tuple(
                Batch(self.store.augmented(x[d], keys[d]), y[d], mask[d]) for d in range(method.local.batches)
            )
            progress, ctx = rounds.progress_at(job, epoch, number), rounds.context(self.task, job)
            forward = self.runtime.net.forward
            return rounds.step(method, ctx, forward, rounds.functorch, carry, batches, keys, progress, *active)

        def step(rows: Rows, job: Job, carry: Carry, now: Now) -> Any:
            at, *rest = now
            real = at >= 0
            place = at.clamp(min=0)
            x, y = rows[0][place], torch.where(real, rows[1][place], 0)
            return torch.vmap(one, in_dims=(DIMS, 0, 0, 0, 0, 0))(job, carry, x, y, real, tuple(rest))

        return step


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
