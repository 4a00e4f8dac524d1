"""Rounds of personalised methods, written from their equations: what stays on a client, what stands still, and models
of the clients' own beside the shared one."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import losses, solvers
from .model import backward, forward, head, lin


@dataclass
class Personal:
    """What one of these methods does. Names are those of parameters."""

    private: Any = ()  # stay on the client
    frozen: Any = ()  # stand still
    phases: Any = None  # (epoch, epochs) -> names that move
    tie: Any = None  # Ditto's lambda
    own_lr: Any = None  # Ditto's rate of v, where it is another
    mix: Any = None  # APFL's (alpha, when it is learnt: "round", "step" or None)
    second: bool = False  # FedRoD's second classifier
    beside: bool = False  # FedLoGe's two classifiers
    hyper: bool = False  # FedRoD's classifier out of the class shares
    cosine: bool = False  # FedETF's loss
    tau: float = 0.0  # shift of the logits by log n_c
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: Any = None
    kept: dict[int, Any] = field(default_factory=dict)  # what each client keeps


GENERATED = [f"generated_head.{layer}.{part}" for layer in ("first", "second") for part in ("weight", "bias")]


def generated(w, shares):
    """(V [C, F], c [C], what enters the relu, what leaves it) of FedRoD's network."""
    first, shift, second, start = (w[name] for name in GENERATED)
    before = first @ shares + shift
    inner = np.where(before > 0, before, 0.0)
    rows = (second @ inner + start).reshape(len(shares), -1)
    return rows[:, :-1], rows[:, -1], before, inner


def generated_gradient(w, shares, h, z, y):
    """Of CE(z + V h + c) by the network's four arrays."""
    v, c, before, inner = generated(w, shares)
    dz = losses.affine_ce(z + h @ v.T + c, y)
    rows = np.concatenate([dz.T @ h, dz.sum(0)[:, None]], axis=1).ravel()
    back = np.where(before > 0, w[GENERATED[2]].T @ rows, 0.0)
    return dict(zip(GENERATED, (np.outer(back, shares), back, np.outer(rows, inner), rows), strict=True))


def gradient(problem, o, used, k):
    """grad(w, rows): of the whole local objective, by hand."""
    shift = losses.logit_adjust_shift(used, o.tau) if o.tau else 0.0

    def grad(w, rows):
        added = ("personal_head.", "cosine_softmax.", "realigned_heads.", "generated_head.")
        extra = {n: v for n, v in w.items() if n.startswith(added)}
        net = {n: v for n, v in w.items() if n not in extra}
        xb, y = problem.x[rows], problem.y[rows]
        z, h, inputs = forward(net, xb)
        if o.cosine:
            weight = net[head(net)[0]]
            sizes = np.maximum(np.linalg.norm(h, axis=1, keepdims=True), 1e-12)
            u, rows_of = h / sizes, weight / np.linalg.norm(weight, axis=1, keepdims=True)
            scale = extra["cosine_softmax.scale"]
            dz = losses.affine_ce(scale * u @ rows_of.T, y, 1.0, shift)
            du = scale * dz @ rows_of
            dh = (du - u * (u * du).sum(1, keepdims=True)) / sizes
            grads = backward(net, inputs, np.zeros_like(z), dh)
            return {**grads, "cosine_softmax.scale": (dz * (u @ rows_of.T)).sum()}
        grads = backward(net, inputs, losses.affine_ce(z, y, 1.0, shift))
        if o.second:
            both = z + h @ extra["personal_head.weight"].T + extra["personal_head.bias"]
            dz = losses.affine_ce(both, y)
            grads |= {"personal_head.weight": dz.T @ h, "personal_head.bias": dz.sum(0)}
        if o.hyper:
            grads |= generated_gradient(extra, problem.owned(k) / problem.owned(k).sum(), h, z, y)
        for whose in ("realigned_heads.shared", "realigned_heads.own") if o.beside else ():
            dz = losses.affine_ce(h @ extra[f"{whose}.weight"].T + extra[f"{whose}.bias"], y)
            grads |= {f"{whose}.weight": dz.T @ h, f"{whose}.bias": dz.sum(0)}
        return {n: grads[n] for n in w}

    return grad


def local_run(problem, o, x, k, batches, epochs, lr, used):
    """The client's parameters after its round; what it keeps is written to ``o.kept``."""
    grad, clip = gradient(problem, o, used, k), solvers.as_is
    if o.clip is not None:

        def clip(g):
            return solvers.clipped(g, o.clip)

    kept = o.kept.setdefault(
        k, {"private": {n: problem.params[n] for n in o.private}, "v": problem.params, "alpha": None}
    )
    if o.mix and kept["alpha"] is None:
        kept["alpha"] = o.mix[0]
    start = {**x, **kept["private"]}
    w, buffer = start, {n: np.zeros_like(v) for n, v in x.items()}
    beside = buffer  # of the client's own model: begun anew in every round, too
    for at, (rows, epoch) in enumerate(zip(batches, epochs, strict=True)):
        rows = np.asarray(rows)
        moving = set(x) - set(o.frozen)
        if o.phases:
            moving &= set(o.phases(epoch, max(epochs)))
        if o.tie is not None:
            g = clip(grad(kept["v"], rows))
            step = lin((1, g), (o.weight_decay, kept["v"]), (o.tie, kept["v"]), (-o.tie, start))
            beside = lin((o.momentum, beside), (1, step))
            kept["v"] = lin((1, kept["v"]), (-(o.own_lr or lr), beside))
        if o.mix:
            alpha, v = kept["alpha"], kept["v"]
            middle = lin((alpha, v), (1 - alpha, w))
            g = lin((1, clip(grad(middle, rows))), (o.weight_decay, middle))
            beside = lin((o.momentum, beside), (alpha, g))
            kept["v"] = lin((1, v), (-lr, beside))
            if o.mix[1] == "step" or (o.mix[1] == "round" and at == 0):
                slope = sum(float((g[n] * (v[n] - w[n])).sum()) for n in g)
                kept["alpha"] = min(max(alpha - lr * slope, 0.0), 1.0)
        g = clip({n: v if n in moving else np.zeros_like(v) for n, v in grad(w, rows).items()})
        buffer = lin((o.momentum, buffer), (1, g), (o.weight_decay, w))
        w = {n: v - lr * buffer[n] if n in moving else v for n, v in w.items()}
    kept["private"] = {n: w[n] for n in o.private}
    return w


def run_personal(problem, plans, o):
    """Parameters at the server after each round, averaged by the number of rows; ``o.kept`` says what clients kept."""
    x, history = problem.params, []
    for plan in plans:
        share = np.asarray(plan.samples, float) / np.sum(plan.samples)
        ends = [
            local_run(problem, o, x, k, plan.batches[i], list(plan.epochs[i]), plan.lr[i], np.asarray(plan.used[i]))
            for i, k in enumerate(plan.ids)
        ]
        stays = {*o.private, *o.frozen}
        x = {
            n: v if n in stays else v + sum(p * (y[n] - v) for p, y in zip(share, ends, strict=True))
            for n, v in x.items()
        }
        history.append(x)
    return history
