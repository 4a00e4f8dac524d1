"""Helpers of this package: selection by label, masks that keep gradients finite, safe division."""

import torch
from torch import Tensor

from fedskew.errors import unknown


def choose(parameter: str, value: str, options: tuple[str, ...]) -> None:
    """Raise ConfigError when ``value`` is not one of the options."""
    if value not in options:
        raise unknown(parameter, value, options)


def as_float(x: Tensor) -> Tensor:
    """Return a floating tensor as it is, and any other tensor in the default dtype."""
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


def counts_for(logits: Tensor, counts: Tensor) -> Tensor:
    """Return the counts in the wider of the two dtypes, so that float32 ratios do not spoil float64 logits."""
    return counts.to(torch.promote_types(counts.dtype, logits.dtype))


def is_label(labels: Tensor, classes: int) -> Tensor:
    """Boolean one-hot [..., C] of labels [...]."""
    # F.one_hot reads a value back, which vmap refuses.
    return labels.unsqueeze(-1) == torch.arange(classes, device=labels.device)


def pick(values: Tensor, labels: Tensor) -> Tensor:
    """Entry ``labels`` [...] of the last axis of ``values`` [..., C]; other entries may be -inf."""
    return values.gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def per_label(values: Tensor, labels: Tensor) -> Tensor:
    """The value of each row's label: ``values`` [C], ``labels`` [B], result [B]."""
    return values.gather(-1, labels)


def nonzero(x: Tensor) -> Tensor:
    """Replace zeros of ``x`` by one: a divisor for quotients that are 0/1 or discarded where ``x`` is zero."""
    return torch.where(x == 0, torch.ones_like(x), x)


def drop_missing(logits: Tensor, labels: Tensor, missing: Tensor) -> Tensor:
    """Logits [B, C] with -inf at the missing classes [C], except at a row's own label.

    A real row's label is never missing. A padded row (label 0, mask 0) may have a missing label, and -inf there would
    make its masked loss 0 * inf = NaN.
    """
    return logits.masked_fill(missing & ~is_label(labels, logits.shape[-1]), -torch.inf)


def unit(x: Tensor) -> Tensor:
    """x / ||x|| along the last axis; a zero vector stays zero, with a finite gradient."""
    return x / nonzero(torch.linalg.vector_norm(x, dim=-1, keepdim=True))


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine along the last axis; 0 when either vector is zero."""
    return (unit(a) * unit(b)).sum(-1)
