"""Classifier rows on the server: gravitation (FedGR), spreadout (FedGC) and averages of rows.

``rows`` [K, C, F] are the bias-free classifier rows u_c^k of K participants. ``owned`` [K, C] says which of them were
trained. In both regularisers every owned row takes a turn as the anchor. An anchor is detached: it gets no gradient
from its own turn. Scores are formed for one participant's anchors at a time, so memory grows with K C^2, not (K C)^2.
"""

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
    """Anchors of participant k, the scores of all rows against them, and the rows that may enter.

    Returns:
        (anchors u_i^k [C, F], scores u_j^z . u_i^k [K, C, C] by (z, j, i), rivals [K, C, 1]: owned rows of the others,
        same [C, C]: j = i).
    """
    participants, classes = owned.shape
    anchors = rows[k].detach()
    others = torch.arange(participants, device=rows.device) != k
    rivals = (owned & others.unsqueeze(-1)).unsqueeze(-1)
    same = torch.eye(classes, dtype=torch.bool, device=rows.device)
    return anchors, rows @ anchors.mT, rivals, same


def _only_owned(rows: Tensor, owned: Tensor) -> Tensor:
    """The rows with zeros where they are not owned."""
    return rows.masked_fill(~owned.unsqueeze(-1), 0.0)


def _masked(scores: Tensor, keep: Tensor, alive: Tensor) -> Tensor:
    """Scores [K, C, C] flattened to [K C, C], -inf where not kept; 0 in columns that are not alive [C].

    A column of -inf alone would give -inf - (-inf) = NaN in a term that is discarded anyway.
    """
    empty = torch.where(alive, -torch.inf, 0.0).to(scores.dtype)
    return torch.where(keep, scores, empty).flatten(0, 1)


