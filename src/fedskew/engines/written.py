"""Plain steps of dense networks on stacks of clients: cross-entropy and SGD, all of it written out.

A step by vmap and the tape is some sixty operators for logistic regression, here it is a dozen: stacked products of a
client's rows with its weights, and the update is a product into the weights. A stack may have any width. Other losses,
corrections and local steps take `fedskew.engines.around`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedskew.engines.dense import Dense, Updates, taken
from fedskew.engines.jobs import Place
from fedskew.engines.stacks import positions
from fedskew.types import Params

__all__ = ["Steps", "descend", "steps_of"]


class Steps(NamedTuple):
    """What the steps of a stack read, time first, so that the first clients of a step lie side by side."""

    at: Tensor  # [T, K, B] rows of the stack, 0 for padding
    y: Tensor  # [T, K, B, 1]
    share: Tensor  # [T, K, B] of each row in its client's mean; 0 for padding
    widths: list[int]  # [T] clients that have not ended: the first of the stack


@torch.no_grad()
def descend(net: Dense, params: Params, x: Tensor, steps: Steps, lr: Tensor, decay: float) -> Tensor:
    """All local steps of a stack, into ``params`` [K, ...]; the losses [K, T], 0 where a client has ended.

    w <- w - lr (g + decay w). The gradient of cross-entropy at the logits is (softmax - onehot) * share. It is scaled
    by -lr there, where it is smallest, so that every product behind it is the update itself.

    Args:
        net: the network.
        params: of each client, in memory of their own.
        x: rows of the stack [R, ...].
        steps: which of them, when.
        lr: [K].
        decay: weight decay.
    """
    scaled = (steps.share * -lr[:, None]).unsqueeze(3)
    minus = torch.full((1, 1, 1), -1.0, dtype=x.dtype).expand(*steps.y.shape[1:])
    right = torch.zeros(steps.y.shape, dtype=x.dtype)
    shrink = 1 - lr * decay if decay else None
    here, updates, last = params, Updates(params, shrink), -1
    for t, width in enumerate(steps.widths):
        if width != last:
            here, last = {name: p[:width] for name, p in params.items()}, width
            updates = Updates(here, None if shrink is None else shrink[:width])
        out, notes = net.forward(here, taken(x, steps.at[t, :width]))
        slope = torch.log_softmax(out, 2)
        torch.gather(slope, 2, steps.y[t, :width], out=right[t, :width])
        slope.exp_().scatter_add_(2, steps.y[t, :width], minus[:width]).mul_(scaled[t, :width])
        net.back(here, slope, notes, updates)
    return -(right.squeeze(3) * steps.share).sum(2).T.contiguous()


def steps_of(places: Sequence[Place], y: Tensor, dtype: torch.dtype) -> Steps:
    """What the steps of a sorted stack read; ``y`` are the labels of its rows."""
    padded = torch.from_numpy(positions(places)[:, :, 0]).transpose(0, 1).contiguous()
    real = padded >= 0
    at = padded.clamp_(min=0)
    labels = torch.where(real, y[at], 0).unsqueeze(3)
    share = real.to(dtype)
    share /= share.sum(2, keepdim=True).clamp_(min=1)
    widths = real.any(2).sum(1).tolist()
    return Steps(at, labels, share, widths)
