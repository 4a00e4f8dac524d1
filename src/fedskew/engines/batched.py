"""Stacks of clients by vmap: sorted by length, cut where it pays, and narrower as clients end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew import client as rounds
from fedskew import tree
from fedskew.client import Job, Shared
from fedskew.engines.base import LocalEngine
from fedskew.engines.cuts import Price, cut, length
from fedskew.engines.dense import Dense
from fedskew.engines.guard import unguarded
from fedskew.engines.jobs import Place
from fedskew.engines.outcomes import Outcome, Settle, as_it_is
from fedskew.engines.programs import StepFunction
from fedskew.engines.stacks import DIMS, contiguous, legs, narrowed, schedule, stack, whole
from fedskew.engines.stepper import TRACE_STACK
from fedskew.engines.ways import Way, Ways
from fedskew.engines.written import descend, steps_of
from fedskew.method import Method
from fedskew.types import Carry, Params

__all__ = ["Batched"]

Rows = tuple[Tensor, Tensor]  # x and y of all clients of the stack, one after another

COPIES = 6  # of the parameters for each client of a stack: before, gradient, update, after, and two of the method's
TRIED = 4  # clients with which a user's components are tried
BUDGET = 1 << 30  # bytes of all stacks on a CPU; on a GPU, 6/10 of what is free


class Batched(LocalEngine):
    """vmap over stacks of clients, as many as a byte budget holds; on a CPU, at least a stack a thread.

    Where memory runs out all the same, the stack is halved, and stacks stay that small for the rest of the run. Sums
    over clients are taken stack by stack, so their last bits depend on the number of threads. Nothing else does: stacks
    follow from the round's plans alone.
    """

    name = "batched"
    parallel = True
    stacked = True
    trace_after = TRACE_STACK

    def __init__(self, *args: Any, **options: Any) -> None:
        """As `LocalEngine`."""
        super().__init__(*args, **options)
        self.ways = Ways(self.model, self.task, self.store, self.runtime)
        self.chunk = 0  # clients of a stack, at most; 0 until the first round estimates it

    def ready(self, method: Method, places: list[Place]) -> None:
        """Try the steps of a user's components."""

        def first(bare: Method) -> tuple[Any, ...]:
            some = sorted(places, key=lambda place: -len(place.plan.batches))[:TRIED]
            job, carry, rows = self._begin(bare, some, len(some))
            leg, steps = schedule(some, self.device, False)[0]
            job, carry, _ = narrowed(job, contiguous(carry), leg.width)
            return rows, job, carry, steps[0]

        self.ways.settle(method, first)

    def client_bytes(self, method: Method, place: Place) -> int:
        """Estimate of what one client of a stack takes: parameters, memory, rows, and activations of a mini-batch."""
        shared, own = place.job
        held = tree.size_bytes(shared.params) * COPIES + tree.size_bytes(own.memory) * 2
        rows = self.store.floats(torch.zeros(1, dtype=torch.int64, device=self.device))
        draws, size = place.plan.batches.shape[1:]
        each = self._activation_bytes(shared, rows) + tree.size_bytes({"x": rows})
        return int(held + 2 * each * size * draws + tree.size_bytes({"x": rows}) * len(place.plan.rows))

    def _activation_bytes(self, shared: Shared, rows: Tensor) -> int:
        """Bytes that autograd saves for the backward pass of one row, without the parameters."""
        passed = 0

        def count(saved: Tensor) -> Tensor:
            nonlocal passed
            passed += saved.numel() * saved.element_size()
            return saved

        params = {n: p.detach().requires_grad_() for n, p in shared.params.items()}
        mask, key = torch.ones(1, dtype=self.dtype, device=self.device), rows.new_zeros((), dtype=torch.int64)
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(count, lambda saved: saved):
            self.runtime.net.forward(params, shared.buffers, rows, mask, train=True, key=key)
        return max(passed - tree.size_bytes(params), 0)

    def _budget(self) -> int:
        if self.device.type != "cuda":
            return BUDGET // self.workers.count
        return int(0.6 * torch.cuda.mem_get_info(self.device)[0])

    def _settle_chunk(self, method: Method, places: list[Place]) -> None:
        if not self.chunk:
            largest = max(places, key=lambda p: (p.plan.batches.shape[2], len(p.plan.rows)))
            self.chunk = max(1, self._budget() // max(self.client_bytes(method, largest), 1))

    def run_places(self, method: Method, places: list[Place], settle: Settle = as_it_is) -> Iterator[Outcome]:
        """One outcome a stack."""
        if not places:
            return
        self._settle_chunk(method, places)
        traced, lengths = self._traces(method, places), [length(p.plan.batches) for p in places]
        price = Price.of(self.model.parameter_count, self.ways.of(method), traced)
        cuts = cut(lengths, self.workers.count, self.chunk, price)
        rungs = traced and len(set(lengths)) > 1
        if not self.workers.inside:
            self._trace(method, [[places[i] for i in at] for at in cuts], rungs)
        for outcomes in self.train_map(lambda at: self._halving(method, at, places, settle, rungs), cuts):
            yield from outcomes

    def _halving(
        self, method: Method, at: list[int], places: list[Place], settle: Settle, rungs: bool
    ) -> list[Outcome]:
        """The outcome of a stack; of its halves, where memory runs out."""
        try:
            return [settle(at, self.run_stack(method, [places[i] for i in at], rungs))]
        except RuntimeError as error:
            if len(at) == 1 or not _out_of_memory(error):
                raise
        half = len(at) // 2
        self.chunk = min(self.chunk, half)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        first = self._halving(method, at[:half], places, settle, rungs)
        return first + self._halving(method, at[half:], places, settle, rungs)

    def run_stack(self, method: Method, places: list[Place], rungs: bool = False) -> Outcome:
        """Local runs of K clients, the longest first: begin, step ..., finish.

        With ``rungs``, steps have one of a few widths, so that traced steps are met again.
        """
        if self.ways.dense is not None and self.ways.of(method) is Way.WRITTEN:
            return self._run_written(method, places, self.ways.dense)
        way = schedule(places, self.device, rungs)
        job, carry, rows = self._begin(method, places, way[0][0].width if way else 0)
        stepper, now, carry = self.steppers.of(method), job, contiguous(carry)
        carry = carry._replace(params=_own(carry.params)) if stepper.into is not None else carry
        ended: list[Carry] = []
        losses: list[Tensor] = []
        for leg, steps in way:
            if leg.width < len(now.own.steps):
                now, carry, rest = narrowed(now, carry, leg.width)
                ended.append(rest)
            carry, found = stepper.run(rows, now, carry, steps)
            losses += found
        clients = len(places)
        return self._finish(method, places, job, whole([*ended, carry], clients), losses)

    def _run_written(self, method: Method, places: list[Place], net: Dense) -> Outcome:
        """As `run_stack`, of a dense network under a plain method."""
        job, carry, (x, y) = self._begin(method, places, len(places))
        carry = carry._replace(params=_own(carry.params))
        steps, decay = steps_of(places, y, self.dtype), unguarded(method).local.weight_decay  # type: ignore[attr-defined]
        losses = descend(net, carry.params, x, steps, job.own.lr, decay)
        return self._finish(method, places, job, carry, list(losses.unbind(1)))

    def _begin(self, method: Method, places: list[Place], width: int) -> tuple[Job, Carry, Rows]:
        job = self.runtime.to_device(stack([p.job for p in places], width))
        owned = torch.from_numpy(np.concatenate([p.plan.rows for p in places])).to(self.device)
        carry = torch.vmap(lambda j: rounds.begin(method, rounds.context(self.task, j)), in_dims=(DIMS,))(job)
        rows = self.store.floats(owned), self.store.y[owned]
        return job, carry, rows

    def _traces(self, method: Method, places: list[Place]) -> bool:
        """Whether steps may be traced in this run, by its length: a run that is resumed takes the same stacks."""
        if self.ways.of(method) is Way.WRITTEN:
            return False
        return sum(len(p.plan.batches) for p in places) * self.task.rounds >= self.steppers.of(method).after

    def _trace(self, method: Method, stacks: Sequence[list[Place]], rungs: bool) -> None:
        """Trace the steps of shapes that will come often enough."""
        if not self._traces(method, [place for places in stacks for place in places]):
            return
        stepper, left = self.steppers.of(method), stacks[0][0].left
        for places in stacks:
            steps = [len(p.plan.batches) for p in places]
            shape = np.max([p.plan.batches.shape[1:] for p in places], 0).tolist()
            way = legs(steps, max(steps), rungs)
            due = [stepper.due((leg.width, *shape, leg.ended), len(leg.times), left) for leg in way]
            if not any(due):
                continue
            job, carry, rows = self._begin(method, places, way[0].width)
            for now, (leg, nows) in zip(due, schedule(places, self.device, rungs), strict=True):
                if now:
                    part, start, _ = narrowed(job, contiguous(carry), leg.width)
                    stepper.make(rows, part, start, nows[0])

    def step_function(self, method: Method) -> StepFunction:
        """A step of a stack."""
        return self.ways.step(method)

    def _finish(self, method: Method, places: list[Place], job: Job, carry: Carry, losses: list[Tensor]) -> Outcome:
        if len(job.own.steps) > len(places):
            job = narrowed(job, carry, len(places))[0]
        steps = job.own.steps.clamp(min=1)
        stacked = (
            _stacked(losses, len(places))
            if losses
            else torch.zeros(len(steps), 1, dtype=self.dtype, device=self.device)
        )

        def one(j: Job, c: Carry, loss: Tensor) -> Any:
            return rounds.finish(method, rounds.context(self.task, j), c, j, loss)

        mean = stacked.sum(1) / steps
        uploads, memories, reports = torch.vmap(one, in_dims=(DIMS, 0, 0))(job, carry, mean)
        watch = self.watcher.watch(places, stacked, carry.params, carry.buffers, uploads, memories)
        return Outcome(carry.params, carry.buffers, uploads, memories, reports, (watch,))


def _own(params: Params) -> Params:
    """Copies that steps may write into: a stack of one client sees the broadcast itself."""
    return {n: p.clone(memory_format=torch.contiguous_format) for n, p in params.items()}


def _stacked(losses: list[Tensor], clients: int) -> Tensor:
    """The losses of all steps, [K, T]; 0 where a client has ended."""
    if all(len(loss) == clients for loss in losses):
        return torch.stack(losses, 1)
    return torch.stack([torch.nn.functional.pad(loss, (0, clients - len(loss))) for loss in losses], 1)


def _out_of_memory(error: RuntimeError) -> bool:
    """CUDA raises an exception of its own; the CPU's allocator says so in its message."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
