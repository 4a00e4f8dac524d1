"""Client losses: the hand-derived gradient of their batch mean w.r.t. logits z [B, C] (and features f [B, F]).

Nearly all are one function, -log softmax(a * z + b)_y, with a class left out where b = -inf:
with u = a z + b, dL/du = softmax(u) - onehot(y) and dL/dz = a dL/du.
"""

import numpy as np


def onehot(y, classes):
    return (np.asarray(y)[:, None] == np.arange(classes)).astype(float)


def log_softmax(u):
    shifted = u - u.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def softmax(u):
    return np.exp(log_softmax(u))


def per_sample(u, y):
    """Cross-entropy of each row [B] and dL/du [B, C]; -inf leaves a class out."""
    logp = log_softmax(u)
    return -logp[np.arange(len(y)), y], np.exp(logp) - onehot(y, u.shape[1])


def affine_ce(z, y, scale=1.0, shift=0.0, weights=None):
    """Of the mean of weights_y * CE(scale * z + shift, y)."""
    w = np.ones(len(y)) if weights is None else np.asarray(weights, float)[y]
    return scale * per_sample(scale * z + shift, y)[1] * w[:, None] / len(y)


def leave_out(counts):
    """0 for classes the client has, -inf for those it lacks."""
    return np.where(np.asarray(counts) > 0, 0.0, -np.inf)


# --- card 1a, FedBal local balancer -----------------------------------------------------------------------------------


def lb_lambda(counts):
    """(log n_max - log n_j) / (log n_max - log n_min) with counts clamped to 1; 0 where all are equal."""
    logs = np.log(np.maximum(np.asarray(counts, float), 1))
    span = logs.max() - logs.min()
    return np.zeros_like(logs) if span == 0 else (logs.max() - logs) / span


def lb(z, f, y, counts, strength, missing="clamp1", eps=1e-12):
    """Logits z - strength * lambda / (|f| + eps), strength = alpha(k) A; gradient also through |f|.

    "mask" drops the classes without rows from the denominator; lambda is that of the clamped counts all the same.
    """
    lam = lb_lambda(counts)
    size = np.sqrt((f**2).sum(1, keepdims=True))
    u = z - strength * lam / (size + eps) + (leave_out(counts) if missing == "mask" else 0)
    du = per_sample(u, y)[1]
    dsize = (du * lam).sum(1, keepdims=True) * strength / (size + eps) ** 2
    unit = np.divide(f, size, out=np.zeros_like(f), where=size > 0)
    return du / len(y), dsize * unit / len(y)


# --- card 2, FedGA ----------------------------------------------------------------------------------------------------


def fedga_targets(z, y, counts, probability="row"):
    """q_y = 1, q_i = (N_y - N_i) / N_y * p_i; counts N of the batch (or the client), p of the row or of its class."""
    n = np.asarray(counts, float)
    n_y = n[y][:, None]
    p = softmax(z)
    if probability == "class":
        p = np.stack([p[y == j].mean(0) for j in y])
    return np.where(onehot(y, z.shape[1]) > 0, 1.0, (n_y - n) / n_y * p)


def fedga(z, y, counts, variant="softce", probability="row"):
    """softce: -sum q log p, gradient S p - q. exact: logsumexp(z) - sum q z, gradient p - q. Targets are constants."""
    q = fedga_targets(z, y, counts, probability)
    mass = q.sum(1, keepdims=True) if variant == "softce" else 1.0
    return (mass * softmax(z) - q) / len(y)


# --- card 4, FedGR unbalanced softmax ---------------------------------------------------------------------------------


def fedgr_gamma(counts, gamma="max1", missing="mask"):
    """n_min / n_c (max1), N / n_c (raw) or 1 (one); absent classes: 0 (masked), or the code's n_min / (4 n_max)."""
    n = np.asarray(counts, float)
    owned = n > 0
    if gamma == "one":
        return np.where(owned | (missing == "code"), 1.0, 0.0)
    g = n[owned].min() / np.where(owned, n, np.inf)
    if missing == "code":
        g = np.where(owned, g, n[owned].min() / (4 * n.max()))
    return g * (n.sum() / n[owned].min() if gamma == "raw" else 1.0)


def unbalanced_softmax(z, y, counts, gamma="max1", missing="mask"):
    shift = leave_out(counts) if missing == "mask" else 0.0
    if gamma == "weight":  # any common factor of the weights does
        return importance_ce(z + shift, y, 1.0 / np.maximum(counts, 1))
    return affine_ce(z, y, fedgr_gamma(counts, gamma, missing), shift)


# --- cards 12, 16, 19, 20 ---------------------------------------------------------------------------------------------


def fedrs_scale(counts, alpha=0.5, scaling="paper", few=0):
    n = np.asarray(counts, float)
    n = n * (n > few)
    return np.where(n > 0, 1.0, alpha) if scaling == "paper" else (1 - alpha) * n / n.max() + alpha


def ntd(z, teacher, y, beta=1.0, tau=1.0, scaled=True):
    """beta tau^2 KL(teacher || student) over the C - 1 not-true classes; the gradient there is beta tau (s - t)."""
    hide = np.where(onehot(y, z.shape[1]) > 0, -np.inf, 0.0)
    apart = softmax(z / tau + hide) - softmax(teacher / tau + hide)
    return beta * (tau if scaled else 1 / tau) * apart / len(y)


