"""Terms on a whole mini-batch: their gradient w.r.t. features f [B, F] or logits z [B, C], derived by hand."""

import numpy as np

from .losses import affine_ce, log_softmax, onehot, softmax
from .model import backward, forward, layers, zeros


def decorrelation(f, form="code", eps=1e-8):
    """FedDecorr: squared products of standardised features."""
    n, d = f.shape
    if n == 1:
        return np.zeros_like(f)
    c = f - f.mean(0)
    s = np.sqrt((c**2).sum(0) / (n - 1) + eps)
    z = c / s
    products = z.T @ z
    if form == "code":
        share = (1 - np.eye(d)) / (max(d * (d - 1), 1) * n)
    else:
        share = np.ones((d, d)) / ((n - 1) ** 2 * d**2)
    dz = 4 * z @ (share * products)
    dc = dz / s - c * (dz * c).sum(0) / s**3 / (n - 1)
    return dc - dc.mean(0)


def uniformity(f):
    """FedUV: Gaussian kernel between rows, its width the lower median of the squared distances."""
    pairs = [(i, j) for i in range(len(f)) for j in range(i + 1, len(f))]
    grad = np.zeros_like(f)
    if not pairs:
        return grad
    apart = np.array([((f[i] - f[j]) ** 2).sum() for i, j in pairs])
    known = np.flatnonzero(apart > 0)
    at = known[np.argsort(apart[known])[(len(known) - 1) // 2]] if len(known) else None
    scale = 1.0 if at is None else apart[at]
    kernel = np.exp(-apart / scale) / len(pairs)
    slope = -kernel / scale
    if at is not None:
        slope[at] += (kernel * apart).sum() / scale**2
    for (i, j), s in zip(pairs, slope, strict=True):
        grad[i] += 2 * s * (f[i] - f[j])
        grad[j] -= 2 * s * (f[i] - f[j])
    return grad


def spread(z):
    """FedUV: hinge on the standard deviation of each class's probability over the rows."""
    n, classes = z.shape
    p, gamma = softmax(z), classes**-0.5
    c = p - p.mean(0)
    std = np.sqrt((c**2).sum(0) / max(n - 1, 1))
    slope = np.where(std < gamma, -1.0 / classes, 0.0)
    inner = np.divide(c, std * (n - 1), out=np.zeros_like(c), where=std > 0) if n > 1 else np.zeros_like(c)
    dp = slope * inner
    return p * (dp - (dp * p).sum(1, keepdims=True))


def fedvls(z, teacher, y, counts, lam, suppression, floor=1e-9):
    """Moved cross-entropy, distillation over the classes without rows, and suppression of other classes' logits."""
    share = np.asarray(counts, float) / np.sum(counts)
    moved, classes = np.log(share + floor), z.shape[1]
    grad, vacant = affine_ce(z, y, 1.0, moved), share == 0
    if vacant.any():
        grad[:, vacant] += lam * (softmax(z[:, vacant]) - softmax(teacher[:, vacant])) / len(y)
    other = 1 - onehot(y, classes)
    u = other * (z - moved + np.log(1 / classes + floor))
    return grad + suppression * share * other * softmax(u.T).T


def directions(f):
    """Rows over their lengths; a row of zeros stays."""
    size = np.linalg.norm(f, axis=-1, keepdims=True)
    return np.divide(f, size, out=np.zeros_like(f), where=size > 0)


def on_sphere(f, y, w, scale):
    """FedNH: cross-entropy of scaled cosines with prototypes w of length 1."""
    u = directions(f)
    du, size = scale * affine_ce(scale * u @ w.T, y) @ w, np.linalg.norm(f, axis=1, keepdims=True)
    along = du - u * (du * u).sum(1, keepdims=True)
    return np.divide(along, size, out=np.zeros_like(f), where=size > 0)


def scale_on_sphere(f, y, w, scale):
    """FedNH: the gradient of the same by the scale."""
    cosines = directions(f) @ w.T
    return (affine_ce(scale * cosines, y) * cosines).sum()


def confident(w, participants, rho):
    """FedNH's other form: participants [(features, labels, scale)]; rows count by the probability of their label,
    directions by exp of their cosine with the prototype."""
    total = np.zeros_like(w)
    for f, y, scale in participants:
        u = directions(f)
        sure = softmax(scale * u @ w.T)[np.arange(len(y)), y]
        for c in range(len(w)):
            if (y == c).any():
                mu = directions((sure[y == c, None] * u[y == c]).sum(0) / sure[y == c].sum())
                total[c] += np.exp(w[c] @ mu) * mu
    return directions(rho * w + (1 - rho) * directions(total))


def smoothed(w, participants, rho):
    """FedNH: participants [(features, labels)]; every class's directions, weighed by rows."""
    total = np.zeros_like(w)
    for f, y in participants:
        for c in range(len(w)):
            if (y == c).any():
                total[c] += (y == c).sum() * directions(directions(f)[y == c].mean(0))
    return directions(rho * w + (1 - rho) * directions(total))


def hybrid_paths(w, x0, x, y, lam1, lam2, tau):
    """FedMLB: (gradient by the local logits, and by w through the first layers of every path)."""
    z, stack = forward(w, x)[0], layers(w)
    dz, dw = np.zeros_like(z), zeros(w)
    for m in range(1, len(stack)):
        ours = [name for layer in stack[:m] for name in layer if name]
        mixed = {name: (w if name in ours else x0)[name] for name in w}
        zm, _, inputs = forward(mixed, x)
        p, q = softmax(zm / tau), softmax(z / tau)
        apart = log_softmax(zm / tau) - log_softmax(z / tau)
        kl = (p * apart).sum(1, keepdims=True)
        dz += lam2 * (q - p) / tau / len(y) / (len(stack) - 1)
        dm = (lam1 * affine_ce(zm, y) + lam2 * p * (apart - kl) / tau / len(y)) / (len(stack) - 1)
        g = backward(mixed, inputs, dm)
        dw = {name: dw[name] + (g[name] if name in ours else 0) for name in w}
    return dz, dw
