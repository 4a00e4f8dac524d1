"""Stacks of clients by vmap; ragged clients are padded by masks on rows and on steps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew import client as rounds
from fedskew import tree
from fedskew.client import Job, Shared
from fedskew.engines.base import LocalEngine
from fedskew.engines.jobs import Place
from fedskew.engines.outcomes import Outcome, Settle, as_it_is
from fedskew.engines.programs import StepFunction
from fedskew.engines.stacks import DIMS, Now, contiguous, schedule, stack
from fedskew.engines.stepper import TRACE_AFTER
from fedskew.method import Method
from fedskew.types import Batch, Carry

__all__ = ["Batched"]

Rows = tuple[Tensor, Tensor]  # x and y of all clients of the stack, one after another

COPIES = 6  # of the parameters for each client of a stack: before, gradient, update, after, and two of the method's
BUDGET = 1 << 30  # bytes of all stacks on a CPU; on a GPU, 6/10 of what is free


class Batched(LocalEngine):
    """vmap over stacks of clients, as many as a byte budget holds; on a CPU, a stack a thread.

    Where memory runs out all the same, the stack is halved, and stacks stay that small for the rest of the run. Sums
    over clients are taken stack by stack, so their last bits depend on the number of threads.
    """

    name = "batched"
    parallel = True
    stacked = True
    trace_after = TRACE_AFTER

    def __init__(self, *args: Any, **options: Any) -> None:
        """As `LocalEngine`."""
        super().__init__(*args, **options)
        self.chunk = 0  # clients of a stack, at most; 0 until the first round estimates it

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
        self._settle_chunk(method, places)
        count = max(1, min(self.workers.count, len(places)), -(-len(places) // self.chunk))
        cuts = np.linspace(0, len(places), count + 1).round().astype(int).tolist()
        stacks = [places[a:b] for a, b in pairwise(cuts)]
        if not self.workers.inside:
            self._trace(method, stacks)
        for outcomes in self.train_map(lambda i: self._halving(method, cuts[i], stacks[i], settle), range(count)):
            yield from outcomes

    def _halving(self, method: Method, at: int, places: list[Place], settle: Settle) -> list[Outcome]:
        """The outcome of a stack; of its halves, where memory runs out."""
        try:
            return [settle(at, self.run_stack(method, places))]
        except RuntimeError as error:
            if len(places) == 1 or not _out_of_memory(error):
                raise
        half = len(places) // 2
        self.chunk = min(self.chunk, half)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        first = self._halving(method, at, places[:half], settle)
        return first + self._halving(method, at + half, places[half:], settle)

    def run_stack(self, method: Method, places: list[Place]) -> Outcome:
        """Local runs of K clients: begin, step ..., finish, with as many steps as the longest run has."""
        job, carry, rows, steps = self._begin(method, places)
        carry, losses = self.steppers.of(method).run(rows, job, carry, steps)
        return self._finish(method, places, job, carry, losses)

    def _begin(self, method: Method, places: list[Place]) -> tuple[Job, Carry, Rows, list[Now]]:
        job = self.runtime.to_device(stack([p.job for p in places]))
        owned = torch.from_numpy(np.concatenate([p.plan.rows for p in places])).to(self.device)
        carry = torch.vmap(lambda j: rounds.begin(method, rounds.context(self.task, j)), in_dims=(DIMS,))(job)
        rows = self.store.floats(owned), self.store.y[owned]
        return job, contiguous(carry), rows, schedule(places, self.device)

    def _trace(self, method: Method, stacks: list[list[Place]]) -> None:
        """Trace the steps of stacks whose shapes were seen often enough."""
        stepper = self.steppers.of(method)
        for places in stacks:
            steps = max(len(p.plan.batches) for p in places)
            size = (len(places), *np.max([p.plan.batches.shape[1:] for p in places], 0).tolist())
            if stepper.due(size, steps * len(places)):
                job, carry, rows, nows = self._begin(method, places)
                for now in {len(n): n for n in nows}.values():
                    stepper.make(rows, job, carry, now)

    def step_function(self, method: Method) -> StepFunction:
        """A step of a stack."""

        def one(job: Job, carry: Carry, x: Tensor, y: Tensor, real: Tensor, now: Now) -> tuple[Carry, Tensor]:
            keys, epoch, number, *active = now
            mask = real.to(self.dtype)
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

    def _finish(self, method: Method, places: list[Place], job: Job, carry: Carry, losses: list[Tensor]) -> Outcome:
        steps = job.own.steps.clamp(min=1)
        stacked = torch.stack(losses, 1) if losses else torch.zeros(len(steps), 1, dtype=self.dtype, device=self.device)

        def one(j: Job, c: Carry, loss: Tensor) -> Any:
            return rounds.finish(method, rounds.context(self.task, j), c, j, loss)

        mean = stacked.sum(1) / steps
        uploads, memories, reports = torch.vmap(one, in_dims=(DIMS, 0, 0))(job, carry, mean)
        watch = self.watcher.watch(places, stacked, carry.params, carry.buffers, uploads, memories)
        return Outcome(carry.params, carry.buffers, uploads, memories, reports, (watch,))


def _out_of_memory(error: RuntimeError) -> bool:
    """CUDA raises an exception of its own; the CPU's allocator says so in its message."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