def focal(z, y, gamma=2.0, alpha=1.0):
    """-alpha_y (1 - p)^gamma log p, both factors differentiated."""
    value, du = per_sample(z, y)  # value = -log p
    p = np.exp(-value)
    slope = alpha * (gamma * p * (1 - p) ** (gamma - 1) * value + (1 - p) ** gamma)  # dL/d(-log p)
    return slope[:, None] * du / len(y)


def fedlc(z, y, counts, tau=1.0, floor=0.0):
    """Margins z - tau n^(-1/4); absent classes have an infinite margin (tau > 0), or count as ``floor`` rows."""
    n = np.maximum(np.asarray(counts, float), floor)
    margin = np.where(n > 0, tau * np.where(n > 0, n, 1.0) ** -0.25, np.inf if tau else 0.0)
    return affine_ce(z, y, 1.0, -margin)


def logit_adjust_shift(counts, tau=1.0):
    """tau log(n_c / sum n), -inf for absent classes (tau > 0)."""
    n = np.asarray(counts, float)
    return tau * np.log(n / n.sum(), out=np.full(len(n), -np.inf), where=n > 0) if tau else np.zeros(len(n))


# --- card 11, MOON ----------------------------------------------------------------------------------------------------


def cosine(a, b):
    """Row cosines [B] and their gradient w.r.t. a [B, F]; a zero vector has cosine 0 and gradient 0."""
    na, nb = (np.sqrt((v**2).sum(1, keepdims=True)) for v in (a, b))
    ua, ub = (np.divide(v, n, out=np.zeros_like(v), where=n > 0) for v, n in ((a, na), (b, nb)))
    cos = (ua * ub).sum(1, keepdims=True)
    return cos[:, 0], np.divide(ub - cos * ua, na, out=np.zeros_like(a), where=na > 0)


def moon(f, f_global, f_previous, temperature=0.5):
    """-log(e^(a/T) / (e^(a/T) + e^(b/T))) = log(1 + e^((b - a)/T)) with a, b the two cosines; gradient w.r.t. f."""
    (a, da), (b, db) = cosine(f, f_global), cosine(f, f_previous)
    gap = (b - a) / temperature
    return (1 / (1 + np.exp(-gap)) / temperature)[:, None] * (db - da) / len(f)


# --- cards 18, 21, 23, 28: weights on cross-entropy and BalanceFL -----------------------------------------------------


def importance_ce(z, y, weights):
    """FedIR: sum w CE / sum w over the batch, w = weights_y."""
    w = np.asarray(weights, float)[y]
    return per_sample(z, y)[1] * w[:, None] / w.sum()


def class_balanced_weights(counts, beta=0.9999):
    """(1 - beta) / (1 - beta^n) over owned classes, summing to their number."""
    n = np.asarray(counts, float)
    raw = np.where(n > 0, (1 - beta) / (1 - beta ** np.maximum(n, 1)), 0.0)
    return raw * (n > 0).sum() / raw.sum()


def balancefl(z, teacher, y, positive, temperature=2.0, lam=1.0, entropy=0.002, reduction="mean"):
    """CE over the positive classes + lam * distillation over the others - entropy * H(softmax over the positive)."""
    pos = np.asarray(positive, bool)
    u = np.where(pos, z, -np.inf)
    logp, p = np.where(pos, log_softmax(u), 0.0), softmax(u)
    h = -(p * logp).sum(1, keepdims=True)
    grad = per_sample(u, y)[1] + entropy * (len(y) if reduction == "sum" else 1.0) * p * (logp + h)
    if not pos.all():
        s, t = (softmax(np.where(pos, -np.inf, v / temperature)) for v in (z, teacher))
        grad = grad + lam * (s - t) / temperature
    return grad / len(y)


# --- card 25, Fed-GraB ------------------------------------------------------------------------------------------------


def grab_map(u):
    return (10 / 9) / (1 / 9 + np.exp(-u / 2))


def grab_bce(z, y, u):
    """Sigmoid BCE summed over classes, times f(u) where positive, f(-u) elsewhere."""
    t = onehot(y, z.shape[1])
    gain = t * grab_map(u) + (1 - t) * grab_map(-u)
    return gain * (1 / (1 + np.exp(-z)) - t) / len(y)


def grab_start(classes):
    """Accumulated positive and negative |gradient|, last two errors and the controller's output, all [C]."""
    return {name: np.zeros(classes) for name in ("pos", "neg", "e1", "e2", "u")}


def grab_learn(s, dlogits, y, gains=(10.0, 0.01, 0.1)):
    """Adds this batch's |gradient|; one incremental PID step on the error -(pos - neg)."""
    t = onehot(y, dlogits.shape[1])
    pos, neg = s["pos"] + (t * np.abs(dlogits)).sum(0), s["neg"] + ((1 - t) * np.abs(dlogits)).sum(0)
    (kp, ki, kd), error = gains, neg - pos
    more = kp * (error - s["e1"]) + ki * error + kd * (error - 2 * s["e1"] + s["e2"])
    return {"pos": pos, "neg": neg, "e1": error, "e2": s["e1"], "u": s["u"] + more}
