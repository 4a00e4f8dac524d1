"""Biases of the classes and one temperature, fitted to a model's logits by Newton's method on sums over clients.

    z' = a z + b,   sum b = 0,   a > 0

Cross-entropy is convex in (a, b), so a few exchanges of sums find what all rows together would. C classes, B rows. A
point is x = (b_1, ..., b_C, a), float64 [C + 1].
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fedskew.functional._numeric import is_label, nonzero

__all__ = ["even_weights", "fit_by_sums", "fit_logits", "fitted_logits", "logit_step", "logit_sums", "prior_biases"]

Sums = tuple[Tensor, Tensor, Tensor]
RIDGE = 1e-4  # of the mean loss: a class of a hundredth of the rows hardly feels it, one without rows stays finite
DONE = 1e-8  # half the squared Newton decrement, what the next step promises of the mean loss: it is taken unasked
MOST = 50  # exchanges
ARMIJO = 1e-4  # share of the promised gain that a step must bring
LEAST = 1e-5  # a: the logits of a model that has learnt nothing, or the wrong way round, are as good as left out


def fitted_logits(logits: Tensor, biases: Tensor, temperature: Tensor | float) -> Tensor:
    """Logits with fitted biases and a fitted temperature: z' = a z + b.

    Args:
        logits: Logits z, [..., C].
        biases: b, [C].
        temperature: a, the factor of the logits: an inverse temperature.

    Returns:
        z', [..., C].

    Example:
        >>> import torch
        >>> from fedskew.functional import fitted_logits
        >>> fitted_logits(torch.tensor([[2.0, 0.0]]), torch.tensor([-1.0, 1.0]), 0.5)
        tensor([[0., 1.]])
    """
    return temperature * logits + biases


def even_weights(counts: Tensor) -> Tensor:
    """Weights of rows by class, under which every class that has rows weighs the same.

        w_c = n / (C n_c),   n = sum_c n_c;   0 for a class without rows

    Args:
        counts: Rows n of each class, [C].

    Returns:
        w, float64 [C].

    Example:
        >>> import torch
        >>> from fedskew.functional import even_weights
        >>> even_weights(torch.tensor([6, 2, 0, 4]))
        tensor([0.5000, 1.5000, 0.0000, 0.7500], dtype=torch.float64)
    """
    n = counts.double()
    return torch.where(n > 0, n.sum() / (len(n) * nonzero(n)), 0.0)


def prior_biases(counts: Tensor) -> Tensor:
    """Biases that take the training prior out of the logits; they need no row, only the histogram.

        b_c = -log n_c,   less their mean over the classes; a class without rows counts as one row

    Args:
        counts: Training rows n of each class, [C].

    Returns:
        b, float64 [C].

    Example:
        >>> import torch
        >>> from fedskew.functional import prior_biases
        >>> prior_biases(torch.tensor([100, 1]))
        tensor([-2.3026,  2.3026], dtype=torch.float64)

    References:
        Menon et al. 2021, Long-Tail Learning via Logit Adjustment (ICLR), post-hoc adjustment.
        https://arxiv.org/abs/2007.07314
    """
    b = -counts.double().clamp(min=1).log()
    return b - b.mean()


def logit_sums(logits: Tensor, labels: Tensor, weights: Tensor, point: Tensor) -> Sums:
    """What a client gives of its rows: the sums of the weighted loss, its gradient and its Hessian at a point.

        p = softmax(a z + b),   J = [I | z]  [C, C + 1]
        loss = sum w (-log p_y),   gradient = sum w J^T (p - y),   Hessian = sum w J^T (diag p - p p^T) J

    Args:
        logits: Logits z, [B, C]; computed in float64.
        labels: Class numbers y, int64 [B].
        weights: Weight w of each row, [B].
        point: (b, a), [C + 1].

    Returns:
        (loss (), gradient [C + 1], Hessian [C + 1, C + 1]), float64; zeros without rows.

    Example:
        >>> import torch
        >>> from fedskew.functional import logit_sums
        >>> z, point = torch.tensor([[1.0, -1.0]]), torch.tensor([0.0, 0.0, 0.0])  # a = 0: every class has p = 1/2
        >>> logit_sums(z, torch.tensor([0]), torch.ones(1), point)[1]
        tensor([-0.5000,  0.5000, -1.0000], dtype=torch.float64)
    """
    z, w, x = logits.double(), weights.double(), point.double()
    log_p = fitted_logits(z, x[:-1], x[-1]).log_softmax(-1)
    p, y = log_p.exp(), is_label(labels, z.shape[-1])
    loss = -(w * torch.where(y, log_p, 0.0).sum(-1)).sum()
    residual, mean = w.unsqueeze(-1) * (p - y.double()), (p * z).sum(-1, keepdim=True)  # mean of z under p
    gradient = torch.cat([residual.sum(0), (residual * z).sum().reshape(1)])
    weighted = w.unsqueeze(-1) * p
    within = torch.diag(weighted.sum(0)) - weighted.T @ p
    across = (weighted * (z - mean)).sum(0)
    of_scale = (weighted * (z - mean) ** 2).sum()
    hessian = torch.cat([torch.cat([within, across[:, None]], 1), torch.cat([across, of_scale.reshape(1)])[None]])
    return loss, gradient, hessian


def logit_step(
    gradient: Tensor, hessian: Tensor, point: Tensor, free: Tensor, ridge: float = RIDGE
) -> tuple[Tensor, Tensor]:
    """The Newton step of the mean loss with a ridge, among the points whose biases sum to zero.

        F(x) = L(x) + ridge / 2 (|b|^2 + (a - 1)^2)
        step = -H_F^-1 g_F, over the free entries;   decrement = -g_F . step

    Args:
        gradient: Of the mean loss L, [C + 1].
        hessian: Of the mean loss, [C + 1, C + 1].
        point: (b, a), [C + 1].
        free: Which entries are fitted, bool [C + 1]; the others stay.
        ridge: Weight of the penalty, above 0. A class without rows has no finite bias without it.

    Returns:
        (step [C + 1], squared Newton decrement ()).

    Example:
        >>> import torch
        >>> from fedskew.functional import logit_step
        >>> free, point = torch.tensor([True, True, False]), torch.tensor([0.0, 0.0, 1.0])
        >>> curved = torch.tensor([[0.25, -0.25, 0.0], [-0.25, 0.25, 0.0], [0.0, 0.0, 1.0]])
        >>> logit_step(torch.tensor([0.1, -0.1, 0.3]), curved, point, free, ridge=0.5)[0]
        tensor([-0.1000,  0.1000,  0.0000], dtype=torch.float64)
    """
    held, x = free.double(), point.double()
    middle = torch.cat([torch.zeros_like(x[:-1]), torch.ones_like(x[-1:])])  # where the ridge has its least value
    g = held * (gradient.double() + ridge * (x - middle))
    h = hessian.double() + ridge * torch.eye(len(x), dtype=torch.float64, device=x.device)
    h = torch.where(free[:, None] & free[None, :], h, torch.diag(1.0 - held))
    step = held * torch.linalg.solve(h, -g) + 0.0  # no negative zero
    step = torch.cat([step[:-1] - step[:-1].mean(), step[-1:]])
    return step, -(g * step).sum()


def fit_by_sums(
    ask: Callable[[Tensor], Sums],
    total: float,
    free: Tensor,
    ridge: float = RIDGE,
    start: Tensor | None = None,
    most: int = MOST,
) -> tuple[Tensor, int, bool]:
    """Fit biases and a temperature at a server that sees only sums.

    The fit takes damped Newton steps from the start. A step that brings less than 1e-4 of the predicted improvement is
    cut to a quarter. a stays at least 1e-5. Once half the squared decrement is at most 1e-8 nats, the last step is
    taken without an exchange: its error is of the order of its square.

    Args:
        ask: Gives the sums of `logit_sums` over all clients at a point; each call is one exchange.
        total: Sum of the weights of all rows, above 0.
        free: Which of (b, a) are fitted, bool [C + 1].
        ridge: As for `logit_step`.
        start: First point, [C + 1] with a of at least 1e-5, such as another fit of the model; None: b = 0, a = 1.
        most: Exchanges after which the best point is taken.

    Returns:
        (point (b, a) float64 [C + 1], exchanges, whether it converged).

    Example:
        >>> import torch
        >>> from fedskew.functional import fit_by_sums, logit_sums
        >>> z, y = torch.zeros(4, 2), torch.tensor([0, 0, 0, 1])  # b_0 - b_1 becomes log 3
        >>> ask = lambda point: logit_sums(z, y, torch.ones(4), point)
        >>> point, exchanges, converged = fit_by_sums(ask, 4.0, torch.tensor([True, True, False]), ridge=1e-9)
        >>> round(float(point[0] - point[1]), 4), converged
        (1.0986, True)
    """
    x = torch.cat([torch.zeros(len(free) - 1), torch.ones(1)]).double() if start is None else start.double()
    value, step, decrement = _looked(ask(x), x, total, free, ridge)
    length, exchanges = _longest(x, step), 1
    while decrement / 2 > DONE and exchanges < most:
        there = x + length * step
        there[-1] = there[-1].clamp(min=LEAST)  # rounding
        seen = _looked(ask(there), there, total, free, ridge)
        exchanges += 1
        if seen[0] <= value - ARMIJO * length * decrement:
            x, (value, step, decrement) = there, seen
            length = _longest(x, step)
        else:
            length /= 4
    done = decrement / 2 <= DONE
    if done:
        x = torch.cat([x[:-1] + step[:-1], (x[-1:] + step[-1:]).clamp(min=LEAST)])
    return x, exchanges, done


def _looked(sums: Sums, x: Tensor, total: float, free: Tensor, ridge: float) -> tuple[float, Tensor, float]:
    """(value of F, Newton step, squared decrement) at a point."""
    loss, gradient, hessian = (part / total for part in sums)
    away = torch.cat([x[:-1], x[-1:] - 1])
    step, decrement = logit_step(gradient, hessian, x, free, ridge)
    if x[-1] <= LEAST and step[-1] < 0:  # a is at its bound: the others go on alone
        held = torch.cat([free[:-1], torch.zeros_like(free[-1:])])
        step, decrement = logit_step(gradient, hessian, x, held, ridge)
    return float(loss + ridge / 2 * (away * away).sum()), step, float(decrement)


def _longest(x: Tensor, step: Tensor) -> float:
    """The part of a step that leaves a at its least value or above, at most all of it."""
    falls = -float(step[-1])
    return min(1.0, (float(x[-1]) - LEAST) / falls) if falls > 0 else 1.0


def fit_logits(
    logits: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    biases: bool = True,
    temperature: bool = True,
    ridge: float = RIDGE,
) -> tuple[Tensor, Tensor]:
    """Fit biases and a temperature to pooled logits: what clients find together by `fit_by_sums`.

        min over b, a of  sum w (-log softmax(a z + b)_y) / sum w + ridge / 2 (|b|^2 + (a - 1)^2),   sum b = 0

    For two classes b_0 - b_1 moves the threshold: class 1 is predicted where a (z_1 - z_0) > b_0 - b_1.

    Args:
        logits: Logits z, [B, C], at least one row.
        labels: Class numbers y, int64 [B].
        weights: Weight of each row, [B]; None: 1. ``even_weights(counts)[labels]`` lets classes weigh the same.
        biases: Whether b is fitted; otherwise it is 0.
        temperature: Whether a is fitted; otherwise it is 1.
        ridge: Weight of the penalty, above 0.

    Returns:
        (b [C], a ()), float64.

    Example:
        >>> import torch
        >>> from fedskew.functional import fit_logits
        >>> z, y = torch.tensor([[1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]]), torch.tensor([0, 1, 1])
        >>> b, a = fit_logits(z, y, temperature=False)
        >>> bool(b[1] > b[0]), float(a)
        (True, 1.0)
    """
    w = torch.ones(len(labels), dtype=torch.float64) if weights is None else weights
    free = torch.tensor([biases] * logits.shape[-1] + [temperature])
    point, _, _ = fit_by_sums(lambda x: logit_sums(logits, labels, w, x), float(w.double().sum()), free, ridge)
    return point[:-1], point[-1]
