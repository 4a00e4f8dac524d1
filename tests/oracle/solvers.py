"""Local steps on a dict of parameters, given grad(params, batch) -> gradient. They know nothing of models or losses."""

import numpy as np

from .model import lin, norm


def clipped(g, limit, eps=1e-6):
    """g * min(1, limit / (|g| + eps)), |g| over all parameters together."""
    return lin((min(1.0, limit / (norm(g) + eps)), g))


def as_is(g):
    return g


def sgd(w, batches, grad, lr, momentum=0.0, weight_decay=0.0, clip=as_is):
    """Clip, add weight decay, then momentum (buffer = first gradient), one step a batch."""
    buffer = None
    for batch in batches:
        g = lin((1, clip(grad(w, batch))), (weight_decay, w))
        buffer = g if buffer is None else lin((momentum, buffer), (1, g))
        w = lin((1, w), (-lr, buffer))
    return w


def moreau(w, batches, grad, lr, personal_lr, lam, inner, weight_decay=0.0, clip=as_is, reset=False):
    """pFedMe: inner steps of theta on each batch, then w <- w - lr lam (w - theta). Returns (w, theta)."""
    theta = w
    for batch in batches:
        theta = w if reset else theta
        for _ in range(inner):
            g = lin((1, clip(grad(theta, batch))), (weight_decay, theta), (lam, theta), (-lam, w))
            theta = lin((1, theta), (-personal_lr, g))
        w = lin((1, w), (-lr * lam, w), (lr * lam, theta))
    return w, theta


def bilevel(w, batches, grad, lr, alpha, hessian="free", delta=1e-3, weight_decay=0.0, clip=as_is):
    """Per-FedAvg: batches are tuples (D, D') or (D, D', D''); lr is the outer rate beta.

    Clipping and decay belong to both steps, and to the whole gradient that is stepped along.
    """
    for batch in batches:
        ahead = lin((1, w), (-alpha, lin((1, clip(grad(w, batch[0]))), (weight_decay, w))))
        g = grad(ahead, batch[1])
        if hessian == "free":
            up, down = (grad(lin((1, w), (s * delta, g)), batch[2]) for s in (1, -1))
            g = lin((1, g), (-alpha / (2 * delta), up), (alpha / (2 * delta), down))
        w = lin((1, w), (-lr, lin((1, clip(g)), (weight_decay, w))))
    return w


def a_norm(steps, momentum=0.0, e=0.0):
    """FedNova's |a|_1: how many fresh gradients the last point of the trajectory holds. e = lr * mu."""
    assert not (momentum and e), "momentum and the proximal term together are not defined"
    if e:
        return (1 - (1 - e) ** steps) / e
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def pull(w, x, mu, form):
    """Gradient of mu sum_t |w_t - x_t| ("norm"), or of mu times the mean over tensors of their mean smooth-L1."""
    out = {}
    for name in w:
        d = w[name] - x[name]
        size = np.sqrt((d * d).sum())
        slope = (d / size if size else 0 * d) if form == "norm" else np.where(np.abs(d) < 1, d, np.sign(d)) / d.size
        out[name] = mu * slope / (1 if form == "norm" else len(w))
    return out


def control(c_k, c, x, y, steps, lr, momentum=0.0, division="reach"):
    """SCAFFOLD option II: c_k - c + (x - y) / (a lr), where a = steps without momentum."""
    a = (a_norm(steps, momentum) if division == "reach" else steps) * lr
    return lin((1, c_k), (-1, c), (1 / a, x), (-1 / a, y))
