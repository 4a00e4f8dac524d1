"""Whole federated rounds for a recorded plan: run(ingredients, problem, rounds, **options).

What a method is made of says what is done, by `ingredients.MEANS`; options given to `run` override it.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from . import losses, servers, solvers, terms
from .ingredients import settings
from .model import Tree, backward, forward, head, lin, norm, zeros

SCALE = "non_parametric_head.scale"  # of FedNH, where it is trained


@dataclass
class Problem:
    """Start parameters, data x [n, D] and y [n], each client's row numbers, and those of the server's own rows."""

    params: Tree
    x: np.ndarray
    y: np.ndarray
    classes: int
    rows: list[np.ndarray]
    auxiliary: np.ndarray

    def __post_init__(self):
        self.params = {name: np.array(v, np.float64) for name, v in self.params.items()}
        self.x, self.y = np.asarray(self.x, np.float64), np.asarray(self.y, int)

    def owned(self, k):
        return np.bincount(self.y[np.asarray(self.rows[k], int)], minlength=self.classes)


@dataclass
class RoundPlan:
    """One round. Position i of every list belongs to the client ids[i].

    batches[i] is the list of steps, each an array of rows or a tuple of arrays; epochs[i] the one-based epoch of each
    step; used [K, C] the histogram trained on; samples the sizes for weighting; chains lists of positions trained one
    after the other.
    """

    ids: list[int]
    batches: list[list[Any]]
    lr: list[float]
    epochs: Any
    used: Any
    samples: Any
    chains: Any
    auxiliary: Any  # FedRL: for every class, a list of arrays of rows; or None


@dataclass
class Client:
    """One position of the cohort while it trains: its plan, the model it received, what it remembers."""

    id: int
    x0: Tree
    batches: list[Any]
    epochs: Any
    lr: float
    owned: np.ndarray
    used: np.ndarray
    samples: float
    memory: dict[str, Any]
    state: dict[str, Any]
    gradients: int = 0  # taken so far, so that FedBal's schedule can look up the epoch


# --- the client -------------------------------------------------------------------------------------------------------


def fedbal_strength(c, o):
    """alpha(k) A with alpha = (k / K)^2, k the epoch, step or round."""
    step = c.gradients  # plain SGD takes one a step
    units = {
        "epoch": (c.epochs[step], max(c.epochs)),
        "step": (step + 1, len(c.batches)),
        "round": (c.state["round"], c.state["rounds"]),
    }
    k, top = units[o.unit]
    return o.strength * ((k if o.one_based else k - 1) / max(top - o.early, 1)) ** 2


def client_loss(z, f, xb, y, c, o):
    """(dL/dz, extra dL/df or 0) of the batch, by the method's loss."""
    df = 0.0
    match o.loss:
        case "ce" | "hybrid":
            dz = losses.affine_ce(z, y)
        case "lb":
            dz, df = losses.lb(z, f, y, c.used, fedbal_strength(c, o), o.missing, o.lb_eps)
        case "fedga":
            counts = losses.onehot(y, z.shape[1]).sum(0) if o.count_scope == "batch" else c.used
            dz = losses.fedga(z, y, counts, o.variant, o.probability)
        case "fedgr":
            dz = losses.unbalanced_softmax(z, y, c.used, o.gamma, o.missing)
        case "owned":
            dz = losses.affine_ce(z, y, 1.0, losses.leave_out(c.owned))
        case "fedrs":
            dz = losses.affine_ce(z, y, losses.fedrs_scale(c.used, o.alpha, o.scaling, o.few))
        case "focal":
            dz = losses.focal(z, y, o.gamma, o.alpha)
        case "fedlc":
            counts = c.state["everyone"] if o.pooled else c.used
            dz = losses.fedlc(z, y, counts, o.tau, 1e-8 if o.missing == "tiny" else 0.0)
        case "adjusted":
            dz = losses.affine_ce(z, y, 1.0, losses.logit_adjust_shift(c.used, o.tau))
        case "weighted":
            w = c.state["class_weights"]
            dz = losses.affine_ce(z, y, weights=w) / (w[y].mean() if o.divide == "weights" else 1.0)
        case "importance":
            ratio = np.divide(c.state["prior"], c.used / c.used.sum(), out=np.zeros(len(c.used)), where=c.used > 0)
            dz = losses.importance_ce(z, y, ratio)
        case "class_balanced":
            dz = losses.affine_ce(z, y, weights=losses.class_balanced_weights(c.used, o.beta))
        case "grab":
            dz = losses.grab_bce(z, y, c.memory["pid"]["u"])
        case "fedntd":
            dz = losses.affine_ce(z, y) + losses.ntd(z, forward(c.x0, xb)[0], y, o.beta, o.tau, o.scaled)
        case "balancefl":
            positive = np.isin(np.arange(z.shape[1]), y) if o.scope == "batch" else c.used > 0
            rest = (o.temperature, o.lam, o.entropy, o.reduction)
            dz = losses.balancefl(z, forward(c.x0, xb)[0], y, positive, *rest)
        case "decorrelated":
            dz, df = losses.affine_ce(z, y), o.beta * terms.decorrelation(f, o.form)
        case "uniform":
            dz = losses.affine_ce(z, y) + o.deviation * terms.spread(z)
            df = o.uniformity * terms.uniformity(f)
        case "vacant":
            dz = terms.fedvls(z, forward(c.x0, xb)[0], y, c.used, o.lam, o.suppression)
        case "sphere":
            dz, df = np.zeros_like(z), terms.on_sphere(f, y, c.state["W"], o.scale)
        case "moon":
            untrained = c.state["untrained"] if o.newcomer == "initial" and c.state["round"] > 1 else None
            previous = c.memory.get("previous", untrained)
            dz = losses.affine_ce(z, y)
            if previous is not None:
                ours, theirs = forward(c.x0, xb)[1], forward(previous, xb)[1]
                df = o.mu_con * losses.moon(f, ours, theirs, o.temperature)
        case _:
            raise ValueError(o.loss)
    return dz, df