def _attraction(scores: Tensor, rivals: Tensor, same: Tensor, mine: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of the attraction's numerator and denominator, [K C, C] each; anchors [C] with another owner."""
    shared = (rivals & same).flatten(0, 1).any(0) & mine
    return _masked(scores, rivals & same, shared), _masked(scores, rivals, shared), shared


def _negatives(scores: Tensor, rivals: Tensor, same: Tensor, own_score: Tensor) -> Tensor:
    """Scores of the repulsion's denominator: the anchor's own score [C] first, then the rivals of other labels."""
    alive = torch.ones_like(own_score, dtype=torch.bool)
    return torch.cat([own_score.unsqueeze(0), _masked(scores, rivals & ~same, alive)])  # [1 + K C, C]


def _terms(rows: Tensor, owned: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """-log A_{k,i} and -log R_{k,i} of FedGR for every label i, [C] each; 0 where there is no term."""
    anchors, scores, rivals, same = _scores(rows, owned, k)
    numerator, denominator, shared = _attraction(scores, rivals, same, owned[k])
    attraction = denominator.logsumexp(0) - numerator.logsumexp(0)
    own_score = anchors.square().sum(-1)
    repulsion = _negatives(scores, rivals, same, own_score).logsumexp(0) - own_score
    zero = torch.zeros_like(own_score)
    return torch.where(shared, attraction, zero), torch.where(owned[k], repulsion, zero)


def gravitation(rows: Tensor, owned: Tensor, mass: Tensor | None = None) -> Tensor:
    """Gravitation regulariser of FedGR: it attracts rows of the same label and repels rows of different labels.

        Reg = -sum_k sum_{i owned by k} m_{k,i} (log A_{k,i} + log R_{k,i})
        A_{k,i} = sum_{z != k, z owns i} exp(u_i^z . u_i^k') / sum_{z != k} sum_{j owned by z} exp(u_j^z . u_i^k')
        R_{k,i} = exp(||u_i^k'||^2) / (exp(||u_i^k'||^2) + sum_{z != k} sum_{j owned by z, j != i} exp(u_j^z . u_i^k'))

    A prime marks a detached row. A label with one owner has no attraction. One participant gives 0.

    Args:
        rows: Classifier rows u of the participants, [K, C, F].
        owned: True where participant k owns label c, bool [K, C].
        mass: Weight m of each anchor, [K, C]; None is 1 everywhere. See `gravitation_mass`.

    Returns:
        Reg, ().

    Example:
        >>> import torch
        >>> from fedskew.functional import gravitation
        >>> rows = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 2.0], [1.0, 1.0]]])
        >>> owned = torch.tensor([[True, True, False], [False, True, True]])
        >>> gravitation(rows, owned)
        tensor(2.5649)

    References:
        Guo et al. 2023, FedGR: Federated Learning with Gravitation Regulation for Double Imbalance Distribution
        (DASFAA), gravitation regulariser. https://doi.org/10.1007/978-3-031-30637-2_47
    """
    rows = _only_owned(rows, owned)
    terms = [torch.stack(_terms(rows, owned, k)) for k in range(len(owned))]  # [2, C] each
    if mass is not None:
        terms = [m * both for m, both in zip(mass.to(rows), terms, strict=True)]
    return torch.stack([both.sum() for both in terms]).sum()


def gravitation_gradient(rows: Tensor, owned: Tensor, mass: Tensor | None = None) -> Tensor:
    """Gradient of `gravitation` by the rows, in closed form without autograd.

    With e_j^z = exp(u_j^z . u_i^k') the anchor u_i^k' adds to row u_j^z, z != k:

        attraction:            u_i^k' (e_j^z / sum of all e - 1[j = i] e_i^z / sum of the owners' e_i)
        repulsion, j != i:     u_i^k' e_j^z / (exp(||u_i^k'||^2) + sum of the e with j != i)

    Args:
        rows: Classifier rows u of the participants, [K, C, F].
        owned: True where participant k owns label c, bool [K, C].
        mass: Factor of what each anchor adds, [K, C]; None is 1 everywhere.

    Returns:
        dReg / drows, [K, C, F]; zero at rows that are not owned.

    Note:
        Equations 11 and 12 cover one other client and leave out the rows j != i; the repulsion's sign in equation 15
        contradicts equation 12. This is the gradient of the regulariser itself.

    Example:
        >>> import torch
        >>> from fedskew.functional import gravitation_gradient
        >>> rows = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 2.0], [1.0, 1.0]]])
        >>> owned = torch.tensor([[True, True, False], [False, True, True]])
        >>> gravitation_gradient(rows, owned)[0]
        tensor([[ 0.2119,  0.4863],
                [ 0.2119, -0.0265],
                [ 0.0000,  0.0000]])

    References:
        Guo et al. 2023, FedGR: Federated Learning with Gravitation Regulation for Double Imbalance Distribution
        (DASFAA), gravitation regulariser. https://doi.org/10.1007/978-3-031-30637-2_47
    """
    rows = _only_owned(rows, owned)
    total = torch.zeros_like(rows)
    for k in range(len(owned)):
        anchors, scores, rivals, same = _scores(rows, owned, k)
        numerator, denominator, shared = _attraction(scores, rivals, same, owned[k])
        pull = torch.where(shared, denominator.softmax(0) - numerator.softmax(0), 0.0)
        push = _negatives(scores, rivals, same, anchors.square().sum(-1)).softmax(0)[1:]
        coefficients = (pull + torch.where(owned[k], push, 0.0)).reshape(scores.shape)
        total = total + (coefficients if mass is None else coefficients * mass[k].to(rows)) @ anchors
    return total


def gravitation_step(rows: Tensor, owned: Tensor, step: Tensor | float, mass: Tensor | None = None) -> Tensor:
    """One step of gradient descent on `gravitation`, as FedGR's server takes.

        U <- U - step * dReg / dU

    Args:
        rows: Classifier rows U of the participants, [K, C, F].
        owned: True where participant k owns label c, bool [K, C].
        step: Step size. FedGR has lambda * lr, with the clients' learning rate.
        mass: Weight of each anchor, [K, C]; None is 1 everywhere.

    Returns:
        New rows, [K, C, F]; rows that are not owned keep their values.

    Example:
        >>> import torch
        >>> from fedskew.functional import gravitation_step
        >>> rows = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 2.0], [1.0, 1.0]]])
        >>> gravitation_step(rows, torch.ones(2, 2, dtype=torch.bool), step=0.05)
        tensor([[[0.9616, 0.0496],
                 [0.0250, 0.9250]],
        <BLANKLINE>
                [[0.0366, 1.9269],
                 [0.9384, 1.0366]]])

    References:
        Guo et al. 2023, FedGR: Federated Learning with Gravitation Regulation for Double Imbalance Distribution
        (DASFAA), server step. https://doi.org/10.1007/978-3-031-30637-2_47
    """
    return rows - step * gravitation_gradient(rows, owned, mass)


def _mean_anchors(rows: Tensor, owned: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One anchor a class, the mean of its owners' rows: (anchors [C, F], scores [1 + K C, C], owners [C]).

    The first score is the anchor's own. The others are those of rows whose participants lack the anchor's class.
    """
    held = owned.to(rows)
    anchors = torch.einsum("kc,kcf->cf", held, rows.detach()) / nonzero(held.sum(0)).unsqueeze(-1)
    rivals = owned.unsqueeze(2) & ~owned.unsqueeze(1)  # [K, C, C] (z, j, i)
    alive = torch.ones_like(owned[0])
    own_score = anchors.square().sum(-1)
    return anchors, torch.cat([own_score.unsqueeze(0), _masked(rows @ anchors.mT, rivals, alive)]), held.sum(0)


def fedgc_spread(rows: Tensor, owned: Tensor, anchors: Anchors = "own") -> Tensor:
    """Spreadout regulariser of FedGC: it pushes apart the classifier rows of different participants.

        Reg = -sum_k sum_{i owned by k} log( e^{w . w'} / (e^{w . w'} + sum over rivals of e^{u . w'}) ),   w = u_i^k

    A prime marks a detached row; the first factor of w . w' stays live. One participant gives 0.

    Args:
        rows: Classifier rows of the participants, [K, C, F].
        owned: True where participant k owns label c, bool [K, C].
        anchors: "own": every owned row is an anchor, and its rivals are the other participants' rows of other labels.
            The paper has disjoint labels, where this is its formula. "class_mean", as in PFLlib: the anchor w = w' of a
            class is the detached mean of its owners' rows, and its rivals are the rows of participants that lack the
            class.

    Returns:
        Reg, ().

    Raises:
        ConfigError: ``anchors`` is not "own" or "class_mean".

    Example:
        >>> import torch
        >>> from fedskew.functional import fedgc_spread
        >>> rows = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]])
        >>> fedgc_spread(rows, torch.eye(2, dtype=torch.bool))
        tensor(0.6265)

    References:
        Niu and Deng 2022, Federated Learning for Face Recognition with Gradient Correction (AAAI).
        https://arxiv.org/abs/2112.07246
    """
    choose("anchors", anchors, ("own", "class_mean"))
    rows = _only_owned(rows, owned)
    if anchors == "class_mean":
        _, scores, owners = _mean_anchors(rows, owned)
        return (owners * (scores.logsumexp(0) - scores[0])).sum()
    terms = []
    for k in range(len(owned)):
        fixed, scores, rivals, same = _scores(rows, owned, k)
        own_score = (rows[k] * fixed).sum(-1)
        spread = _negatives(scores, rivals, same, own_score).logsumexp(0) - own_score
        terms.append(torch.where(owned[k], spread, torch.zeros_like(own_score)).sum())
    return torch.stack(terms).sum()


def fedgc_gradient(rows: Tensor, owned: Tensor, anchors: Anchors = "own") -> Tensor:
    """Gradient of `fedgc_spread` by the rows, in closed form without autograd.

    With s the softmax over the anchor's own score and its rivals' scores, a rival gets s u_i^k' and the anchor's live
    copy gets (s_own - 1) u_i^k'.

    Args:
        rows: Classifier rows of the participants, [K, C, F].
        owned: True where participant k owns label c, bool [K, C].
        anchors: "own" or "class_mean"; see `fedgc_spread`.

    Returns:
        dReg / drows, [K, C, F]; zero at rows that are not owned.

    Raises:
        ConfigError: ``anchors`` is not "own" or "class_mean".

    Example:
        >>> import torch
        >>> from fedskew.functional import fedgc_gradient
        >>> rows = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]])
        >>> fedgc_gradient(rows, torch.eye(2, dtype=torch.bool))
        tensor([[[-0.2689,  0.2689],
                 [ 0.0000,  0.0000]],
        <BLANKLINE>
                [[ 0.0000,  0.0000],
                 [ 0.2689, -0.2689]]])

    References:
        Niu and Deng 2022, Federated Learning for Face Recognition with Gradient Correction (AAAI).
        https://arxiv.org/abs/2112.07246
    """
    choose("anchors", anchors, ("own", "class_mean"))
    rows = _only_owned(rows, owned)
    if anchors == "class_mean":
        means, scores, owners = _mean_anchors(rows, owned)
        return (owners * scores.softmax(0)[1:]).reshape(*owned.shape, -1) @ means
    total, live = torch.zeros_like(rows), []
    for k in range(len(owned)):
        fixed, scores, rivals, same = _scores(rows, owned, k)
        share = torch.where(owned[k], _negatives(scores, rivals, same, fixed.square().sum(-1)).softmax(0), 0.0)
        total = total + share[1:].reshape(scores.shape) @ fixed
        live.append(torch.where(owned[k], share[0] - 1, 0.0).unsqueeze(-1) * fixed)
    return total + torch.stack(live)


def fedgc_step(rows: Tensor, owned: Tensor, step: Tensor | float, anchors: Anchors = "own") -> Tensor:
    """One step of gradient descent on `fedgc_spread`, as FedGC's server takes.

        U <- U - step * dReg / dU

    Args:
        rows: Classifier rows U of the participants, [K, C, F].
        owned: True where participant k owns label c, bool [K, C].
        step: Step size, lambda * lr.
        anchors: "own" or "class_mean"; see `fedgc_spread`.

    Returns:
        New rows, [K, C, F]; rows that are not owned keep their values.

    Raises:
        ConfigError: ``anchors`` is not "own" or "class_mean".

    Example:
        >>> import torch
        >>> from fedskew.functional import fedgc_step
        >>> rows = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]])
        >>> fedgc_step(rows, torch.eye(2, dtype=torch.bool), step=1.0)
        tensor([[[ 1.2689, -0.2689],
                 [ 0.0000,  0.0000]],
        <BLANKLINE>
                [[ 0.0000,  0.0000],
                 [-0.2689,  1.2689]]])

    References:
        Niu and Deng 2022, Federated Learning for Face Recognition with Gradient Correction (AAAI), server step.
        https://arxiv.org/abs/2112.07246
    """
    return rows - step * fedgc_gradient(rows, owned, anchors)


def mean_rows(rows: Tensor, owned: Tensor, weights: Tensor, over: Literal["all", "owners"] = "all") -> Tensor:
    """Average the participants' classifier rows.

        "all":     u_c = sum_k p_k u_c^k
        "owners":  u_c = sum_{k owns c} p_k u_c^k / sum_{k owns c} p_k

    Args:
        rows: Classifier rows of the participants, [K, C, F].
        owned: True where participant k owns label c, bool [K, C].
        weights: Aggregation weights p, [K].
        over: "all" participants (FedGR), or the "owners" of the class (FedGC). FedGR's algorithm 1 stacks the rows and
            does not say how they become one.

    Returns:
        Global rows, [C, F]. A row without owners, or whose owners have weight 0, is averaged over all.

    Raises:
        ConfigError: ``over`` is not "all" or "owners".

    Example:
        >>> import torch
        >>> from fedskew.functional import mean_rows
        >>> rows = torch.tensor([[[2.0], [0.0]], [[4.0], [8.0]]])
        >>> owned = torch.tensor([[True, False], [True, True]])
        >>> mean_rows(rows, owned, torch.tensor([0.5, 0.5]), over="owners")
        tensor([[3.],
                [8.]])

    References:
        Guo et al. 2023, FedGR: Federated Learning with Gravitation Regulation for Double Imbalance Distribution
        (DASFAA). https://doi.org/10.1007/978-3-031-30637-2_47
        Niu and Deng 2022, Federated Learning for Face Recognition with Gradient Correction (AAAI).
        https://arxiv.org/abs/2112.07246
    """
    choose("over", over, ("all", "owners"))
    everyone = torch.einsum("k,kcf->cf", weights, rows)
    if over == "all":
        return everyone
    share = weights.unsqueeze(-1) * owned  # [K, C]
    total = share.sum(0).unsqueeze(-1)  # [C, 1]
    return torch.where(total > 0, torch.einsum("kc,kcf->cf", share, rows) / nonzero(total), everyone)
