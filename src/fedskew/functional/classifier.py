"""Classifier rows on the server: gravitation (FedGR), spreadout (FedGC), gradient matching (CReFF), means of rows.

rows [K, C, F] are the bias-free classifier rows u_c of K participants, owned [K, C] tells which of them were trained.
In both regularisers every row u_i^k takes a turn as an anchor, detached: it never gets a gradient from being one.
Scores are formed for one participant's anchors at a time, so memory grows with K C^2 and not with (K C)^2.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedskew.functional._numeric import choose, nonzero

Anchors = Literal["own", "class_mean"]

__all__ = [
    "fedgc_gradient", "fedgc_spread", "fedgc_step", "gravitation", "gravitation_gradient",
    "gravitation_step", "mean_rows",
]  # fmt: skip


def _scores(rows: Tensor, owned: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Anchors u_i^k [C, F] of participant k, scores u_j^z . u_i^k [K, C, C] (z, j, i), and who may enter.

    Returns (anchors, scores, rivals [K, C, 1]: owned rows of the others, same [C, C]: j = i).
    """
    participants, classes = owned.shape
    anchors = rows[k].detach()
    others = torch.arange(participants, device=rows.device) != k
    rivals = (owned & others.unsqueeze(-1)).unsqueeze(-1)
    same = torch.eye(classes, dtype=torch.bool, device=rows.device)
    return anchors, rows @ anchors.mT, rivals, same


def _only_owned(rows: Tensor, owned: Tensor) -> Tensor:
    return rows.masked_fill(~owned.unsqueeze(-1), 0.0)


def _masked(scores: Tensor, keep: Tensor, alive: Tensor) -> Tensor:
    """Scores [K, C, C] flattened to [K C, C] with -inf where not kept; 0 in the columns that are not alive [C].

    A column of -inf alone would give -inf - (-inf) = NaN in a term that is discarded: better not to form it.
    """
    empty = torch.where(alive, -torch.inf, 0.0).to(scores.dtype)
    return torch.where(keep, scores, empty).flatten(0, 1)