def gradient(problem, c, o):
    """grad(w, rows) of the client's whole local objective."""

    def plain(w, xb, y):
        z, f, inputs = forward(w, xb)
        if SCALE in w:
            net = {name: v for name, v in w.items() if name != SCALE}
            df = terms.on_sphere(f, y, c.state["W"], w[SCALE])
            by_scale = {SCALE: terms.scale_on_sphere(f, y, c.state["W"], w[SCALE])}
            return {**backward(net, inputs, np.zeros_like(z), df), **by_scale}, z
        dz, df = client_loss(z, f, xb, y, c, o)
        if o.loss == "hybrid":
            more, paths = terms.hybrid_paths(w, c.x0, xb, y, o.lam1, o.lam2, o.tau)
            return lin((1, backward(w, inputs, dz + more)), (1, paths)), dz
        return backward(w, inputs, dz, df), dz

    def grad(w, rows):
        xb, y = problem.x[rows], problem.y[rows]
        if o.perturb == "global":
            g, dz = plain(lin((1, w), (1, c.memory["ahead"])), xb, y)
        elif o.perturb == "distilled":
            g, dz = plain(lin((1, w), (1, away(w, xb, c, o))), xb, y)
        else:
            g, dz = plain(w, xb, y)
        if o.perturb in ("own", "agreed"):
            e = perturbation(g, w, c, o)
            ahead = plain(lin((1, w), (1, e)), xb, y)[0]
            g = lin((1 - o.share, g), (o.share, ahead))
            if o.perturb == "agreed":
                c.memory["mu"] = lin((1, c.memory["mu"]), (1, e), (-1, c.state["s"]))
        if o.per:
            g = lin((len(rows) / (c.owned if o.per == "owned" else c.used).sum(), g))
        if o.server == "dual" and o.apply == "loss":
            g = lin((dual_weights(c.state, o)[c.id], g))
        if o.loss == "grab":
            c.memory["pid"] = losses.grab_learn(c.memory["pid"], dz, y, (o.kp, o.ki, o.kd))
        if o.mu:
            g = lin((1, g), (o.mu, w), (-o.mu, c.x0))
        if o.own == "curvature":
            for j, (fisher, y_j) in c.state["curvatures"].items():
                if j != c.id:
                    g = {n: g[n] + 2 * o.lam * fisher[n] * (w[n] - y_j[n]) for n in g}
        if o.own == "messages":
            g = lin((1, g), (o.pull_u, w), (-o.pull_u, c.memory["cloud"]))
        if o.pull:
            g = lin((1, g), (1, solvers.pull(w, c.x0, o.pull, o.form)))
        if o.control:
            g = lin((1, g), (1, c.state["c"]), (-1, c.memory["c"]))
        if o.server in ("dynamic", "speed"):
            alpha = strength(problem, c, o)
            g = lin((1, g), (-1, c.memory["h"]), (alpha, w), (-alpha, c.x0))
        if o.mix is not None:
            g = lin((o.mix, g), (1 - o.mix, c.state["step"]))
        c.gradients += 1
        if o.server == "precision":
            c.memory["squares"] = [*(c.memory["squares"] if c.gradients > 1 else []), {n: v**2 for n, v in g.items()}]
        return g

    return grad


