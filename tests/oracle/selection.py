"""Who takes part, with how much data: Seol-Kim, power-of-choice and Astraea's mediators, on plain count arrays."""

import math

import numpy as np


def kld_uniform(counts):
    """KL(v / sum v || uniform), natural logarithm, 0 log 0 = 0."""
    v = np.asarray(counts, float)
    p = v[v > 0] / v.sum()
    return float((p * np.log(p * len(v))).sum())


def seolkim_target(counts, delta, round_index):
    """t = mean_c n_c * exp(-delta r), r zero-based."""
    return float(np.mean(counts) * math.exp(-delta * round_index))


def seolkim_oversampled(counts, delta, round_index):
    """Classes with 0 < n_c < t are filled up to ceil(t)."""
    n, t = np.asarray(counts, int), seolkim_target(counts, delta, round_index)
    return np.where((n > 0) & (n < t), math.ceil(t), n)


def seolkim_order(offered, tie=None):
    """Largest first; tie [n] ranks equal sizes (lower first; default the index)."""
    sizes = np.asarray(offered).sum(1)
    tie = np.arange(len(sizes)) if tie is None else np.asarray(tie)
    return [int(i) for i in np.lexsort((tie, -sizes))]


def seolkim_select(offered, most, threshold=0.1, order=None, passes="restart"):
    """Greedy selection. Returns [(candidate, quota s [C], v [C] after it, KL of v)] in the order of selection."""
    offered = np.asarray(offered, int)
    order = seolkim_order(offered) if order is None else list(order)
    v = offered[order[0]].copy()
    room = v.max()
    log = [(order[0], v.copy(), v.copy(), kld_uniform(v))]
    if passes == "once":  # algorithm 2, lines 4 to 22, with the test of line 23 where v is updated
        for k in order[1:]:
            f = int(np.argmin(v))
            if len(log) == most or log[-1][3] < threshold or v[f] == room:
                break
            if offered[k, f] > 0:
                quota = np.minimum(room - v, offered[k])
                v = v + quota
                log.append((k, quota, v.copy(), kld_uniform(v)))
        return log
    while len(log) < most and log[-1][3] >= threshold:
        rest = [k for k in order if k not in {entry[0] for entry in log}]
        wanted = [f for f in np.argsort(v, kind="stable") if v[f] != room]
        found = next((k for f in wanted for k in rest if offered[k, f] > 0), None)
        if found is None:
            break
        quota = np.minimum(room - v, offered[found])
        v = v + quota
        log.append((found, quota, v.copy(), kld_uniform(v)))
    return log


def seolkim_batch(total, beta):
    return max(1, int(total // beta))


def seolkim_rate(batch, lr_max=0.1):
    return lr_max * 2 / math.pi * math.atan(batch)


def seolkim_delta(delta, owned, offered, threshold=0.1, step=0.1):
    """delta + step where the selected clients' oversampled share exceeds the threshold; owned, offered [K, C]."""
    own = np.sum(owned)
    return delta + step if (np.sum(offered) - own) / own > threshold else delta


def seolkim_round(
    owned, delta, round_index, most, beta, threshold=0.1, over=0.1, step=0.1, lr_max=0.1, tie=None, passes="restart"
):
    """One whole selection round from the owned counts [N, C] of all candidates: dict of everything it decides."""
    owned = np.asarray(owned, int)
    offered = np.stack([seolkim_oversampled(n, delta, round_index) for n in owned])
    log = seolkim_select(offered, most, threshold, seolkim_order(offered, tie), passes)
    ids, quotas = [entry[0] for entry in log], np.stack([entry[1] for entry in log])
    batches = [seolkim_batch(s.sum(), beta) for s in quotas]
    return {
        "offered": offered,
        "ids": ids,
        "quotas": quotas,
        "batch_sizes": batches,
        "lrs": [seolkim_rate(b, lr_max) for b in batches],
        "weights": quotas.sum(1) / quotas.sum(),
        "delta": seolkim_delta(delta, owned[ids], offered[ids], over, step),
    }


def power_of_choice(candidates, losses, m):
    """The m candidates with the largest loss, ties to the one drawn first."""
    rank = np.argsort(-np.asarray(losses, float), kind="stable")[:m]
    return [int(candidates[i]) for i in rank]


def astraea_copies(global_counts, alpha):
    """(mean / n_c)^alpha copies of a sample of a class below the mean, 1 of the others."""
    n = np.asarray(global_counts, float)
    return np.where((n > 0) & (n < n.mean()), (n.mean() / np.maximum(n, 1)) ** alpha, 1.0)


def astraea_schedule(counts, gamma):
    """Mediators as (clients in order of joining, KL of their sum); ties to the lowest index."""
    counts = np.asarray(counts, float)
    left, mediators = list(range(len(counts))), []
    while left:
        chain, total = [], np.zeros(counts.shape[1])
        while left and len(chain) < gamma:
            best = min(left, key=lambda k: (round(kld_uniform(total + counts[k]), 12), k))
            left.remove(best)
            chain.append(best)
            total = total + counts[best]
        mediators.append((chain, kld_uniform(total)))
    return mediators
