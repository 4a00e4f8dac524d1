"""The plan of a round: which rows each client trains on, step by step, and what each is given for it.

Plans are made on the host before anything trains. A client's job in the round is a plan, the tensors of
`fedskew.client.Job`, and a key for each mini-batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedskew import rng, tree
from fedskew.client import PRIVATE, ClientInputs, Job, RoundInputs
from fedskew.engines.clients import ClientMemory, RowSource
from fedskew.engines.runtime import Runtime
from fedskew.method import Method
from fedskew.method.samplers import WIDE
from fedskew.server import Broadcast
from fedskew.types import Assignment, Cohort, PacePlan, Params, Report, Task, Tree

Array = np.ndarray[Any, Any]
Pace = tuple[int, int, int, float, int]  # batch size, epochs, steps an epoch, learning rate, steps in all


class Plan(NamedTuple):
    """One client's local run: T steps of D mini-batches of B rows."""

    client: int
    rows: Array  # [n] the client's rows, positions in the training set
    batches: Array  # [T, D, B] positions in ``rows``; -1 is padding
    epoch: Array  # [T] one-based
    epochs: int
    lr: float
    samples: int  # rows that an epoch is drawn from
    owned: Tensor  # [C]
    offered: Tensor  # [C]
    used: Tensor  # [C]
    member: int = 0  # place in its chain
    pace: Pace = (0, 0, 0, 0.0, 0)  # from which the mini-batches were made


class Member(NamedTuple):
    """A client in its chain, and the rows of each class that it can and may train on."""

    client: int
    member: int  # place in its chain
    offered: Tensor  # [C]
    used: Tensor  # [C]


def paces_of(plan: PacePlan) -> list[Pace]:
    """The pace of each client, of tensors [K]."""
    total = torch.zeros_like(plan.batch) if plan.total is None else plan.total
    return list(zip(*(column.tolist() for column in (*plan[:4], total)), strict=True))