def perturbation(g, w, c, o):
    """Where the second gradient is taken, as a distance from w."""
    if o.perturb == "agreed":
        g = lin((1, g), (-1, c.memory["mu"]), (-1, c.state["s"]))
    factor = {name: w[name] ** 2 if o.asam else 1.0 for name in w}
    size = norm({name: g[name] * (np.abs(w[name]) if o.asam else 1.0) for name in w}) + 1e-7
    return {name: o.rho * factor[name] * g[name] / (size if o.normalised else 1.0) for name in w}


def away(w, xb, c, o):
    """FedSOL: along the gradient of the divergence from the global model, by how far each parameter has moved."""
    z, _, inputs = forward(w, xb)
    dz = (losses.softmax(z / o.tau) - losses.softmax(forward(c.x0, xb)[0] / o.tau)) / o.tau / len(xb)
    d = backward(w, inputs, dz)
    if o.perturbs == "head":
        d = {name: v if name in head(w) else np.zeros_like(v) for name, v in d.items()}
    if o.scale == "fixed":
        return lin((o.rho / (norm(d) + 1e-7), d))
    moved = {name: np.abs(w[name] - c.x0[name]) for name in d}
    scale = {name: v / np.maximum(np.sqrt((v**2).sum(0)), 1e-8) for name, v in moved.items()}
    return {name: o.rho * scale[name] * d[name] / (norm(d) + 1e-12) for name in d}


def arrival(c, o):
    """FedLESAM: against the way that the model came; nothing at a client's first time."""
    old = c.memory.get("sent") if o.since == "participation" else c.state.get("model before")
    back = zeros(c.x0) if old is None else lin((1, old), (-1, c.x0))
    sizes = [np.sqrt((d * d).sum()) for d in back.values()]
    size = sum(sizes) if o.norm == "tensors" else np.sqrt(sum(s * s for s in sizes))
    return lin((o.rho / (size + 1e-7), back))


def strength(problem, c, o):
    """FedDyn's alpha of a client: the authors' code divides it by the client's weight n_k N / sum n."""
    return o.alpha * sum(map(len, problem.rows)) / (len(problem.rows) * c.owned.sum()) if o.scaled else o.alpha


def clipping(o):
    return partial(solvers.clipped, limit=o.clip) if o.clip else solvers.as_is


def local_training(problem, c, o, start):
    """The client's parameters after its round; fills in what it remembers."""
    grad, clip = gradient(problem, c, o), clipping(o)
    rest = {"weight_decay": o.weight_decay, "clip": clip}
    if o.perturb == "global":
        c.memory["ahead"], c.memory["sent"] = arrival(c, o), c.x0
    match o.local:
        case "sgd":
            return solvers.sgd(start, c.batches, grad, c.lr, o.momentum, **rest)
        case "moreau":
            y, c.memory["theta"] = solvers.moreau(
                start, c.batches, grad, c.lr, o.personal_lr, o.lam, o.inner, **rest, reset=o.reset
            )
            return y
        case "bilevel":
            return solvers.bilevel(start, c.batches, grad, c.lr, o.alpha, o.hessian, o.delta, **rest)
    raise ValueError(o.local)


def remember(problem, c, y, o):
    """What the client keeps for its next round, and SCAFFOLD's upload."""
    c.memory["previous"] = y
    if o.control:
        new = solvers.control(c.memory["c"], c.state["c"], c.x0, y, len(c.batches), c.lr, o.momentum, o.division)
        if o.option == 1:
            new = full_gradient(problem, c.x0, problem.rows[c.id])
        c.memory["delta_c"], c.memory["c"] = lin((1, new), (-1, c.memory["c"])), new
    if o.server in ("dynamic", "speed"):
        alpha = strength(problem, c, o)
        c.memory["h"] = lin((1, c.memory["h"]), (-alpha, y), (alpha, c.x0))


