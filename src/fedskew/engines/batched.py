"""The whole cohort at once: vmap over clients, ragged ones padded by masks on rows and on steps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew import client as rounds
from fedskew import tree
from fedskew.client import Job
from fedskew.engines.base import LocalEngine, Outcome, Place, Settle, as_it_is
from fedskew.engines.programs import TRACE_AFTER, Stepper
from fedskew.engines.sequential import check_losses
from fedskew.method import Method
from fedskew.types import Batch, Carry, Progress

__all__ = ["Batched"]

SHARED = {"params", "buffers", "common", "round", "rounds"}  # the same for all clients of a stack
DIMS: Any = Job(*(None if name in SHARED else 0 for name in Job._fields))  # type: ignore[arg-type]
Rows = tuple[Tensor, Tensor]  # x and y of all clients of the stack, one after another
Now = tuple[Tensor, ...]  # positions [K, D, B], keys [K, D], epoch [K], step [K], and active [K] where some have ended


COPIES = 6  # of the parameters a stacked client: before, gradient, update, after, and two of a method's own
BUDGET = 1 << 30  # bytes of all stacks on a CPU; on a GPU, 6/10 of what is free


class Batched(LocalEngine):
    """vmap over stacks of at most ``chunk`` clients, as many as a byte budget holds; on a CPU, a stack a thread.

    Where memory runs out all the same, the stack is halved and the run goes on with smaller ones.
    """

    name = "batched"
    parallel = True
    chunk = 0  # clients; 0 until the first round estimates it
    trace_after = TRACE_AFTER

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._unchecked: list[tuple[Tensor, list[Place]]] = []

    def client_bytes(self, method: Method, place: Place) -> int:
        """Estimate of what one client of a stack takes: parameters, memory, rows, and activations of a mini-batch."""
        held = tree.size_bytes(place.job.params) * COPIES + tree.size_bytes(place.job.memory) * 2
        rows = self.store.floats(torch.zeros(1, dtype=torch.int64, device=self.device))
        draws, size = place.plan.batches.shape[1:]
        passed = 0

        def count(saved: Tensor) -> Tensor:
            nonlocal passed
            passed += saved.numel() * saved.element_size()
            return saved

        params = {n: p.detach().requires_grad_() for n, p in place.job.params.items()}
        mask, key = torch.ones(1, dtype=self.dtype, device=self.device), rows.new_zeros((), dtype=torch.int64)
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(count, lambda saved: saved):
            self.net.forward(params, place.job.buffers, rows, mask, train=True, key=key)
        each = max(passed - tree.size_bytes(params), 0) + tree.size_bytes({"x": rows})
        return int(held + 2 * each * size * draws + tree.size_bytes({"x": rows}) * len(place.plan.rows))

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
        self._check()

    def _check(self) -> None:
        """Look at the losses of the round, once all of it is under way: a look waits for the device."""
        waiting, self._unchecked = self._unchecked, []
        for stacked, places in waiting:
            for losses, place in zip(stacked.cpu(), places, strict=True):
                check_losses(losses[: max(len(place.plan.batches), 1)], place)

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
        """begin, step ..., finish for K clients; T steps, the longest client's."""
        job, carry, rows, schedule = self._begin(method, places)
        carry, losses = self._stepper(method).run(rows, job, carry, schedule)
        return self._finish(method, places, job, carry, losses)

    def _begin(self, method: Method, places: list[Place]) -> tuple[Job, Carry, Rows, list[Now]]:
        job = self._to_device(_stack([p.job for p in places]))
        owned = torch.from_numpy(np.concatenate([p.plan.rows for p in places])).to(self.device)
        carry = torch.vmap(lambda j: rounds.begin(method, rounds.context(self.task, j)), in_dims=(DIMS,))(job)
        carry = tree_contiguous(carry)
        return job, carry, (self.store.floats(owned), self.store.y[owned]), self._schedule(places)

    def _trace(self, method: Method, stacks: list[list[Place]]) -> None:
        """Trace the steps of stacks whose shapes were seen often enough."""
        stepper = self._stepper(method)
        for places in stacks:
            steps = max(len(p.plan.batches) for p in places)
            size = (len(places), *np.max([p.plan.batches.shape[1:] for p in places], 0).tolist())
            if stepper.due(size, steps * len(places)):
                job, carry, rows, schedule = self._begin(method, places)
                for now in {len(n): n for n in schedule}.values():
                    stepper.make(rows, job, carry, now)

    def _stepper(self, method: Method) -> Stepper:
        def one(job: Job, carry: Carry, x: Tensor, y: Tensor, real: Tensor, now: Now) -> tuple[Carry, Tensor]:
            keys, epoch, number, *active = now
            mask = real.to(self.dtype)
            batches = tuple(
                Batch(self.store.augmented(x[d], keys[d]), y[d], mask[d]) for d in range(method.local.batches)
            )
            progress = Progress(epoch, job.epochs, number, job.steps, job.round, job.rounds)
            ctx = rounds.context(self.task, job)
            return rounds.step(method, ctx, self.net.forward, rounds.functorch, carry, batches, keys, progress, *active)

        def step(rows: Rows, job: Job, carry: Carry, now: Now) -> Any:
            at, *rest = now
            real = at >= 0
            place = at.clamp(min=0)
            x, y = rows[0][place], torch.where(real, rows[1][place], 0)
            return torch.vmap(one, in_dims=(DIMS, 0, 0, 0, 0, 0))(job, carry, x, y, real, tuple(rest))

        return self.stepper(method, step)

    def _finish(self, method: Method, places: list[Place], job: Job, carry: Carry, losses: list[Tensor]) -> Outcome:
        steps = job.steps.clamp(min=1)
        stacked = torch.stack(losses, 1) if losses else torch.zeros(len(steps), 1, dtype=self.dtype, device=self.device)
        self._unchecked.append((stacked, places))

        def one(j: Job, c: Carry, loss: Tensor) -> Any:
            return rounds.finish(method, rounds.context(self.task, j), c, j, loss)

        mean = stacked.sum(1) / steps
        uploads, memories, reports = torch.vmap(one, in_dims=(DIMS, 0, 0))(job, carry, mean)
        return Outcome(carry.params, carry.buffers, uploads, memories, reports)

    def _schedule(self, places: list[Place]) -> list[Now]:
        """Each step's rows, keys (each client's own, as in the sequential engine), and where in its run a client is."""
        at = torch.from_numpy(_padded(places)).to(self.device)
        clients, total, draws = at.shape[:3]
        keys = torch.zeros(clients, total, draws, dtype=torch.int64)
        for row, place in zip(keys, places, strict=True):
            row[: len(place.keys), : place.keys.shape[1]] = place.keys
        epoch = np.ones((clients, total), np.int64)
        for i, p in enumerate(places):
            epoch[i, : len(p.plan.epoch)] = p.plan.epoch
        number = torch.arange(1, total + 1, device=self.device).expand(clients, total)
        steps = np.array([len(p.plan.batches) for p in places])
        active = torch.from_numpy(np.arange(total) < steps[:, None]).to(self.device)
        each = (at, keys.to(self.device), torch.from_numpy(epoch).to(self.device), number, active)
        columns = zip(*(column.unbind(1) for column in each), strict=True)
        return [now if t >= steps.min() else now[:-1] for t, now in enumerate(columns)]


def tree_contiguous(carry: Carry) -> Carry:
    """Leaves of their own: vmap gives views of what all clients share."""
    return Carry(*(tree.map_tree(torch.Tensor.contiguous, field) for field in carry))


def _stack(jobs: list[Job]) -> Job:
    """Jobs with a leading axis, [K], where clients differ."""
    fields = {n: getattr(jobs[0], n) if n in SHARED else tree.stack([getattr(j, n) for j in jobs]) for n in Job._fields}
    return Job(**fields)


def _padded(places: list[Place]) -> np.ndarray[Any, Any]:
    """Positions among the rows of the whole stack, [K, T, D, B], -1 is padding."""
    shapes = np.array([p.plan.batches.shape for p in places])
    out, begin = np.full((len(places), *shapes.max(0)), -1, np.int64), 0
    for target, place in zip(out, places, strict=True):
        t, d, b = place.plan.batches.shape
        target[:t, :d, :b] = np.where(place.plan.batches >= 0, place.plan.batches + begin, -1)
        begin += len(place.plan.rows)
    return out


def _out_of_memory(error: RuntimeError) -> bool:
    """CUDA has an exception of its own; the allocator of the CPU says so in words."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
