"""Stacks of clients by vmap: sorted by length, cut where it pays, and narrower as clients end."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew import client as rounds
from fedskew import tree
from fedskew.client import Job, RoundInputs
from fedskew.engines.base import LocalEngine
from fedskew.engines.dense import Dense
from fedskew.engines.guard import unguarded
from fedskew.engines.outcomes import Outcome, Settle, identity
from fedskew.engines.planning import ClientJob
from fedskew.engines.programs import StepFunction
from fedskew.engines.stacks import DIMS, Now, Price, cloned, cut, length, narrowed, schedule, stack, whole
from fedskew.engines.stepper import StepMode, is_fused, is_plain_loss, plain_decay
from fedskew.engines.written import FusedStep, descend, steps_of
from fedskew.method import Method
from fedskew.method.steps import SGD, AdamW
from fedskew.models.prepare import Model
from fedskew.types import Batch, Carry, Output, Params

Rows = tuple[Tensor, Tensor]  # x and y of all clients of the stack, one after another

ONE_GRADIENT = (SGD.step, AdamW.step)  # steps that ask for one gradient, at the carry that they are given
COPIES = 6  # of the parameters for each client of a stack: before, gradient, update, after, and two of the method's
BUDGET = 1 << 30  # bytes of all stacks on a CPU; on a GPU, 6/10 of what is free


class Batched(LocalEngine):
    """vmap over stacks of clients, as many as a byte budget holds; on a CPU, at least a stack a thread.

    Where memory runs out all the same, the stack is halved, and stacks stay that small for the rest of the run. Sums
    over clients are taken stack by stack, so their last bits depend on the number of threads. Nothing else does: stacks
    follow from the round's plans alone.
    """

    name = "batched"
    parallel = True

    def __init__(self, *args: Any, **options: Any) -> None:
        """As `LocalEngine`."""
        super().__init__(*args, **options)
        self.dense = Dense.of(self.model)  # where it is written out
        self.chunk = 0  # clients of a stack, at most; 0 until the first round estimates it

    @classmethod
    def step_mode(cls, device: str, model: Model, method: Method, augmented: bool) -> StepMode:
        """What runs the steps of a method, which has no guard."""
        if device.startswith("cuda"):
            return StepMode.RECORDED
        if device != "cpu" or augmented or Dense.of(model) is None:
            return StepMode.VMAP
        if is_fused(method) and is_plain_loss(method):
            return StepMode.WRITTEN
        known = all(type(part).__module__.startswith("fedskew.") for part in method.components)  # others do anything
        return StepMode.FUSED if known and type(method.local).step in ONE_GRADIENT else StepMode.VMAP

    def client_bytes(self, method: Method, client: ClientJob) -> int:
        """Estimate of what one client of a stack takes: parameters, memory, rows, and activations of a mini-batch."""
        shared, inputs = client.job
        kept_bytes = tree.size_bytes(shared.params) * COPIES + tree.size_bytes(inputs.memory) * 2
        rows = self.store.floats(torch.zeros(1, dtype=torch.int64, device=self.device))
        draws, size = client.plan.batches.shape[1:]
        each = self._activation_bytes(shared, rows) + tree.size_bytes({"x": rows})
        return int(kept_bytes + 2 * each * size * draws + tree.size_bytes({"x": rows}) * len(client.plan.rows))

    def _activation_bytes(self, shared: RoundInputs, rows: Tensor) -> int:
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

    def _settle_chunk(self, method: Method, clients: list[ClientJob]) -> None:
        if not self.chunk:
            largest = max(clients, key=lambda p: (p.plan.batches.shape[2], len(p.plan.rows)))
            self.chunk = max(1, self._budget() // max(self.client_bytes(method, largest), 1))

    def run_clients(self, method: Method, clients: list[ClientJob], settle: Settle = identity) -> Iterator[Outcome]:
        """One outcome a stack."""
        if not clients:
            return
        self._settle_chunk(method, clients)
        price = Price.of(self.model.parameter_count, self.stepper(method).mode)
        cuts = cut([length(p.plan.batches) for p in clients], self.workers.count, self.chunk, price)
        left = clients[0].left
        for outcomes in self.train_map(lambda at: self._halving(method, at, clients, settle, left), cuts):
            yield from outcomes

    def _halving(
        self, method: Method, at: list[int], clients: list[ClientJob], settle: Settle, left: int
    ) -> list[Outcome]:
        """The outcome of a stack; of its halves, where memory runs out."""
        try:
            return [settle(at, self.run_stack(method, [clients[i] for i in at], left))]
        except RuntimeError as error:
            if len(at) == 1 or not _out_of_memory(error):
                raise
        half = len(at) // 2
        self.chunk = min(self.chunk, half)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        first = self._halving(method, at[:half], clients, settle, left)
        return first + self._halving(method, at[half:], clients, settle, left)

    def run_stack(self, method: Method, clients: list[ClientJob], left: int) -> Outcome:
        """Local runs of K clients, the longest first: begin, step ..., finish; ``left`` rounds are to come."""
        job, carry, rows = self._begin(method, clients)
        carry, losses = self._trained(method, clients, job, carry, rows, left)
        return self._finish(method, clients, job, carry, losses)

    def _trained(
        self, method: Method, clients: list[ClientJob], job: Job, carry: Carry, rows: Rows, left: int
    ) -> tuple[Carry, Tensor]:
        """The carry after all steps, and the losses [K, T]; 0 where a client has ended."""
        stepper = self.stepper(method)
        if stepper.mode is StepMode.WRITTEN:  # which takes the whole stack at once
            decay = plain_decay(unguarded(method))
            assert self.dense is not None and decay is not None
            along = steps_of(clients, rows[1], self.dtype)
            return carry, descend(self.dense, carry.params, rows[0], along, job.own.lr, decay)
        ended, of_steps = list[Carry](), list[Tensor]()
        recorded = stepper.mode is StepMode.RECORDED
        for leg, steps in schedule(clients, self.device, few=recorded):
            if leg.width < len(job.own.steps):
                job, carry, rest = narrowed(job, carry, leg.width)
                ended.append(rest)
            carry, losses = stepper.run(rows, job, carry, steps, left if recorded else 0)
            of_steps += losses
        return whole([*ended, carry]), self._stacked(of_steps, len(clients))

    def _begin(self, method: Method, clients: list[ClientJob]) -> tuple[Job, Carry, Rows]:
        """What a stack begins with; its carry is in memory of its own, into which steps may write."""
        job = self.runtime.to_device(stack([p.job for p in clients]))
        owned = torch.from_numpy(np.concatenate([p.plan.rows for p in clients])).to(self.device)
        carry = torch.vmap(lambda j: rounds.begin(method, rounds.context(self.task, j)), in_dims=(DIMS,))(job)
        return job, cloned(carry), (self.store.floats(owned), self.store.y[owned])

    def step_function(self, method: Method, mode: StepMode) -> StepFunction:
        """A step of a stack."""
        if mode is StepMode.FUSED:
            assert self.dense is not None
            return FusedStep(self.dense, method, self.task, self._forward, self.dtype)

        def client_step(job: Job, carry: Carry, x: Tensor, y: Tensor, real: Tensor, now: Now) -> tuple[Carry, Tensor]:
            keys, epoch, number, *active = now
            mask = real.to(self.dtype)
            batches = tuple(
                Batch(self.store.augmented(x[d], keys[d]), y[d], mask[d]) for d in range(method.local.batches)
            )
            progress, ctx = rounds.progress_at(job, epoch, number), rounds.context(self.task, job)
            return rounds.step(method, ctx, self._forward, rounds.functorch, carry, batches, keys, progress, *active)

        def step(rows: Rows, job: Job, carry: Carry, now: Now) -> Any:
            at, *rest = now
            real = at >= 0
            place = at.clamp(min=0)
            x, y = rows[0][place], torch.where(real, rows[1][place], 0)
            return torch.vmap(client_step, in_dims=(DIMS, 0, 0, 0, 0, 0))(job, carry, x, y, real, tuple(rest))

        return step

    def _forward(self, *given: Any, **named: Any) -> tuple[Output, Params]:
        """The network as a function, by the calling thread's copy."""
        return self.runtime.net.forward(*given, **named)

    def _stacked(self, losses: list[Tensor], clients: int) -> Tensor:
        """The losses of all steps, [K, T]; 0 where a client has ended."""
        if not losses:
            return torch.zeros(clients, 1, dtype=self.dtype, device=self.device)
        if len(losses[-1]) == clients:
            return torch.stack(losses, 1)
        return torch.stack([torch.nn.functional.pad(loss, (0, clients - len(loss))) for loss in losses], 1)

    def _finish(self, method: Method, clients: list[ClientJob], job: Job, carry: Carry, losses: Tensor) -> Outcome:
        def finish(j: Job, c: Carry, loss: Tensor) -> Any:
            return rounds.finish(method, rounds.context(self.task, j), c, j, loss)

        mean = losses.sum(1) / job.own.steps.clamp(min=1)
        uploads, memories, reports = torch.vmap(finish, in_dims=(DIMS, 0, 0))(job, carry, mean)
        check = self.finite_checks.of(clients, losses, carry.params, carry.buffers, uploads, memories)
        return Outcome(carry.params, carry.buffers, uploads, memories, reports, (check,))


def _out_of_memory(error: RuntimeError) -> bool:
    """CUDA raises an exception of its own; the CPU's allocator says so in its message."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
