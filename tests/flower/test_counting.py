"""The server counts the steps of a client from its declared rows as the client that has the rows plans them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedskew.engines.clients import RowSource
from fedskew.engines.counted import StepPlanner
from fedskew.engines.guard import Guard, guarded
from fedskew.engines.planning import Planner
from fedskew.method import Method
from fedskew.method.paces import Fixed, Part, Steps
from fedskew.method.samplers import ClassBalanced, Shuffle
from fedskew.methods.fedvc import VirtualClient
from fedskew.server import Broadcast
from fedskew.types import Assignment, Task


@dataclass(frozen=True)
class Own(Shuffle):
    """A sampler of the user's own, which only draws can count."""

    name = "own"

    def plan(self, labels, offered, quota, pace, shared, key):  # type: ignore[no-untyped-def]
        return super().plan(labels, offered, quota, pace, shared, key)[:, :1]


PACES = (Fixed(epochs=2, batch_size=3), Fixed(batch_size=0), Fixed(batch_size=5000), Steps(steps=7, batch_size=4),
         Part(part=1.5, batch_size=4))  # fmt: skip
SAMPLERS = (Shuffle(), ClassBalanced(), VirtualClient(size=9), Own())


@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=4), st.data())
def test_steps_are_those_of_a_client_with_the_rows(told: list[list[int]], data: st.DataObject) -> None:
    counts = torch.tensor([row if sum(row) else [1, 0, 0] for row in told])
    sampler, pace = data.draw(st.sampled_from(SAMPLERS)), data.draw(st.sampled_from(PACES))
    quota = torch.tensor([data.draw(st.lists(st.integers(0, 9), min_size=3, max_size=3)) for _ in told])
    quota = torch.maximum(quota, (counts > 0).long()) if data.draw(st.booleans()) else None
    method = guarded(Method("one", sampler=sampler, pace=pace), Guard())
    labels = np.concatenate([np.repeat(np.arange(3), row) for row in counts.tolist()])
    ends = np.cumsum([0, *counts.sum(1).tolist()])
    rows = [np.arange(a, b) for a, b in pairwise(ends)]
    ids = Assignment(torch.arange(len(counts)).unsqueeze(1), quota)
    task, none = Task("fc", 3, 1, len(counts), 5), np.empty(0, np.int64)
    given_ = Broadcast(1, {}, {}, {}, {})
    real = Planner(task, 0).plans(method, ids, given_, RowSource(rows, labels, counts))
    counted = StepPlanner(task, 0).plans(method, ids, given_, RowSource([none] * len(counts), none, counts))
    for (a,), (b,) in zip(real, counted, strict=True):
        assert (len(a.batches), a.batches.shape[1], a.samples) == (len(b.batches), b.batches.shape[1], b.samples)
        assert (a.pace, a.lr, a.epochs, a.used.tolist()) == (b.pace, b.lr, b.epochs, b.used.tolist())


@pytest.mark.parametrize("sampler", SAMPLERS[:3], ids=lambda s: s.name)
def test_memory_does_not_follow_the_rows(sampler: Shuffle) -> None:
    counts, none = torch.tensor([[10**12, 0, 0]]), np.empty(0, np.int64)
    method = Method("one", sampler=sampler)
    task = Task("fc", 3, 1, 1, 5)
    ((plan,),) = StepPlanner(task, 0).plans(
        method, Assignment(torch.zeros(1, 1, dtype=torch.int64)), Broadcast(1, {}, {}, {}, {}),
        RowSource([none], none, counts),
    )  # fmt: skip
    assert len(plan.batches) == (2 if sampler.name == "virtual_client" else 2 * -(-(10**12) // 64))
