"""Whether two settings put methods in the same order: Kendall's tau-b, with an interval over seeds.

M methods with runs under both settings, K seeds each, B resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from fedskew import rng
from fedskew.errors import require, unknown
from fedskew.studies.scores import LEVEL, Floats, Scores, quantum_of

RESAMPLES = 10_000
LEAST = 3  # methods: of two there is one pair, and tau is 1 or -1


class Agreement(NamedTuple):
    """How far two settings agree on the order of methods.

    Attributes:
        one: Label of a setting.
        other: Label of another one.
        methods: Labels of the methods with a run under both, M.
        seeds: Seeds with a run of each of these methods under both settings.
        tau: Kendall's tau-b of the means over seeds: 1 for one order, -1 for the reverse, 0 for none.
        low: Lower end of the percentile interval over seeds; None with one seed.
        high: Its upper end.
        itself: Mean tau-b of ``one`` with itself, over all ways to halve its seeds; None with one seed. No setting can
            be expected to agree with ``one`` better than this.
    """

    one: str
    other: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    tau: float
    low: float | None
    high: float | None
    itself: float | None


def selected(scores: Scores, methods: Sequence[str] | None = None, settings: Sequence[str] | None = None) -> Scores:
    """The scores of some methods and settings, in the order asked for; None keeps all. Raises ConfigError."""
    kept = tuple(methods or scores.methods), tuple(settings or scores.settings)
    if unheard := [label for label in kept[1] if label not in scores.settings]:
        raise unknown("setting", unheard[0], scores.settings)
    rows, columns = [scores.index(m) for m in kept[0]], [scores.settings.index(s) for s in kept[1]]
    values = scores.values[rows][:, columns]
    return replace(scores, methods=kept[0], settings=kept[1], values=values)


def tau_b(a: Floats, b: Floats) -> Floats:
    """Kendall's tau-b of two orders, over the last axis.

    tau-b = (P - Q) / sqrt((P + Q + A) (P + Q + B)), P pairs in one order, Q in the reverse, A tied in ``b`` alone, B in
    ``a`` alone; 0 where all values of one are tied.

    Args:
        a: Scores, float64 [..., M].
        b: Scores, float64 [..., M].

    Returns:
        float64 [...].
    """
    i, j = np.triu_indices(a.shape[-1], 1)
    signs = [np.where(np.abs(d) <= quantum_of(v), 0.0, np.sign(d)) for v in (a, b) for d in (v[..., i] - v[..., j],)]
    pairs = [np.abs(s).sum(-1) for s in signs]
    whole = np.sqrt(pairs[0] * pairs[1])
    found: Floats = np.where(whole > 0, (signs[0] * signs[1]).sum(-1) / np.where(whole > 0, whole, 1.0), 0.0)
    return found


def agreement(scores: Scores, one: str, other: str, resamples: int = RESAMPLES, seed: int = 0) -> Agreement:
    """Kendall's tau-b of the means over seeds under two settings.

    Methods without a run under one of the settings are left out, and so are seeds that a method lacks. The interval
    draws the seeds of each setting anew, for all methods alike, since runs of one seed share clients and weights.

    Args:
        scores: The scores.
        one: Label of a setting, such as that of natural clients.
        other: Label of another.
        resamples: B.
        seed: Seed of the draws.

    Raises:
        ConfigError: A setting is unknown, an option breaks a rule, or fewer than three methods have runs under both.
    """
    values = selected(scores, settings=(one, other)).oriented  # [M, 2, K]
    there = ~np.isnan(values)
    ran = np.all(np.any(there, axis=2), axis=1)  # [M]
    names = tuple(name for name, kept in zip(scores.methods, ran, strict=True) if kept)
    require(len(names) >= LEAST, "scores", f"have runs of {LEAST} methods under both settings", len(names))
    whole = np.all(there[ran], axis=(0, 1))  # [K]
    seeds = tuple(k for k, kept in zip(scores.seeds, whole, strict=True) if kept)
    require(bool(seeds), "scores", "have a seed that all methods share", list(scores.seeds))
    first, second = (values[ran][:, s][:, whole] for s in (0, 1))  # [M, K]
    tau = float(tau_b(first.mean(1), second.mean(1)))
    if len(seeds) == 1:
        return Agreement(one, other, names, seeds, tau, None, None, None)
    drawn = []
    for name, part in ((one, first), (other, second)):
        picks = rng.generator(seed, "order", name).integers(len(seeds), size=(resamples, len(seeds)))
        drawn.append(part[:, picks].mean(axis=2).T)  # [B, M]
    low, high = np.quantile(tau_b(*drawn), [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return Agreement(one, other, names, seeds, tau, low, high, self_agreement(first))


def self_agreement(values: Floats) -> float:
    """Mean tau-b between the means over two halves of the seeds, over all ways to halve them.

    Args:
        values: Scores, float64 [M, K], two seeds or more.
    """
    k = values.shape[1]
    found = []
    for half in combinations(range(k), k // 2):
        rest = [i for i in range(k) if i not in half]
        found.append(float(tau_b(values[:, list(half)].mean(1), values[:, rest].mean(1))))
    return float(np.mean(found))
