"""Who takes part, with how much data: Seol-Kim, power-of-choice and Astraea's mediators, on plain count arrays."""

import math

import numpy as np


def kld_uniform(counts):
    """KL(v / sum v || uniform), natural logarithm, 0 log 0 = 0."""
    v = np.asarray(counts, float)
    p = v[v > 0] / v.sum()
    return float((p * np.log(p * len(v))).sum())


def seolkim_oversampled(counts, delta, round_index):
    """Classes with 0 < n_c < t = mean_c n_c exp(-delta r) are filled up to ceil(t); r zero-based."""
    n, t = np.asarray(counts, int), float(np.mean(counts) * math.exp(-delta * round_index))
    return np.where((n > 0) & (n < t), math.ceil(t), n)


def seolkim_order(offered, tie):
    """Largest first; tie [n] ranks equal sizes, lower first."""
    return [int(i) for i in np.lexsort((np.asarray(tie), -np.asarray(offered).sum(1)))]


def seolkim_select(offered, most, threshold, order, passes="restart"):
    """Greedy selection. Returns [(candidate, quota s [C])] in the order of selection."""
    offered = np.asarray(offered, int)
    v = offered[order[0]].copy()
    room, log, rest = v.max(), [(order[0], v.copy())], list(order[1:])
    while len(log) < most and kld_uniform(v) >= threshold:
        wanted = [f for f in np.argsort(v, kind="stable") if v[f] != room]
        if passes == "once":  # algorithm 2, lines 4 to 22, with the test of line 23 where v is updated
            wanted = [f for f in (int(np.argmin(v)),) if v[f] != room]
        client = next((k for f in wanted for k in rest if offered[k, f] > 0), None)
        if client is None:
            break
        quota = np.minimum(room - v, offered[client])
        v = v + quota
        log.append((client, quota))
        rest = rest[rest.index(client) + 1 :] if passes == "once" else [k for k in rest if k != client]
    return log


def seolkim_round(owned, delta, round_index, most, beta, threshold, lr_max, tie, passes, over=0.1, step=0.1):
    """One whole selection round from the owned counts [N, C] of all candidates: dict of everything it decides."""
    owned = np.asarray(owned, int)
    offered = np.stack([seolkim_oversampled(n, delta, round_index) for n in owned])
    log = seolkim_select(offered, most, threshold, seolkim_order(offered, tie), passes)
    ids, quotas = [k for k, _ in log], np.stack([quota for _, quota in log])
    batches = [max(1, int(s.sum() // beta)) for s in quotas]
    before, after = owned[ids].sum(), offered[ids].sum()
    return {
        "offered": offered,
        "ids": ids,
        "quotas": quotas,
        "batch_sizes": batches,
        "lrs": [lr_max * 2 / math.pi * math.atan(b) for b in batches],
        "weights": quotas.sum(1) / quotas.sum(),
        "delta": delta + step if (after - before) / before > over else delta,
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
    """Mediators, their clients in order of joining; ties to the lowest index."""
    counts = np.asarray(counts, float)
    left, mediators = list(range(len(counts))), []
    while left:
        chain, total = [], np.zeros(counts.shape[1])
        while left and len(chain) < gamma:
            best = min(left, key=lambda k: (round(kld_uniform(total + counts[k]), 12), k))
            left.remove(best)
            chain.append(best)
            total = total + counts[best]
        mediators.append(chain)
    return mediators