# --- the server -------------------------------------------------------------------------------------------------------


def weigh(o, x, local, samples, used, whole):
    n = np.asarray(samples, float)
    match o.weighting:
        case "union":
            return n / sum(whole)
        case "size":
            return n / n.sum()
        case "uniform":
            return np.full(len(n), 1 / len(n))
        case "disco":
            start = n / n.sum() if o.base.name == "size" else np.full(len(n), 1 / len(n))
            return servers.disco(start, used, o.target, o.a, o.b, o.metric)
        case "pals":
            return servers.pals(n, used, o.target, o.lam)
        case "label_aware":
            return servers.label_aware(used)
        case "balancer":
            v = servers.similarities(x, local, o.ab_scope, o.ab_similarity, o.ab_bias)
            return servers.balancer(v, o.ab_beta, o.ab_temperature, o.ab_inverse)
    raise ValueError(o.weighting)


def average(p, trees):
    return lin(*zip(p, trees, strict=True))


def corrected(x, deltas, cohort, o):
    """FedGR: one descent step of the gravitation on every client's owned classifier rows (weights only)."""
    name = head(x)[0]
    u, owned = np.stack([x[name] + d[name] for d in deltas]), np.stack([c.owned > 0 for c in cohort])
    mass = None if o.mass is None else servers.masses([c.used for c in cohort], o.mass)
    step = o.lam * np.array([c.lr for c in cohort])[:, None, None] * servers.gravitation(u, owned, mass)[1]
    return [{**d, name: d[name] - s} for d, s in zip(deltas, step, strict=True)]


def over_owners(p, rows, owned, fallback):
    """Row c = p-weighted mean over the clients that own c, `fallback` where nobody does; rows [K, C, ...]."""
    w = p[:, None] * owned
    total = w.sum(0)
    w = np.divide(w, total, out=np.zeros_like(w), where=total > 0)
    mean = np.einsum("kc,kc...->c...", w, rows)
    return np.where((total > 0).reshape(-1, *[1] * (rows.ndim - 2)), mean, fallback)


def private_heads(x, local, p, cohort, o, state):
    """FedGC: descend on the heads, write them back to their clients, and assemble the global head from the owners."""
    names, owned = head(x), np.stack([c.owned > 0 for c in cohort])
    heads = {n: np.stack([y[n] for y in local]) for n in names}
    lrs = np.array([c.lr for c in cohort])[:, None, None]
    heads[names[0]] = heads[names[0]] - o.lam * lrs * servers.spread(heads[names[0]], owned, o.anchors != "own")[1]
    for i, c in enumerate(cohort):
        c.memory["head"] = {n: heads[n][i] for n in names}
    mean = lin((1 - o.server_lr, x), (o.server_lr, average(p, local)))
    return {**mean, **{n: over_owners(p, heads[n], owned, x[n]) for n in names}}, state


def second_moment(squares, beta):
    """Adam's second moment of a run, corrected for its start at 0: the sum written out."""
    share = np.array([beta ** (len(squares) - 1 - i) for i in range(len(squares))])
    return lin(*zip(share / share.sum(), squares, strict=True))


