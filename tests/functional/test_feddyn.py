"""FedDyn's mathematics: the card's vector, the gradient of the regularised loss, the server's state as a mean."""

from __future__ import annotations

import pytest
import torch

from fedskew import functional as fn


def params(*values: float) -> dict[str, torch.Tensor]:
    return {"w": torch.tensor(values, dtype=torch.float64), "b": torch.tensor([sum(values)], dtype=torch.float64)}


def test_one_round_by_hand() -> None:
    """f = (w - 1)^2 / 2 from x = 0 with alpha = 0.5, one step of 0.1, one client."""
    x = {"w": torch.zeros(1, dtype=torch.float64)}
    grads = {"w": x["w"] - 1}
    step = fn.feddyn_correction(grads, x, x, x, 0.5)
    y = {"w": x["w"] - 0.1 * step["w"]}
    own = fn.feddyn_state(x, y, 0.5)
    server = fn.feddyn_server_state(x, y, 0.5, 1, 1)
    after = fn.feddyn_update(x, y, server, 0.5)
    found = [float(t["w"]) for t in (y, own, server, after)]
    assert found == pytest.approx([0.1, -0.05, -0.05, 0.2], abs=1e-15)


def test_the_correction_is_the_gradient_of_the_regularised_loss() -> None:
    w, x, h = params(0.3, -1.2, 2.0), params(1.0, 0.0, -0.5), params(0.7, 0.1, -0.4)
    alpha = 0.37

    def loss(p: dict[str, torch.Tensor]) -> torch.Tensor:
        return sum((v**3).sum() for v in p.values())  # type: ignore[return-value]

    def regularised(p: dict[str, torch.Tensor]) -> torch.Tensor:
        pull = sum(((p[n] - x[n]) ** 2).sum() for n in p)
        return loss(p) - sum((h[n] * p[n]).sum() for n in p) + alpha / 2 * pull

    found = fn.feddyn_correction(torch.func.grad(loss)(w), h, w, x, alpha)
    want = torch.func.grad(regularised)(w)
    assert all(torch.allclose(found[n], want[n], atol=1e-14) for n in w)


def test_the_servers_state_is_the_mean_of_the_clients() -> None:
    """h = (1/N) sum_k h_k after rounds of any participants."""
    gen = torch.Generator().manual_seed(0)
    clients, alpha = 5, 0.2
    states = [params(0, 0, 0) for _ in range(clients)]
    server = params(0, 0, 0)
    for cohort in ([0, 2], [1], [0, 1, 2, 3, 4], [3, 4]):
        deltas = [params(*torch.randn(3, generator=gen, dtype=torch.float64).tolist()) for _ in cohort]
        for k, delta in zip(cohort, deltas, strict=True):
            states[k] = fn.feddyn_state(states[k], delta, alpha)
        mean = {n: torch.stack([d[n] for d in deltas]).mean(0) for n in server}
        server = fn.feddyn_server_state(server, mean, alpha, len(cohort), clients)
        for n in server:
            assert torch.allclose(server[n], torch.stack([s[n] for s in states]).mean(0), atol=1e-14)


def test_without_a_state_the_update_is_the_mean() -> None:
    x, delta = params(1.0, 2.0), params(0.5, -0.25)
    after = fn.feddyn_update(x, delta, params(0.0, 0.0), 0.1)
    assert all(torch.equal(after[n], x[n] + delta[n]) for n in x)


def test_the_functions_run_under_vmap() -> None:
    """As clients of a batched engine do."""
    stacked = {"w": torch.arange(6.0).reshape(3, 2)}
    one = {"w": torch.ones(2)}
    found = torch.vmap(lambda g, h: fn.feddyn_correction(g, h, one, one, 0.5))(stacked, stacked)
    assert torch.equal(found["w"], torch.zeros(3, 2))
