"""Clients as chains: one step of one client is recorded, and launched as often as the client has steps.

A stack takes a step of all its clients by one operator, and is recorded anew for each of its widths. Here a client has
a slot: memory of its own, a stream of its own, and a step that is recorded once for all clients that will come by. A
counter in the step says where in the table of the round it stands, which is on the device. So a launch brings nothing
along, slots need not wait for each other, and other clients bring no new shape: rows are read from the whole training
set, and a smaller mini-batch is masked.

On a CPU a launch calls the same function on the same memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedskew import client as rounds
from fedskew.client import ClientInputs, Job, RoundInputs
from fedskew.engines.batched import Batched
from fedskew.engines.guard import unguarded
from fedskew.engines.outcomes import Outcome, Settle, identity
from fedskew.engines.planning import ClientJob
from fedskew.engines.programs import Captured, HostError, NoHost, StepFunction, cuda_graph, flatten, leaves_of, rebuild
from fedskew.engines.sequential import longest
from fedskew.engines.stepper import StepMode, Stepper
from fedskew.method import Method
from fedskew.models.prepare import Model
from fedskew.models.where import first_line
from fedskew.types import Batch, Carry, Context

SLOTS = 16  # clients that train at a time: torch deals 32 streams, and cuBLAS keeps a workspace for each
ROOM = 1024  # steps of a table, at least: a small one would be made anew as rounds grow


class StepTable(NamedTuple):
    """The steps of all clients that are at work, one client after another."""

    at: Tensor  # [N, D, B] rows of the training set; -1 is padding
    keys: Tensor  # [N, D]
    epoch: Tensor  # [N] one-based
    number: Tensor  # [N] of the step in its local run, one-based
    losses: Tensor  # [N] which the steps write

    @classmethod
    def empty(cls, steps: int, draws: int, size: int, losses: Tensor) -> StepTable:
        """A table with room for so many steps; ``losses`` has their type and device."""
        at, keys, epoch, number = (
            losses.new_zeros(shape, dtype=torch.int64) for shape in ((steps, draws, size), (steps, draws), steps, steps)
        )
        return cls(at, keys, epoch, number, losses.new_zeros(steps))

    def fill(self, clients: Sequence[ClientJob]) -> None:
        """Bring the steps of these clients."""
        total, (_, draws, size) = sum(len(c.plan.batches) for c in clients), self.at.shape
        at, begin = np.full((total, draws, size), -1, np.int64), 0
        for client in clients:
            rows, real = client.plan.batches, client.plan.batches >= 0
            target = at[begin : begin + len(rows), :, : rows.shape[2]]
            target[real] = client.plan.rows[rows[real]]
            begin += len(rows)
        keys = torch.cat([c.keys for c in clients])
        epoch = torch.from_numpy(np.concatenate([c.plan.epoch for c in clients]))
        number = torch.cat([torch.arange(1, len(c.keys) + 1) for c in clients])
        for column, values in zip(self, (torch.from_numpy(at), keys, epoch, number), strict=False):
            column[:total].copy_(values)

    def now(self, place: Tensor) -> tuple[Tensor, ...]:
        """(rows [D, B], keys [D], epoch (), number ()) of the step at a place [1]."""
        return tuple(column.index_select(0, place)[0] for column in self[:4])


class Slot(NamedTuple):
    """The memory of one client at a time with its recorded step, and the stream of its launches; on a CPU None."""

    step: Captured
    stream: torch.cuda.Stream | None

    def launch(self) -> None:
        """One step."""
        with torch.cuda.stream(self.stream) if self.stream else nullcontext():
            self.step.replay()

    def follow(self) -> None:
        """Launches that come wait for what the caller has done."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))

    def lead(self) -> None:
        """What the caller does next waits for the launches."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)


@dataclass(eq=False)
class Chains:
    """The slots of a method, and what all of them read."""

    shared: RoundInputs
    table: StepTable
    kinds: Any  # names and shapes of a client's job and carry
    slots: list[Slot] = field(default_factory=list)
    full: bool = False  # there was no memory for a further slot


@dataclass(eq=False)
class Running:
    """A client that has begun."""

    at: int  # place in the cohort
    slot: Slot
    ctx: Context
    job: Job
    begin: int  # its first step in the table
    left: int  # steps to launch


class Chained(Batched):
    """A client a chain of launches, up to SLOTS of them side by side. What cannot be recorded is stacked."""

    name = "chained"
    parallel = False
    channels_last = ("cpu", "cuda")

    def __init__(self, *args: Any, **options: Any) -> None:
        """As `LocalEngine`."""
        super().__init__(*args, **options)
        self.chains: dict[int, Chains] = {}  # by identity of the stepper
        self.floats: Tensor | None = None  # all training rows, from the first local run on

    def close(self) -> None:
        """As `LocalEngine.close`."""
        self.chains.clear()
        super().close()

    @classmethod
    def step_mode(cls, device: str, model: Model, method: Method, augmented: bool) -> StepMode:
        """Chains, until a step of the method was tried."""
        return StepMode.CHAINED

    def step_function(self, method: Method, mode: StepMode) -> StepFunction:
        """A step of one client whose mini-batches may be padded."""
        if mode is not StepMode.CHAINED:
            return super().step_function(method, mode)

        def step(rows: Any, job: Job, carry: Carry, now: Any) -> tuple[Carry, Tensor]:
            at, keys, epoch, number = now
            real = at >= 0
            place, mask = at.clamp(min=0), real.to(self.dtype)
            x, y = rows[0][place], torch.where(real, rows[1][place], 0)
            batches = tuple(
                Batch(self.runtime.layout(self.store.augmented(x[d], keys[d])), y[d], mask[d]) for d in range(len(at))
            )
            progress, ctx = rounds.progress_at(job, epoch, number), rounds.context(self.task, job)
            return rounds.step(method, ctx, self._forward, rounds.autograd, carry, batches, keys, progress)

        return step

    def run_clients(self, method: Method, clients: list[ClientJob], settle: Settle = identity) -> Iterator[Outcome]:
        """One outcome a client, in the order in which they end; longest first, launches in turns."""
        if not clients:
            return
        shared = self.runtime.to_device(clients[0].job.shared)
        chains = self._chains(method, shared, clients)
        if chains is None:
            yield from super().run_clients(method, clients, settle)
            return
        begins = np.cumsum([0, *(len(c.plan.batches) for c in clients)])
        places = torch.from_numpy(begins).to(self.device)
        waiting, running, free = longest(clients, len(clients))[::-1], list[Running](), chains.slots[::-1]
        while waiting or running:
            while free and waiting:
                at, slot = waiting.pop(), free.pop()
                job, ctx, carry = self._begun(method, shared, clients[at])
                slot.step.put(job.own, (carry, places[at : at + 1]))
                slot.follow()
                running.append(Running(at, slot, ctx, job, int(begins[at]), len(clients[at].plan.batches)))
            for active in list(running):
                if active.left:
                    active.slot.launch()
                    active.left -= 1
                if not active.left:
                    running.remove(active)
                    free.append(active.slot)
                    yield settle((active.at,), self._ended(method, chains, clients[active.at], active))

    def _begun(self, method: Method, shared: RoundInputs, client: ClientJob) -> tuple[Job, Context, Carry]:
        job = Job(shared, self.runtime.to_device(client.job.own))
        ctx = rounds.context(self.task, job)
        return job, ctx, rounds.begin(method, ctx)

    def _ended(self, method: Method, chains: Chains, client: ClientJob, active: Running) -> Outcome:
        active.slot.lead()
        carry, _ = active.slot.step.carried()
        losses = chains.table.losses[active.begin : active.begin + len(client.plan.batches)].clone()
        return self.finished(method, client, active.job, active.ctx, carry, losses)

    # slots

    def _chains(self, method: Method, shared: RoundInputs, clients: list[ClientJob]) -> Chains | None:
        """The chains of a method, with the steps of these clients in their table; None where they are stacked."""
        stepper = self.stepper(method)
        if stepper.mode is not StepMode.CHAINED:
            return None
        job, _, carry = self._begun(method, shared, clients[longest(clients, 1)[0]])
        size = np.array([c.plan.batches.shape for c in clients])
        room, kinds = (int(size[:, 0].sum()), *size[:, 1:].max(0).tolist()), _kinds(job, carry)
        chains = self.chains.get(id(stepper))
        if chains is None or chains.kinds != kinds or any(np.less(chains.table.at.shape, room)):
            before = (0, 0, 0) if chains is None else tuple(chains.table.at.shape)
            self.chains.pop(id(stepper), None)
            chains = None  # its memory goes before there is new one
            _, draws, width = np.maximum(before, room).tolist()
            losses = torch.zeros(0, dtype=self.dtype, device=self.device)
            table = StepTable.empty(max(ROOM, 2 * room[0]), draws, width, losses)
            kept = rebuild(shared, (leaf.clone() for leaf in leaves_of(shared)))
            chains = self.chains[id(stepper)] = Chains(kept, table, kinds)
        for slot in chains.slots:  # of a round that broke off, launches may be left
            slot.lead()
        for target, value in zip(leaves_of(chains.shared), leaves_of(shared), strict=True):
            target.copy_(value)
        chains.table.fill(clients)
        if why := self._add_slots(method, stepper, chains, job.own, carry, min(SLOTS, len(clients))):
            self._stack(method, stepper, why)
            return None
        return chains

    def _add_slots(
        self, method: Method, stepper: Stepper, chains: Chains, inputs: ClientInputs, carry: Carry, wanted: int
    ) -> str:
        """Record steps until there are so many slots, or memory runs out. Says why nothing can be recorded, else ""."""
        if chains.full or len(chains.slots) >= wanted:
            return ""
        if self.floats is None:
            self.floats = self.runtime.layout(self.store.floats(slice(None)))
        rows, table, shared = (self.floats, self.store.y), chains.table, chains.shared

        def step(_rows: Any, inputs: ClientInputs, carry: tuple[Carry, Tensor], _now: Any) -> tuple[Any, Tensor]:
            state, place = carry
            state, loss = stepper.function(rows, Job(shared, inputs), state, table.now(place))
            table.losses.index_copy_(0, place, loss.unsqueeze(0).to(table.losses.dtype))
            return (state, place + 1), loss

        given = (), inputs, (carry, torch.zeros(1, dtype=torch.int64, device=self.device)), ()
        try:
            if not chains.slots:
                with NoHost():  # type: ignore[no-untyped-call]
                    step(*given)
            while len(chains.slots) < wanted:
                stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None  # type: ignore[no-untyped-call]
                made = Captured(step, *given, partial(cuda_graph, aside=stream) if stream else _called)
                if not chains.slots and not made.agrees(*given):
                    return "does not repeat itself"
                chains.slots.append(Slot(made, stream))
        except HostError as error:
            return str(error)
        except Exception as error:  # a user's component may do anything
            chains.full = bool(chains.slots)
            return "" if chains.full else f"cannot be recorded ({first_line(error)})"
        return ""

    def _stack(self, method: Method, stepper: Stepper, why: str) -> None:
        """Let clients of a method be stacked from here on, and say so."""
        del self.chains[id(stepper)]
        plain, augmented = unguarded(method), bool(self.store.augmentation)
        mode = Batched.step_mode(self.device.type, self.model, plain, augmented)
        self.steppers = [
            (known, Stepper(self.step_function(method, mode), mode) if current is stepper else current)
            for known, current in self.steppers
        ]
        message = f"a local step of {method.name!r} {why}: its clients are not chained but stacked"
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def _kinds(job: Job, carry: Carry) -> Any:
    """Names, shapes and dtypes of what a client begins with."""
    leaves, names = list[Tensor](), list[Any]()
    flatten((job, carry), leaves, names)
    return names, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _called(function: Callable[[], None]) -> Callable[[], None]:
    """What stands for a recording on a CPU: the function."""
    return function
