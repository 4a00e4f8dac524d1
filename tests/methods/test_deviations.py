"""What public code does where the equations leave room, recomputed here with torch alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedskew.errors import FieldError
from fedskew.methods import METHODS
from fedskew.shared import Fixed
from support.federations import blobs
from support.runs import go


@pytest.mark.parametrize("engine", ["sequential", "threaded", "batched"])
@pytest.mark.parametrize("name", ["feddyn", "fedspeed", "fedsmoo"])
def test_the_regularisers_own_clip_is_that_of_the_public_simulator(name: str, engine: str) -> None:
    """FL-Simulator@502bec6 clips g + lam (h - x) and adds (decay + lam) w after; one client, one step a round."""
    clip, alpha, decay, lr = 0.05, 0.1, 0.02, 0.5
    method = METHODS[name](alpha) if name == "feddyn" else METHODS[name](alpha, rho=0.0)
    part, others = method.parts[-1], method.parts[:-1]
    local = replace(method.local, weight_decay=decay)
    method = replace(method, parts=(*others, replace(part, clip=clip)), local=local)
    method = replace(method, pace=Fixed(epochs=2, lr=lr, batch_size=0))
    fed = blobs([[4, 3, 2]])
    result = go(fed, method, rounds=1, cohort=1, engine=engine)
    x = torch.as_tensor(fed.dataset.x[fed.rows(0)]).double()
    y = torch.as_tensor(fed.dataset.y[fed.rows(0)])
    start = go(fed, replace(method, pace=Fixed(epochs=1, lr=1e-300, batch_size=0)), rounds=1, cohort=1).params
    w, sent = ([start[n].clone() for n in start] for _ in range(2))
    for _ in range(2):
        net = torch.nn.Linear(w[0].shape[1], 3).double()
        with torch.no_grad():
            for p, value in zip(net.parameters(), w, strict=True):
                p.copy_(value)
        torch.nn.functional.cross_entropy(net(x), y).backward()
        for p, s in zip(net.parameters(), sent, strict=True):
            assert p.grad is not None
            p.grad -= alpha * s  # h is 0 in the first round
        torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        w = [v - lr * (p.grad + (decay + alpha) * v) for v, p in zip(w, net.parameters(), strict=True)]
    h = [v - s for v, s in zip(w, sent, strict=True)]  # the server adds the mean of the clients' sums of updates
    for found, v, moved in zip(result.state.params.values(), w, h, strict=True):
        torch.testing.assert_close(found, v + moved, rtol=0, atol=1e-7)


def test_a_clip_of_the_regulariser_and_one_of_the_step_are_refused() -> None:
    method = METHODS["feddyn"]()
    both = replace(method, local=replace(method.local, clip=1.0)).with_("dynamic_regulariser", clip=1.0)
    with pytest.raises(FieldError, match="clip must be 0 beside the clip of sgd"):
        go(blobs([[4, 3, 2]]), both, cohort=1)
