"""The server's half: aggregation weights, server optimizers, classifier corrections, dual and class weights."""

from itertools import product

import numpy as np
from scipy.special import logsumexp

from .losses import log_softmax, per_sample
from .model import flat, head, lin, zeros
from .solvers import a_norm

# --- weights ----------------------------------------------------------------------------------------------------------


def label_aware(counts):
    """FedLA: W_i = sum over present labels of n_ij / S_j, normalised; counts [K, C]."""
    n = np.asarray(counts, float)
    total = n.sum(0)
    w = np.divide(n, total, out=np.zeros_like(n), where=total > 0).sum(1)
    return w / w.sum()


def label_shares(counts, target):
    """Shares of the labels of every participant, and those of the target (every class alike where none is given)."""
    n = np.asarray(counts, float)
    t = np.asarray(target, float) if target else np.ones(n.shape[1])
    return n / n.sum(1, keepdims=True), t / t.sum()


def disco(start, counts, target=None, a=0.5, b=0.1, metric="kl"):
    """FedDisco: relu(p - a d + b), normalised."""
    q, t = label_shares(counts, target)
    if metric in ("kl", "kl_plain"):
        d = np.array([sum(x * np.log(x / y) for x, y in zip(row, t, strict=True) if x > 0) for row in q])
        d = d / d.sum() if metric == "kl" else d
    elif metric == "cosine":
        d = np.array([1 - row @ t / np.linalg.norm(row) / np.linalg.norm(t) for row in q])
    else:
        d = np.array([np.linalg.norm(row - t, int(metric[1])) for row in q])
    left = np.maximum(start - a * d + b, 0)
    return left / left.sum() if left.sum() > 0 else start


def pals(sizes, counts, target=None, lam=10.0):
    """FedPALS by trying every support: the best of the solutions without negative weights."""
    q, t = label_shares(counts, target)
    best, solution = np.inf, None
    for chosen in product((False, True), repeat=len(sizes)):
        at = np.flatnonzero(chosen)
        if not len(at):
            continue
        full = np.ones((len(at) + 1, len(at) + 1))
        full[:-1, :-1], full[-1, -1] = q[at] @ q[at].T + lam * np.diag(1 / sizes[at]), 0
        a = np.zeros(len(sizes))
        a[at] = np.linalg.solve(full, np.append(q[at] @ t, 1))[:-1]
        value = ((t - a @ q) ** 2).sum() + lam * (a**2 / sizes).sum()
        if a.min() >= -1e-14 and value < best:
            best, solution = value, a
    return solution


def balancer(values, beta=3.0, temperature=1.0, inverse=False):
    """FedBal: softmax of similarities lifted to at least mean - beta * population std."""
    v = np.asarray(values, float)
    lifted = np.maximum(v, v.mean() - beta * v.std())
    return np.exp(log_softmax((-lifted if inverse else lifted)[None] / temperature)[0])


def similarities(x, locals_, scope="head", similarity="cosine", include_bias=True):
    """cos(theta(x), theta(y_i)) or -|theta(x) - theta(y_i)| over the chosen parameters."""
    top = head(x)
    scopes = {"head": top, "features": [n for n in x if n not in top], "all": list(x)}
    names = [n for n in scopes[scope] if include_bias or not n.endswith("bias")]
    a, rows = flat(x, names), [flat(y, names) for y in locals_]
    if similarity == "l2":
        return np.array([-np.linalg.norm(a - b) for b in rows])
    return np.array([a @ b / (np.linalg.norm(a) * np.linalg.norm(b)) for b in rows])


def nova_factors(p, steps, momentum, lrs, mu, tau_eff):
    """FedNova: the multiplier tau_eff p_k / a_k of each delta, and tau_eff.

    "norm" is the formula, tau_eff = sum p_k a_k; "steps" what the official code takes under a proximal term (and only
    there), tau_eff = sum p_k tau_k.
    """
    a = np.array([a_norm(s, momentum, lr * mu) for s, lr in zip(steps, lrs, strict=True)])
    reach = float(p @ np.asarray(steps if mu and tau_eff == "steps" else a, float))
    return reach * p / a, reach