def update(x, local, deltas, p, cohort, problem, o, state):
    """The server's step: (new global parameters, new state)."""
    n_clients = len(problem.rows)
    match o.server:
        case "gravity":
            deltas = corrected(x, deltas, cohort, o)
            new = lin((1, x), (o.server_lr, average(p, deltas)))
            if o.row_average == "owners":
                name = head(x)[0]
                rows, owned = np.stack([x[name] + d[name] for d in deltas]), np.stack([c.owned > 0 for c in cohort])
                new[name] = x[name] + o.server_lr * (over_owners(p, rows, owned, x[name]) - x[name])
            return new, state
        case "nova":
            factors, tau_eff = servers.nova_factors(
                p, [len(c.batches) for c in cohort], o.momentum, [c.lr for c in cohort], o.mu, o.tau_eff
            )
            state = {**state, "tau_eff": tau_eff, "factors": factors}
            step = average(factors, deltas)
            if o.gmf:
                lr = cohort[0].lr
                state["buffer"] = lin((o.gmf, state.get("buffer", zeros(x))), (-1 / lr, step))
                step = lin((-lr, state["buffer"]))
            return lin((1, x), (o.server_lr, step)), state
        case "momentum":
            return servers.momentum_step(x, average(p, deltas), state, o.server_lr, o.beta)
        case "adaptive":
            rest = (o.kind, o.server_lr, o.beta1, o.beta2, o.tau, o.initial, o.bias_correction)
            return servers.adaptive_step(x, average(p, deltas), state, *rest)
        case "private":
            return private_heads(x, local, p, cohort, o, state)
        case "precision":
            moments = [second_moment(c.memory["squares"], o.beta2) for c in cohort]
            inverse = [{n: 1 / (v + o.eps) for n, v in m.items()} for m in moments]
            total = lin(*[(1, v) for v in inverse])
            step = {n: sum(v[n] * d[n] for v, d in zip(inverse, deltas, strict=True)) / total[n] for n in x}
            return lin((1, x), (o.server_lr, step)), state
        case "dual":
            w = dual_weights(state, o)[[c.id for c in cohort]] if o.apply == "delta" else np.ones(len(cohort))
            return lin((1, x), (o.server_lr, average(w * p, deltas))), {**state, "factors": w * p}
        case "dynamic":
            h = lin((1, state["h"]), *[(-o.alpha / n_clients, d) for d in deltas])
            return lin((1, average(p, local)), (-1 / o.alpha, h)), {**state, "h": h}
        case "speed":
            corrected_models = [lin((1, y), (-1 / o.alpha, c.memory["h"])) for y, c in zip(local, cohort, strict=True)]
            return average(p, corrected_models), state
        case "accelerated":  # x is sent; m has moved it ahead of the model proper
            first = lin((o.beta, state.get("m", zeros(x))), (1, average(p, deltas)))
            proper = lin((1, x), (-o.beta, state.get("m", zeros(x))), (1, first))
            return lin((1, proper), (o.beta, first)), {**state, "m": first, "proper": proper}
        case "extrapolated":
            mean, m = average(p, deltas), len(local) if o.by_cohort else 1
            eps = o.eps * o.eps_decay ** (state["round"] - 1) * m
            spread = sum(q * norm(d) ** 2 for q, d in zip(p, deltas, strict=True))
            rate = max(1.0, 0.5 * spread / (norm(mean) ** 2 + eps))
            return lin((1, x), (rate, mean)), {**state, "rate": rate, "model before": x}
        case "sum":
            return average(p, local), state
        case "sgd":
            return lin((1, x), (o.server_lr, average(p, deltas))), state
    raise ValueError(o.server)


def full_gradient(problem, params, rows):
    """Gradient of the mean cross-entropy on the rows."""
    z, _, inputs = forward(params, problem.x[rows])
    return backward(params, inputs, losses.affine_ce(z, problem.y[rows]))


def dual_weights(state, o):
    """CLIMB's weight of every client."""
    w = 1 + state["lambda"] - state["lambda"].mean()
    w = np.array([int(v) for v in w]) if o.whole else w
    return np.maximum(w, 0) if o.clamp else w


def own_losses(problem, params):
    """Mean cross-entropy of the model on all rows of each client [N]."""
    ce = losses.per_sample(forward(params, problem.x)[0], problem.y)[0]
    return np.array([ce[np.asarray(rows, int)].mean() for rows in problem.rows])


def auxiliary_changes(problem, params, batches, lr, o):
    """FedRL: change of the classifier's weight [C, C, F] after training on the server's rows of each class alone."""
    name = head(params)[0]
    grad = partial(full_gradient, problem)
    after = [solvers.sgd(params, steps, grad, lr, o.momentum, o.weight_decay, clipping(o)) for steps in batches]
    return np.stack([y[name] - params[name] for y in after])


def auxiliary_gradients(problem, params):
    """FedGA's copy of FedRL: the gradient of the classifier's weight [C, C, F] on the server's rows of each class."""
    name, rows = head(params)[0], problem.auxiliary
    return np.stack([full_gradient(problem, params, rows[problem.y[rows] == p])[name] for p in range(problem.classes)])