def length_of(drawn: int, pace: Pace) -> int:
    """Local steps of a client that draws so many rows an epoch: what `fedskew.method.samplers.batched` gives."""
    batch, epochs, most, _, total = pace
    all_rows = max(drawn, 1)
    size = min(batch, all_rows) if batch > WIDE else batch or all_rows
    each = -(-drawn // size)
    steps = epochs * (min(each, most) if most else each)
    return min(steps, total) if total > 0 else steps


@dataclass(frozen=True)
class Planner:
    """Plans rounds of a run. Draws depend on the run's seed, the round and the client alone."""

    task: Task
    seed: int

    def offer(self, method: Method, source: RowSource, broadcast: Broadcast) -> Tensor:
        """The sampler's offer of rows for every client of a source, [N, C]. Asking twice gives the same answer."""
        name = method.sampler.name
        key = rng.key(self.seed, broadcast.round, name, "offer")
        return method.sampler.offer(source.counts, broadcast.common.get(name, {}), broadcast.round, key)

    def plans(
        self, method: Method, assignment: Assignment, broadcast: Broadcast, source: RowSource
    ) -> list[list[Plan]]:
        """The plans of each chain of the assignment, member by member; padding is left out."""
        offered = self.offer(method, source, broadcast)
        used, pace = self._pace(method, offered, assignment, broadcast.round)
        shared = broadcast.common.get(method.sampler.name, {})
        members = assignment.chains.shape[1]
        paces = paces_of(pace)
        groups: list[list[Plan]] = []
        for g, chain in enumerate(assignment.chains.tolist()):
            group = []
            for m, k in enumerate(chain):
                if k < 0:
                    continue
                i = g * members + m
                at = Member(k, m, offered[k], used[i])
                group.append(self.plan(method, source, at, paces[i], shared, broadcast.round))
            groups.append(group)
        return groups

    def plan(self, method: Method, source: RowSource, at: Member, pace: Pace, shared: Tree, round: int) -> Plan:
        """The plan of one client. Each of a step's D mini-batches has its own order, so they agree in size.

        Args:
            method: its sampler draws, its local step says how many mini-batches a step reads.
            source: the client's rows.
            at: the client, and the rows of each class that it can and may train on.
            pace: batch size, epochs, steps an epoch, rate and steps in all.
            shared: the sampler's broadcast.
            round: one-based.
        """
        client, member, offered, used = at
        key = rng.seed_of(self.seed, round, client, "plan")
        rows, labels = source.rows[client], source.labels[source.rows[client]]
        _, epochs, _, lr, total = pace
        keys = [torch.tensor(rng.folded(key, 7 * d + member)) for d in range(method.local.batches)]
        draws = [method.sampler.plan(labels, offered.numpy(), used.numpy(), pace[:3], shared, key) for key in keys]
        plan = np.stack(draws, axis=2) if len(draws) > 1 else draws[0][:, :, None]  # [E, S, D, B]
        epoch = np.repeat(np.arange(1, plan.shape[0] + 1), plan.shape[1])
        flat = plan.reshape(-1, *plan.shape[2:])
        real = (flat[:, 0] >= 0).any(1) | method.sampler.bare
        if not real.all():
            flat, epoch = flat[real], epoch[real]
        if 0 < total < len(flat):
            flat, epoch = flat[:total], epoch[:total]
        if flat.shape[2] > WIDE:  # a sampler of the user's own may pad a few rows to a batch size of a million
            flat = flat[..., : max(int((flat >= 0).sum(2).max(initial=0)), 1)]
        owned = source.counts[client]
        return Plan(client, rows, flat, epoch, epochs, lr, int(used.sum()), owned, offered, used, member, pace)

    def _pace(self, method: Method, offered: Tensor, assignment: Assignment, round: int) -> tuple[Tensor, PacePlan]:
        """(rows of each class used [G*M, C], pace) of every place of the chains; padding uses no rows."""
        members = assignment.chains.shape[1]
        ids = assignment.chains.flatten()
        used = offered[ids.clamp(min=0)] * (ids >= 0).unsqueeze(1)
        if assignment.quota is not None:
            used = torch.minimum(used, assignment.quota.repeat_interleave(members, 0))
        return used, method.pace.of(used.sum(1), round, self.task.rounds)

    def cohort(self, method: Method, plans: list[list[Plan]], broadcast: Broadcast) -> Cohort:
        """What is known of a round before anyone has trained; losses are 0, and a chain counts as one client."""
        steps = torch.tensor([sum(len(p.batches) for p in group) for group in plans])
        lr = torch.tensor([group[0].lr for group in plans], dtype=torch.float64)
        zero = torch.zeros(len(plans), dtype=torch.float64)
        samples = torch.tensor([sum(p.samples for p in group) for group in plans])
        a_norm = method.local.a_norm(steps, lr, method.proximal).double()
        longest = max(len(group) for group in plans)
        chains = torch.tensor([[p.client for p in g] + [-1] * (longest - len(g)) for g in plans])

        def total(histogram: str) -> Tensor:
            if longest == 1:
                return torch.stack([getattr(group[0], histogram) for group in plans])
            return torch.stack([torch.stack([getattr(p, histogram) for p in group]).sum(0) for group in plans])

        return Cohort(
            task=self.task,
            ids=chains[:, 0],
            owned=total("owned"),
            offered=total("offered"),
            used=total("used"),
            reports=Report(samples, steps, lr, zero, a_norm),
            before=broadcast.params,
            round=broadcast.round,
            chains=chains,
            uploads={},
        )


# What each client is given


class ClientJob(NamedTuple):
    """A client's work in a round: what it is given, and the rows that it will train on."""

    job: Job
    plan: Plan
    keys: Tensor  # [T, D] one for each mini-batch

    @property
    def left(self) -> int:
        """Rounds of the run from this one on."""
        shared = self.job.shared
        return max(int(shared.rounds) - int(shared.round), 0) + 1

    def after(self, params: Params, buffers: Params) -> ClientJob:
        """This job as a member of a chain, which begins from what the one before it has trained, leaves [1, ...]."""
        shared = self.job.shared._replace(params=tree.row(params, 0), buffers=tree.row(buffers, 0))
        return self._replace(job=Job(shared, self.job.own))


@dataclass(frozen=True, eq=False)
class Jobs:
    """Makes the jobs of a run's rounds."""

    runtime: Runtime
    task: Task
    seed: int

    def chains(
        self, method: Method, plans: list[list[Plan]], broadcast: Broadcast, memory: ClientMemory
    ) -> list[list[ClientJob]]:
        """As `of`, of the plans of chains, for a broadcast to these clients."""
        row_of = {k: i for i, k in enumerate(dict.fromkeys(p.client for group in plans for p in group))}
        if max(map(len, plans), default=1) == 1:
            return [[job] for job in self.of(method, [group[0] for group in plans], broadcast, memory, row_of)]
        return [
            [self.of(method, [plan], broadcast, memory, row_of, m)[0] for m, plan in enumerate(group)]
            for group in plans
        ]

    def of(
        self,
        method: Method,
        plans: list[Plan],
        broadcast: Broadcast,
        memory: ClientMemory,
        row_of: dict[int, int],
        m: int = 0,
    ) -> list[ClientJob]:
        """A job for each plan, on the host.

        Args:
            method: its local rule gives FedNova's ||a||_1.
            plans: of clients that may train at the same time.
            broadcast: in the layout of the runtime.
            memory: what the clients kept.
            row_of: {client: its row in the leaves of ``broadcast.each``}.
            m: the clients' place in their chains.
        """
        now, last = torch.tensor(broadcast.round), torch.tensor(self.task.rounds)
        shared = RoundInputs(broadcast.params, broadcast.buffers, broadcast.common, now, last)
        scalars = self._scalars(method, plans)
        keys = self.keys(plans, broadcast.round, m)

        def job_of(i: int, plan: Plan) -> ClientJob:
            memory_of = dict(memory.get(plan.client))
            kept = self.runtime.layout(memory_of.pop(PRIVATE, {}))
            inputs = ClientInputs(
                each=self.runtime.layout(tree.row(broadcast.each, row_of[plan.client])) if broadcast.each else {},
                memory=self.runtime.layout(memory_of),
                kept=kept,
                owned=plan.owned,
                used=plan.used,
                **{name: values[i] for name, values in scalars.items()},
            )
            return ClientJob(Job(shared, inputs), plan, keys[i])

        return [job_of(i, plan) for i, plan in enumerate(plans)]

    def _scalars(self, method: Method, plans: list[Plan]) -> dict[str, tuple[Tensor, ...]]:
        """The () tensors of `ClientInputs`, for each plan."""
        steps = torch.tensor([len(p.batches) for p in plans])
        lr = torch.tensor([p.lr for p in plans], dtype=torch.float64)
        a_norm = method.local.a_norm(steps, lr, method.proximal).to(self.runtime.dtype)
        epochs, samples = torch.tensor([p.epochs for p in plans]), torch.tensor([p.samples for p in plans])
        columns = {"lr": lr.to(self.runtime.dtype), "a_norm": a_norm, "steps": steps}
        return {name: c.unbind() for name, c in {**columns, "epochs": epochs, "samples": samples}.items()}

    def keys(self, plans: list[Plan], round: int, m: int) -> list[Tensor]:
        """A key for each mini-batch of each client, [T, D]: a counter folded into the client's own key."""
        seeds = [rng.folded(rng.seed_of(self.seed, round, p.client, "train"), m) for p in plans]
        shapes = [p.batches.shape[:2] for p in plans]
        counter = torch.arange(max((t * d for t, d in shapes), default=0))
        keys = rng.fold(torch.tensor(seeds).unsqueeze(1), counter)
        return [row[: t * d].reshape(t, d) for row, (t, d) in zip(keys.unbind(), shapes, strict=True)]
