"""The diagonal of the Fisher information, on dicts of tensors."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from fedskew import tree
from fedskew.functional._numeric import choose
from fedskew.tree import Params

__all__ = ["fisher_diagonal"]

CHUNK = 64  # rows whose gradients are held at once


def fisher_diagonal(
    loss: Callable[[Params, Tensor, Tensor], Tensor],
    params: Params,
    x: Tensor,
    y: Tensor,
    mask: Tensor,
    of: Literal["rows", "batch"] = "rows",
) -> Params:
    """Squared gradients of a loss at the labels of the data: the empirical Fisher information's diagonal.

        "rows":   (1 / n) sum_b g_b^2,   g_b the gradient of row b's loss
        "batch":  ((1 / n) sum_b g_b)^2

    Args:
        loss: Loss of rows, [B], from parameters, rows [B, ...] and labels [B].
        params: Where the gradients are taken.
        x: Rows, [B, ...].
        y: Labels, int64 [B].
        mask: 1 for real rows, 0 for padding, [B].
        of: "rows" is the Fisher information; "batch" is what public code of FedCurv takes for it.

    Returns:
        The diagonal, shaped as ``params``.

    Raises:
        ConfigError: ``of`` is unknown.

    Example:
        >>> import torch
        >>> from fedskew.functional import fisher_diagonal
        >>> loss = lambda p, x, y: p["w"] * x
        >>> rows = torch.tensor([1.0, -3.0])
        >>> fisher_diagonal(loss, {"w": torch.tensor(0.5)}, rows, torch.zeros(2), torch.ones(2))
        {'w': tensor(5.)}

    References:
        Shoham et al. 2019, Overcoming Forgetting in Federated Learning on Non-IID Data. https://arxiv.org/abs/1910.07796
    """
    choose("of", of, ("rows", "batch"))
    rows = mask.sum().clamp(min=1)
    if of == "batch":
        whole = tree.slope(lambda p: (loss(p, x, y) * mask).sum() / rows, params)
        return {n: g.square() for n, g in whole.items()}

    def row_gradient(row: Tensor, label: Tensor) -> Params:
        return tree.slope(lambda p: loss(p, row.unsqueeze(0), label.unsqueeze(0)).squeeze(0), params)

    total = {n: torch.zeros_like(w) for n, w in params.items()}
    for i in range(0, len(y), CHUNK):
        each = torch.func.vmap(row_gradient)(x[i : i + CHUNK], y[i : i + CHUNK])
        total = {n: total[n] + torch.tensordot(mask[i : i + CHUNK].to(g), g.square(), 1) for n, g in each.items()}
    return {n: t / rows.to(t) for n, t in total.items()}