def _attraction(scores: Tensor, rivals: Tensor, same: Tensor, mine: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of the attraction's numerator and denominator, [K C, C], and the anchors [C] with another owner."""
    shared = (rivals & same).flatten(0, 1).any(0) & mine
    return _masked(scores, rivals & same, shared), _masked(scores, rivals, shared), shared


def _negatives(scores: Tensor, rivals: Tensor, same: Tensor, own: Tensor) -> Tensor:
    """Scores of the repulsion's denominator: the anchor's own score [C] first, then the rivals of other labels."""
    alive = torch.ones_like(own, dtype=torch.bool)
    return torch.cat([own.unsqueeze(0), _masked(scores, rivals & ~same, alive)])  # [1 + K C, C]


def _terms(rows: Tensor, owned: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """-log A_{k, i} and -log R_{k, i} of FedGR for every label i, [C] each; 0 where there is no term."""
    anchors, scores, rivals, same = _scores(rows, owned, k)
    numerator, denominator, shared = _attraction(scores, rivals, same, owned[k])
    attraction = denominator.logsumexp(0) - numerator.logsumexp(0)
    own = anchors.square().sum(-1)
    repulsion = _negatives(scores, rivals, same, own).logsumexp(0) - own
    zero = torch.zeros_like(own)
    return torch.where(shared, attraction, zero), torch.where(owned[k], repulsion, zero)


def gravitation(rows: Tensor, owned: Tensor) -> Tensor:
    """FedGR's gravitation regulariser -sum_k sum_{i in O_k} (log A_{k,i} + log R_{k,i}), ().

    A = sum over other owners z of i of exp(u_i^z . u_i^k') / sum over all rows j of all others of exp(u_j^z . u_i^k');
    R = exp(||u_i^k'||^2) / (exp(||u_i^k'||^2) + sum over the others' rows j != i of exp(u_j^z . u_i^k')).
    Primes are detached. A label with one owner has no attraction; one participant gives 0.
    rows [K, C, F], owned bool [K, C]. Source: FedGR, gravitation regulariser.
    """
    rows = _only_owned(rows, owned)
    return torch.stack([torch.stack(_terms(rows, owned, k)).sum() for k in range(len(owned))]).sum()


def gravitation_gradient(rows: Tensor, owned: Tensor) -> Tensor:
    """d `gravitation` / d rows in closed form, [K, C, F]; zero on rows that are not owned. Needs no autograd.

    Anchor u_i^k' adds to u_j^z, z != k, with e = exp(u_j^z . u_i^k'): u_i^k' (e / sum e - 1[j = i] e / sum_owners e)
    for attraction and, j != i, u_i^k' e / (exp(||u_i^k'||^2) + sum e) for repulsion.
    """
    rows = _only_owned(rows, owned)
    total = torch.zeros_like(rows)
    for k in range(len(owned)):
        anchors, scores, rivals, same = _scores(rows, owned, k)
        numerator, denominator, shared = _attraction(scores, rivals, same, owned[k])
        pull = torch.where(shared, denominator.softmax(0) - numerator.softmax(0), 0.0)
        push = _negatives(scores, rivals, same, anchors.square().sum(-1)).softmax(0)[1:]
        coefficients = (pull + torch.where(owned[k], push, 0.0)).reshape(scores.shape)
        total = total + coefficients @ anchors
    return total


def gravitation_step(rows: Tensor, owned: Tensor, step: Tensor | float) -> Tensor:
    """U - step * d `gravitation` / dU, [K, C, F]; rows that are not owned stay. FedGR has step = lambda * lr.

    Works with and without autograd switched on. Source: FedGR, server step.
    """
    return rows - step * gravitation_gradient(rows, owned)


def _mean_anchors(rows: Tensor, owned: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(anchors [C, F], scores [1 + K C, C], owners [C]) where every class has one anchor, the mean of its owners' rows.

    The first score is the anchor's own; then those of the rows of participants that lack the anchor's class.
    """
    held = owned.to(rows)
    anchors = torch.einsum("kc,kcf->cf", held, rows.detach()) / nonzero(held.sum(0)).unsqueeze(-1)
    rivals = owned.unsqueeze(2) & ~owned.unsqueeze(1)  # [K, C, C] (z, j, i)
    alive = torch.ones_like(owned[0])
    own = anchors.square().sum(-1)
    return anchors, torch.cat([own.unsqueeze(0), _masked(rows @ anchors.mT, rivals, alive)]), held.sum(0)


def _spread_of_means(rows: Tensor, owned: Tensor) -> Tensor:
    _, scores, owners = _mean_anchors(rows, owned)
    return (owners * (scores.logsumexp(0) - scores[0])).sum()


def _gradient_of_means(rows: Tensor, owned: Tensor) -> Tensor:
    anchors, scores, owners = _mean_anchors(rows, owned)
    return (owners * scores.softmax(0)[1:]).reshape(*owned.shape, -1) @ anchors


def fedgc_spread(rows: Tensor, owned: Tensor, anchors: Anchors = "own") -> Tensor:
    """FedGC's spreadout regulariser -sum log( e^{w.w'} / (e^{w.w'} + sum of e^{w_j^z . w'} over rivals) ), ().

    w = u_i^k runs over all owned rows, primes are detached, and the own score w.w' keeps its live first factor.
    Rivals are the other participants' rows of other labels: with shared labels this is FedGR's repulsion with a
    live anchor. rows [K, C, F], owned bool [K, C]. One participant gives 0.
    "class_mean", as in PFLlib: w and w' are both the detached mean of the owners' rows of the class, and the rivals are
    the rows of participants that lack the class. Raises ConfigError for other ``anchors``. Source: FedGC.
    """
    choose("anchors", anchors, ("own", "class_mean"))
    rows = _only_owned(rows, owned)
    if anchors == "class_mean":
        return _spread_of_means(rows, owned)
    terms = []
    for k in range(len(owned)):
        fixed, scores, rivals, same = _scores(rows, owned, k)
        own = (rows[k] * fixed).sum(-1)
        spread = _negatives(scores, rivals, same, own).logsumexp(0) - own
        terms.append(torch.where(owned[k], spread, torch.zeros_like(own)).sum())
    return torch.stack(terms).sum()


def fedgc_gradient(rows: Tensor, owned: Tensor, anchors: Anchors = "own") -> Tensor:
    """d `fedgc_spread` / d rows in closed form, [K, C, F]; zero on rows that are not owned.

    With s = softmax over (own score, rivals): rivals get s u_i^k', the anchor's live copy gets (s_own - 1) u_i^k'.
    """
    choose("anchors", anchors, ("own", "class_mean"))
    rows = _only_owned(rows, owned)
    if anchors == "class_mean":
        return _gradient_of_means(rows, owned)
    total, live = torch.zeros_like(rows), []
    for k in range(len(owned)):
        fixed, scores, rivals, same = _scores(rows, owned, k)
        share = torch.where(owned[k], _negatives(scores, rivals, same, fixed.square().sum(-1)).softmax(0), 0.0)
        total = total + share[1:].reshape(scores.shape) @ fixed
        live.append(torch.where(owned[k], share[0] - 1, 0.0).unsqueeze(-1) * fixed)
    return total + torch.stack(live)


def fedgc_step(rows: Tensor, owned: Tensor, step: Tensor | float, anchors: Anchors = "own") -> Tensor:
    """U - step * d `fedgc_spread` / dU, [K, C, F]; rows that are not owned stay. Source: FedGC, server step."""
    return rows - step * fedgc_gradient(rows, owned, anchors)


def mean_rows(rows: Tensor, owned: Tensor, weights: Tensor, over: Literal["all", "owners"] = "all") -> Tensor:
    """Average of the participants' rows, [C, F]: sum_k p_k u_c^k over all, or over the owners of c, renormalised.

    rows [K, C, F], owned [K, C], weights [K]. A row that nobody owns, or whose owners have weight 0, is averaged over
    all. Raises ConfigError for another ``over``. Source: FedGR (all), FedGC (owners).
    """
    choose("over", over, ("all", "owners"))
    everyone = torch.einsum("k,kcf->cf", weights, rows)
    if over == "all":
        return everyone
    share = weights.unsqueeze(-1) * owned  # [K, C]
    total = share.sum(0).unsqueeze(-1)  # [C, 1]
    return torch.where(total > 0, torch.einsum("kc,kcf->cf", share, rows) / nonzero(total), everyone)