# --- server optimizers ------------------------------------------------------------------------------------------------


def momentum_step(x, delta, state, lr=1.0, beta=0.9):
    m = lin((beta, state.get("m", zeros(x))), (1, delta))
    return lin((1, x), (lr, m)), {**state, "m": m}


def adaptive_step(x, delta, state, kind, lr=0.1, beta1=0.9, beta2=0.99, tau=1e-3, initial=-1, bias_correction="none"):
    """FedAdagrad, FedAdam, FedYogi; the accumulator starts at tau^2 where ``initial`` is negative."""
    first = tau**2 if initial < 0 else initial
    t, m, v = state.get("t", 0) + 1, state.get("m", zeros(x)), state.get("v", {n: np.full_like(x[n], first) for n in x})
    m = lin((beta1, m), (1 - beta1, delta))
    square = {n: d**2 for n, d in delta.items()}
    if kind == "adagrad":
        v = lin((1, v), (1, square))
    elif kind == "adam":
        v = lin((beta2, v), (1 - beta2, square))
    else:
        v = {n: v[n] - (1 - beta2) * square[n] * np.sign(v[n] - square[n]) for n in v}
    if bias_correction in ("keras", "flower") and kind != "adagrad":  # the rate is corrected, v and tau are not
        u = t + 1 if bias_correction == "flower" else t
        rate = lr * np.sqrt(1 - beta2**u) / (1 - beta1**u)
        return {n: x[n] + rate * m[n] / (np.sqrt(v[n]) + tau) for n in x}, {**state, "m": m, "v": v, "t": t}
    cm, cv = (1 - beta1**t, 1 - beta2**t) if bias_correction == "torch" and kind != "adagrad" else (1.0, 1.0)
    new = {n: x[n] + lr * (m[n] / cm) / (np.sqrt(v[n] / cv) + tau) for n in x}
    return new, {**state, "m": m, "v": v, "t": t}


# --- classifier corrections of cards 4 and 13 -------------------------------------------------------------------------


def others(u, owned, k):
    """(z, j) of every owned row of the other clients."""
    return [(z, j) for z in range(len(u)) if z != k for j in np.flatnonzero(owned[z])]


def gravitation(u, owned, mass=None):
    """FedGR: the regulariser and its gradient [K, C, d]; u [K, C, d], owned [K, C].

    mass [K, C] weighs what the row of label i at client k adds as an anchor.

    With anchor a (constant), s_zj = u_zj a, softmaxes w over the rows a term sees: attraction a (w_all - w_same),
    repulsion a w, where the anchor's own |a|^2 is part of the repulsion's denominator.
    """
    grad, value = np.zeros_like(u), 0.0
    for k, i in np.argwhere(owned):
        a, m = u[k, i], 1.0 if mass is None else float(mass[k, i])
        score = {(z, j): float(u[z, j] @ a) for z, j in others(u, owned, k)}
        same, rest = [r for r in score if r[1] == i], [r for r in score if r[1] != i]
        if same:
            den, num = logsumexp(list(score.values())), logsumexp([score[r] for r in same])
            value += m * (den - num)
            for r in score:
                grad[r] += m * a * (np.exp(score[r] - den) - (np.exp(score[r] - num) if r[1] == i else 0.0))
        if rest:
            den = logsumexp([float(a @ a)] + [score[r] for r in rest])
            value += m * (den - float(a @ a))
            for r in rest:
                grad[r] += m * a * np.exp(score[r] - den)
    return value, grad


def masses(counts, by):
    """Each anchor's share of all rows: its own rows ("sample"), or its client's ("client")."""
    n = np.asarray(counts, float)
    return (n if by == "sample" else n.sum(1, keepdims=True) * np.ones_like(n)) / n.sum()