def dual_step(problem, x, state, o):
    """Where only participants report, the others' last reports count, and their mean for who never reported."""
    f = own_losses(problem, x)
    if o.report == "cohort":
        f = np.where(np.isnan(state["reports"]), np.nanmean(state["reports"]), state["reports"])
    return {**state, "lambda": np.clip(state["lambda"] + o.eta / len(f) * (f - f.mean() - o.eps), 0, o.top)}


def curvature(problem, k, y, o):
    """FedCurv: (squared gradients of cross-entropy at y on the client's rows, y)."""

    def slope(rows):
        z, _, inputs = forward(y, problem.x[rows])
        return {n: g**2 for n, g in backward(y, inputs, losses.affine_ce(z, problem.y[rows])).items()}

    rows = np.asarray(problem.rows[k], int)
    each = [rows] if o.fisher == "batch" else [rows[i : i + 1] for i in range(len(rows))]
    return lin(*[(1 / len(each), slope(some)) for some in each]), y


def nearest(problem, k, models):
    """IFCA: the number of the model with the least mean cross-entropy on the client's rows."""
    return int(np.argmin([own_losses(problem, w)[k] for w in models]))


def regrouped(problem, plan, p, local, models):
    """IFCA: (the mean of each cluster's participants, who chose which)."""
    chosen = [nearest(problem, int(k), models) for k in plan.ids]
    new = []
    for j, old in enumerate(models):
        at = [i for i, s in enumerate(chosen) if s == j]
        new.append(average(p[at] / p[at].sum(), [local[i] for i in at]) if at else old)
    return new, chosen


def messages(k, w_k, models, o):
    """FedAMP: the models of the others by how near they are, the rest is one's own; models {client: its last}."""
    others = {j: w for j, w in models.items() if j != k}
    share = {j: o.message / o.sigma * np.exp(-(norm(lin((1, w_k), (-1, w))) ** 2) / o.sigma) for j, w in others.items()}
    total = sum(share.values())
    if total > o.most:
        share, total = {j: s * o.most / total for j, s in share.items()}, o.most
    return lin((1 - total, w_k), *[(share[j], w) for j, w in others.items()])


def train_cohort(problem, x, plan, o, state, memories):
    """Every chain's final parameters, with the members of each chain (a chain is one client unless the plan says)."""
    local: list[Tree] = []
    members: list[list[Client]] = []
    for chain in plan.chains:
        w, group = x, []
        for i in chain:
            k = int(plan.ids[i])
            counts = (problem.owned(k), plan.used[i], plan.samples[i])
            c = Client(k, w, plan.batches[i], plan.epochs[i], plan.lr[i], *counts, memories[k], state)
            start = {**w, **memories[k].get("head", {})} if o.server == "private" else w
            if o.own == "messages":
                start = memories[k].get("previous", problem.params)
                memories[k]["cloud"] = messages(k, start, state["own models"], o)
            if o.own == "clusters":
                start = state["clusters"][nearest(problem, k, state["clusters"])]
            w = local_training(problem, c, o, start)
            remember(problem, c, w, o)
            group.append(c)
        local.append(w)
        members.append(group)
    return local, members


def initial(problem, o, total):
    """(server state, memories): all start at zero; private heads are born at the first visit."""
    x = problem.params
    duals = np.full(len(problem.rows), o.start)
    state: dict[str, Any] = {
        "c": zeros(x),
        "h": zeros(x),
        "step": zeros(x),
        "s": zeros(x),
        "lambda": duals,
        "trace": [],
        "untrained": x,
        "clusters": o.models or [x, lin((-1, x))],
    }
    everyone = np.concatenate([np.asarray(rows, int) for rows in problem.rows])
    state["everyone"] = np.bincount(problem.y[everyone], minlength=problem.classes)
    prior = state["everyone"] / len(everyone)
    state |= {"reports": np.full(len(problem.rows), np.nan)}
    state |= {"class_weights": np.ones(problem.classes), "prior": prior, "rounds": total}
    pid = losses.grab_start(problem.classes)
    return state, [{"c": zeros(x), "h": zeros(x), "mu": zeros(x), "pid": pid} for _ in problem.rows]


