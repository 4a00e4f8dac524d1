"""Who trains on how much and after whom: offers, quotas, paces and chains, against a computation by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew.engines.clients import client_source
from fedskew.engines.measures import Traffic
from fedskew.engines.planning import Planner
from fedskew.method.paces import Fixed
from fedskew.method.samplers import WIDE, Shuffle, batched
from fedskew.models.prepare import prepare
from fedskew.server import Broadcast
from fedskew.types import Assignment
from support.federations import RAGGED, blobs, skewed
from support.runs import go, same

# Widths


@pytest.mark.parametrize("own", [False, True])
def test_a_batch_size_beyond_a_clients_rows_pads_nothing(own: bool) -> None:
    """A million rows a mini-batch once made stacks a million rows wide: 7 GB and half a minute for 240 rows."""

    @dataclass(frozen=True)
    class Own(Shuffle):
        """A sampler of the user's that pads to the batch size itself."""

        name = "own"

        def plan(self, *args: Any) -> Any:
            made = super().plan(*args)
            return np.pad(made, ((0, 0), (0, 0), (0, 5000 - made.shape[2])), constant_values=-1)

    fed, plain = blobs(RAGGED), replace(fs.methods.fedavg(), pace=Fixed(batch_size=0, epochs=2))
    wide = replace(plain, pace=replace(plain.pace, batch_size=1_000_000), sampler=Own() if own else Shuffle())
    task = prepare(torch.nn.Linear(5, 3), None, (5,), 3).task(4, 1)
    given = Broadcast(1, {}, {}, {}, {})
    for method in (plain, wide):
        groups = Planner(task, 0).plans(method, Assignment(torch.arange(4)[:, None]), given, client_source(fed))
        assert [group[0].batches.shape for group in groups] == [(2, 1, sum(counts)) for counts in RAGGED]
    for engine in ("sequential", "batched"):
        one, two = (go(fed, method, engine=engine, dtype="float32") for method in (plain, wide))
        assert same(one.params, two.params)


def test_ordinary_batch_sizes_keep_their_width() -> None:
    """Sums over another width differ in their last bits."""
    made = batched(np.arange(3), (WIDE, 1, 0), np.random.Generator(np.random.PCG64(0)))
    assert made.shape == (1, 1, WIDE)


# Chains: Astraea


def test_chains_refuse_what_needs_single_clients() -> None:
    chained = fs.methods.astraea().selector
    for method in (fs.methods.scaffold(), fs.methods.moon(), fs.methods.fedgr(), fs.methods.fedgc()):
        with pytest.raises(fs.ConfigError, match="must not pass a model from client to client beside"):
            go(skewed(), replace(method, selector=chained))


def test_a_quota_goes_down_with_eight_bytes_a_class() -> None:
    traffic, chains = Traffic(), torch.tensor([[0], [2]])
    for quota in (None, torch.ones(2, 3, dtype=torch.int64)):
        traffic.add_training(Assignment(chains, quota), {}, {}, update_bytes=10, broadcast_bytes=100)
    assert (traffic.contacts, traffic.up, traffic.down) == (4, 40, 400 + 2 * 3 * 8)