def spread(u, owned, means=False):
    """FedGC: value and gradient [K, C, d]; the row itself is live in its own term, the anchor (its copy) constant.

    means: as PFLlib runs it. The anchor is the mean of the owners' rows of i, a constant, and the rows that it sees
    are of those who lack i.
    """
    grad, value = np.zeros_like(u), 0.0
    for k, i in np.argwhere(owned):
        a = u[owned[:, i], i].mean(0) if means else u[k, i]
        rows = [r for r in others(u, owned, k) if (not owned[r[0], i] if means else r[1] != i)]
        den = logsumexp([float(a @ a)] + [float(u[r] @ a) for r in rows])
        value += den - float(a @ a)
        for r in rows:
            grad[r] += a * np.exp(float(u[r] @ a) - den)
        if not means:
            grad[k, i] += a * np.expm1(float(a @ a) - den)
    return value, grad


# --- FedRL class weights ----------------------------------------------------------------------------------------------


def ratio_sets(delta_w, copy=False):
    """M_p: weights where class p's change is the largest (signed) and no other exceeds 80 % of its magnitude.

    copy: the form of FedGA's authors. Whoever has the largest change or, divided by it, more than 80 % of it is a
    neighbour; a weight with one neighbour is that one's.
    """
    d = np.asarray(delta_w, float)  # [C, rows, columns]: change after training on class p alone
    if copy:
        top = d.max(0)
        with np.errstate(divide="ignore", invalid="ignore"):
            near = (d == top) | (d / top > 0.8)
        return [near[p] & (near.sum(0) == 1) for p in range(len(d))]
    sets = []
    for p in range(len(d)):
        rest = np.delete(d, p, axis=0)
        sets.append((d[p] > rest.max(0)) & (np.abs(rest).max(0) <= 0.8 * np.abs(d[p])))
    return sets


def ratios(delta_w, empty=10.0, cap=5000.0, copy=False):
    """Ra_p = |sum_{M_p} dW_p| / |sum_{M_p} mean_{q != p} dW_q|."""
    d, out = np.asarray(delta_w, float), []
    for p, chosen in enumerate(ratio_sets(d, copy)):
        below = abs(np.delete(d, p, axis=0).mean(0)[chosen].sum())
        out.append(min(cap, abs(d[p][chosen].sum()) / below) if below else empty)
    return np.array(out)


def ratios_of_rows(delta_w):
    """CLIMB's copy: |mean over j of dW_p[p, j] / mean_{q != p} dW_q[p, j]|."""
    d = np.asarray(delta_w, float)
    return np.array([abs((d[p][p] / np.delete(d, p, axis=0).mean(0)[p]).mean()) for p in range(len(d))])


def ratio_monitor(delta_w, update, n):
    """Class counts N_p solving dW_p N + mean_{q != p} dW_q (n - N) = update per weight, mean over the valid ones."""
    d, out = np.asarray(delta_w, float), []
    for p, chosen in enumerate(ratio_sets(d)):
        rest = np.delete(d, p, axis=0).mean(0)
        estimate = ((np.asarray(update) - n * rest) / (d[p] - rest))[chosen]
        valid = estimate[(estimate > 0) & (estimate < 1.5 * n / len(d))]
        out.append(valid.mean() if len(valid) else n / len(d))
    return np.array(out)


# --- CReFF: what the client sends and what the server matches ---------------------------------------------------------


def head_gradient(weight, bias, features, y):
    """Mean cross-entropy gradient of a linear head on given features: (dW [C, F], db [C])."""
    _, du = per_sample(features @ weight.T + bias, y)
    return du.T @ features / len(y), du.mean(0)


def creff_match(synthetic, real, eps=0.0):
    """sum over rows of 1 - s r / (|s| |r| + eps), and its gradient w.r.t. the synthetic gradient [C, d]."""
    s, r = np.asarray(synthetic, float), np.asarray(real, float)
    ns, nr = np.linalg.norm(s, axis=1, keepdims=True), np.linalg.norm(r, axis=1, keepdims=True)
    dot, den = (s * r).sum(1, keepdims=True), ns * nr + eps
    return float((1 - dot / den).sum()), -(r / den - dot / den**2 * nr * s / ns)
