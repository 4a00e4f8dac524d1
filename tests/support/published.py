"""Rounds by the step rules of the authors' public code, in torch alone: gradient descent on all rows of a client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

Values = dict[str, Tensor]


@dataclass
class World:
    """Clients with their rows, the pace, and what stays on each client."""

    net: nn.Module
    rows: list[tuple[Tensor, Tensor]]
    cohorts: Sequence[Sequence[int]]
    epochs: int
    lr: float
    decay: float
    kept: dict[int, Any] = field(default_factory=dict)

    def start(self) -> Values:
        return {n: v.clone() for n, v in self.net.state_dict().items()}

    def loss(self, values: Values, k: int) -> float:
        net = loaded(self.net, values)
        return nn.functional.cross_entropy(net(self.rows[k][0]), self.rows[k][1]).item()

    def gradient(self, values: Values, k: int) -> tuple[Values, Values]:
        """(gradients, values with the running statistics of the pass)."""
        net = loaded(self.net, values).train()
        nn.functional.cross_entropy(net(self.rows[k][0]), self.rows[k][1]).backward()
        grads = {n: p.grad for n, p in net.named_parameters() if p.grad is not None}
        return grads, {n: v.detach().clone() for n, v in net.state_dict().items()}

    def trained(self, values: Values, k: int, rate: float, moving: Callable[[str, int], bool]) -> Values:
        for epoch in range(self.epochs):
            grads, values = self.gradient(values, k)
            values |= {n: values[n] - rate * g for n, g in grads.items() if moving(n, epoch)}
        return values


def loaded(net: nn.Module, values: Values) -> nn.Module:
    twin = deepcopy(net)
    twin.load_state_dict(values)
    return twin


def mean(models: Sequence[Values], weights: Sequence[float] | None = None) -> Values:
    shares = [1.0] * len(models) if weights is None else weights
    total = sum(shares)
    return {n: sum(s / total * m[n] for s, m in zip(shares, models, strict=True)) for n in models[0]}  # type: ignore[misc]


def shared_and_kept(
    world: World, stays: Callable[[str], bool], moving: Callable[[str, int], bool], by_size: bool = False
) -> list[Values]:
    """FedBABU, FedRep, LG-FedAvg, FedBN: what stays is the client's, the rest the mean; the mean after each round."""
    x, history = world.start(), []
    for r, cohort in enumerate(world.cohorts):
        ends = []
        for k in cohort:
            own = {n: v for n, v in world.kept.get(k, world.start()).items() if stays(n)}
            ends.append(world.trained({**x, **own}, k, world.lr * world.decay**r, moving))
            world.kept[k] = ends[-1]
        sizes = [float(len(world.rows[k][1])) for k in cohort]
        x = {**x, **{n: v for n, v in mean(ends, sizes if by_size else None).items() if not stays(n)}}
        history.append(x)
    return history


def ditto(world: World, lam: float) -> list[Values]:
    """v <- v - lr (g(v) + lam (v - x)), then a step of w, on each mini-batch; uniform mean."""
    x, history = world.start(), []
    for r, cohort in enumerate(world.cohorts):
        rate, ends = world.lr * world.decay**r, []
        for k in cohort:
            v, w = world.kept.get(k, world.start()), dict(x)
            for _ in range(world.epochs):
                grads, _ = world.gradient(v, k)
                v = {n: v[n] - rate * (g + lam * (v[n] - x[n])) for n, g in grads.items()}
                grads, _ = world.gradient(w, k)
                w = {n: w[n] - rate * g for n, g in grads.items()}
            world.kept[k] = v
            ends.append(w)
        x = mean(ends)
        history.append(x)
    return history


def apfl(world: World, share: float) -> list[Values]:
    """Equation 10 of the paper, alpha at the first mini-batch of a round as in the authors' code; uniform mean."""
    x, history = world.start(), []
    for r, cohort in enumerate(world.cohorts):
        rate, ends = world.lr * world.decay**r, []
        for k in cohort:
            v, alpha = world.kept.get(k, (world.start(), share))
            w = dict(x)
            for step in range(world.epochs):
                grads, _ = world.gradient({n: alpha * v[n] + (1 - alpha) * w[n] for n in v}, k)
                slope = sum(float((g * (v[n] - w[n])).sum()) for n, g in grads.items())
                v = {n: v[n] - rate * alpha * g for n, g in grads.items()}
                alpha = min(max(alpha - rate * slope, 0.0), 1.0) if step == 0 else alpha
                grads, _ = world.gradient(w, k)
                w = {n: w[n] - rate * g for n, g in grads.items()}
            world.kept[k] = v, alpha
            ends.append(w)
        x = mean(ends)
        history.append(x)
    return history


def ifca(world: World, models: list[Values]) -> list[list[Values]]:
    """Each client trains the model of the least loss; the mean of each model's clients; the models after each round."""
    history = []
    for r, cohort in enumerate(world.cohorts):
        chosen = {k: min(range(len(models)), key=lambda j: world.loss(models[j], k)) for k in cohort}
        ends = {k: world.trained(models[j], k, world.lr * world.decay**r, lambda *_: True) for k, j in chosen.items()}
        theirs = [[ends[k] for k in cohort if chosen[k] == j] for j in range(len(models))]
        models = [mean(t) if t else old for t, old in zip(theirs, models, strict=True)]
        history.append(models)
    return history