def one_round(problem, x, plan, o, state, memories):
    r = state["round"]
    if o.server == "dual" and (r - 1) % o.every == 0:
        state["before"] = x  # the duals are measured where the block of primal rounds began
        reporting = np.isin(np.arange(len(problem.rows)), plan.ids)
        state["reports"] = np.where(reporting, own_losses(problem, x), state["reports"])
    if o.loss == "weighted" and o.picks == "quotient":
        state["class_weights"] = o.alpha + o.beta * servers.ratios(auxiliary_gradients(problem, x), copy=True)
    if o.own == "curvature":
        after = {j: memory["previous"] for j, memory in enumerate(memories) if "previous" in memory}
        state["curvatures"] = {j: curvature(problem, j, y, o) for j, y in after.items()}
    if o.loss == "sphere":
        participants = [(problem.rows[k], memories[k]["previous"]) for k in state.get("last", [])]
        seen = [(forward(y, problem.x[rows])[1], problem.y[rows]) for rows, y in participants]
        start = o.start_w(x[head(x)[0]]) if o.start_w else np.eye(*x[head(x)[0]].shape)
        if o.weighs == "confidence":
            scales = [y.get(SCALE, o.scale) for _, y in participants]
            sure = [(f, y, s) for (f, y), s in zip(seen, scales, strict=True)]
            state["W"] = terms.confident(state.get("W", start), sure, o.smoothing)
        else:
            state["W"] = terms.smoothed(state.get("W", start), seen, o.smoothing)
        state["last"] = sorted({int(k) for k in plan.ids})
    state["own models"] = {j: memory["previous"] for j, memory in enumerate(memories) if "previous" in memory}
    local, members = train_cohort(problem, x, plan, o, state, memories)
    cohort = [group[0] if len(group) == 1 else replace(group[0], used=sum(c.used for c in group)) for group in members]
    samples = [sum({c.id: c.samples for c in group}.values()) for group in members]
    p = weigh(o, x, local, samples, [c.used for c in cohort], [c.owned.sum() for c in cohort])
    deltas = [lin((1, y), (-1, x)) for y in local]
    new, state = update(x, local, deltas, p, cohort, problem, o, state)
    if o.own == "clusters":
        models, chosen = regrouped(problem, plan, p, local, state["clusters"])
        state = {**state, "clusters": models, "chosen": [*state.get("chosen", []), chosen]}
    reach = sum(q * len(c.batches) * c.lr for q, c in zip(p / p.sum(), cohort, strict=True))
    state["step"] = lin((-1 / reach, average(p, deltas)))
    state["model before"] = x
    agreed = average(p / p.sum(), [memories[int(k)]["mu"] for k in plan.ids]) if o.perturb == "agreed" else zeros(x)
    state["s"] = lin((o.rho / (norm(agreed) + 1e-7), agreed))
    if o.control:
        among = len(plan.ids) if o.spread == "cohort" else len(problem.rows)
        part = [len(plan.ids) * n / sum(samples) if o.spread == "size" else 1 for n in samples]
        changes = [(f / among, memories[k]["delta_c"]) for k, f in zip(plan.ids, part, strict=True)]
        state["c"] = lin((1, state["c"]), *changes)
    if plan.auxiliary is not None and o.loss == "weighted":
        estimate = servers.ratios if o.ratio == "masked" else servers.ratios_of_rows
        ra = estimate(auxiliary_changes(problem, x, plan.auxiliary, plan.lr[0], o))
        state["class_weights"] = o.alpha + o.beta * ra  # of the round's starting model, for the next round
    if o.server == "dual" and r % o.every == 0:
        state = dual_step(problem, state["before"], state, o)
    state["trace"] = [
        *state["trace"],
        {"ids": list(plan.ids), "weights": p, "factors": state.get("factors", p), "local": local},
    ]
    return new, state


def run(ingredients, problem, rounds, **options):
    """(params after each round, final server state). state["clients"] holds each client's memory and state["trace"] the
    weights, the multipliers of the deltas ("factors") and the local models of every round.

    The plan's lr is the step of w: pFedMe's eta and Per-FedAvg's beta. `server_lr` is eta_g and pFedMe's beta. Momentum
    is ignored by the local steps of pFedMe and Per-FedAvg.
    """
    o = settings(ingredients, **options)
    state, memories = initial(problem, o, len(rounds))
    x, history = problem.params, []
    for r, plan in enumerate(rounds, 1):
        state = {**state, "round": r}
        x, state = one_round(problem, x, plan, o, state, memories)
        history.append(x)
    return history, {**state, "clients": memories}
