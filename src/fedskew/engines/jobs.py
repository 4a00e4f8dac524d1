"""What each client of a round is given: a job (`fedskew.client.Job`), its plan, and a key for each mini-batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedskew import rng, tree
from fedskew.client import KEPT, Job, Own, Shared
from fedskew.engines.memory import ClientMemory
from fedskew.engines.planning import Plan
from fedskew.engines.runtime import Runtime
from fedskew.method import Method
from fedskew.server import Broadcast
from fedskew.types import Task

__all__ = ["Jobs", "Place"]


class Place(NamedTuple):
    """A client's place in the round: what it is given, and the rows that it will train on."""

    job: Job
    plan: Plan
    keys: Tensor  # [T, D] one for each mini-batch

    @property
    def left(self) -> int:
        """Rounds of the run from this one on."""
        shared = self.job.shared
        return max(int(shared.rounds) - int(shared.round), 0) + 1


@dataclass(frozen=True, eq=False)
class Jobs:
    """Makes the places of a run's rounds."""

    runtime: Runtime
    task: Task
    seed: int

    def places(
        self,
        method: Method,
        plans: list[Plan],
        broadcast: Broadcast,
        memory: ClientMemory,
        row_of: dict[int, int],
        m: int = 0,
    ) -> list[Place]:
        """A place for each plan, on the host.

        Args:
            method: its local rule gives FedNova's ||a||_1.
            plans: of clients that may train at the same time.
            broadcast: in the layout of the runtime.
            memory: what the clients kept.
            row_of: {client: its row in the leaves of ``broadcast.each``}.
            m: the clients' place in their chains.
        """
        now, last = torch.tensor(broadcast.round), torch.tensor(self.task.rounds)
        shared = Shared(broadcast.params, broadcast.buffers, broadcast.common, now, last)
        scalars = self._scalars(method, plans)
        keys = self.keys(plans, broadcast.round, m)

        def place(i: int, plan: Plan) -> Place:
            memory_of = dict(memory.get(plan.client))
            kept = self.runtime.layout(memory_of.pop(KEPT, {}))
            own = Own(
                each=self.runtime.layout(tree.row(broadcast.each, row_of[plan.client])) if broadcast.each else {},
                memory=self.runtime.layout(memory_of),
                kept=kept,
                owned=plan.owned,
                used=plan.used,
                **{name: values[i] for name, values in scalars.items()},
            )
            return Place(Job(shared, own), plan, keys[i])

        return [place(i, plan) for i, plan in enumerate(plans)]

    def _scalars(self, method: Method, plans: list[Plan]) -> dict[str, tuple[Tensor, ...]]:
        """The () tensors of `Own`, for each plan."""
        steps = torch.tensor([len(p.batches) for p in plans])
        lr = torch.tensor([p.lr for p in plans], dtype=torch.float64)
        a_norm = method.local.a_norm(steps, lr, method.proximal).to(self.runtime.dtype)
        epochs, samples = torch.tensor([p.epochs for p in plans]), torch.tensor([p.samples for p in plans])
        columns = {"lr": lr.to(self.runtime.dtype), "a_norm": a_norm, "steps": steps}
        return {name: c.unbind() for name, c in {**columns, "epochs": epochs, "samples": samples}.items()}

    def keys(self, plans: list[Plan], round: int, m: int) -> list[Tensor]:
        """A key for each mini-batch of each client, [T, D]: a counter folded into the client's own key."""
        own = [rng.folded(rng.seed_of(self.seed, round, p.client, "train"), m) for p in plans]
        shapes = [p.batches.shape[:2] for p in plans]
        counter = torch.arange(max((t * d for t, d in shapes), default=0))
        keys = rng.fold(torch.tensor(own).unsqueeze(1), counter)
        return [row[: t * d].reshape(t, d) for row, (t, d) in zip(keys.unbind(), shapes, strict=True)]
