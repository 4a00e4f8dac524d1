"""Whether clients of a network can be stacked: `torch.vmap` over rows that are padded to one length.

Padded rows must not show in the real ones. A network that mixes the rows of a mini-batch, such as `h - h.mean(0)`,
would train on them. BatchNorm mixes rows too, but leaves padded ones out (`fedskew.models.layers`).
"""

import copy
import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fedskew import rng, tree
from fedskew.models.layers import drops, written_as
from fedskew.models.prepare import Model
from fedskew.models.probe import probe_rows
from fedskew.models.where import first_line, layer, watched
from fedskew.types import Output, Params

ROWS, PADDED = 4, 2
KNOWN = {
    nn.Sequential, nn.ModuleList, nn.Flatten, nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ReLU, nn.Tanh, nn.Sigmoid,
    nn.GELU, nn.Identity, nn.Dropout, nn.Dropout2d, nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d,
    nn.BatchNorm3d, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d,
}  # fmt: skip


def why_not_stacked(model: Model) -> str:
    """Why clients of this network cannot be stacked; "" where they can.

    Tries two clients with four and six rows on the CPU, in float64 where the network allows it: rows that are padded,
    rows in another order, and gradients of the stack beside those of each client alone.
    """
    if all(map(_known, model.module.modules())):
        return ""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of slow operators: training gives it once more
        return _tried(model)


def _known(module: nn.Module) -> bool:
    """Whether a layer treats each row alone, so that seconds of trying are spared; tests try all networks of these."""
    kind = written_as(type(module))
    whole = not isinstance(module, nn.Flatten) or module.start_dim == 1
    return whole and not module._forward_hooks and (kind in KNOWN or kind.__module__.startswith("fedskew.models."))


def _tried(model: Model) -> str:
    for dtype, tolerance in ((torch.float64, 1e-6), (None, 2e-2)):
        probe = replace(model.to(dtype, "cpu"), narrow=None, unpadded=False)  # which rounds no products
        inputs = probe_rows(probe, ROWS + PADDED)
        for x in inputs:
            try:
                _outputs(probe, x[:ROWS])
            except Exception:  # of another dtype than the network wants
                continue
            return _mixed(probe, x, tolerance) or _unlike(probe, x, tolerance)
    return ""  # it cannot be tried; training will say why


def _outputs(model: Model, x: Tensor, real: int | None = None) -> tuple[Output, Params]:
    """A training pass over rows of which the first `real` are real; None: all."""
    mask = (torch.arange(len(x)) < (len(x) if real is None else real)).to(next(iter(model.params.values())).dtype)
    return model.forward(model.params, model.buffers, x, mask, train=True, key=rng.key(0, "probe"))


def _near(a: Tensor, b: Tensor, tolerance: float) -> bool:
    if a.shape != b.shape:
        return False
    a, b = a.double(), b.double()
    both = torch.isfinite(a) & torch.isfinite(b)
    size = float(a[both].abs().max()) if both.any() else 0.0
    return torch.equal(a.isfinite(), b.isfinite()) and bool(((a - b)[both].abs() <= tolerance * (1 + size)).all())


def _mixed(model: Model, x: Tensor, tolerance: float) -> str:
    """Whether padded rows, or the order of the rows, show in the outputs."""
    plain, padded = ((x[:ROWS], None), (x, ROWS))
    (alone, buffers), (longer, after) = (_outputs(model, *rows) for rows in (plain, padded))
    same = all(_near(a, b[:ROWS], tolerance) for a, b in zip(alone, longer, strict=True))
    if not (same and all(_near(buffers[n], after[n], tolerance) for n in buffers)):
        return f"{type(model.module).__name__} mixes the rows of a mini-batch, so padded rows would be trained on"
    still = model.clone()
    for each in still.module.modules():
        if drops(each):
            each.p = 0.0  # type: ignore[assignment]
    order = torch.arange(ROWS).flip(0)
    (straight, _), (turned, _) = (_outputs(still, rows) for rows in (x[:ROWS], x[order]))
    if not all(_near(a[order], b, tolerance) for a, b in zip(straight, turned, strict=True)):
        return f"the forward of {type(model.module).__name__} depends on the order of the rows of a mini-batch"
    return ""


def _unlike(model: Model, x: Tensor, tolerance: float) -> str:
    """Whether gradients of a padded stack can be taken, and are those of each client alone."""
    clients = [copy.copy(model.params), {n: p * 1.1 for n, p in model.params.items()}]
    real, keys = torch.tensor([ROWS, ROWS + PADDED]), torch.stack([rng.key(0, "probe", k) for k in range(2)])
    masks = (torch.arange(len(x)) < real.unsqueeze(1)).to(next(iter(model.params.values())).dtype)

    def objective(params: Params, rows: Tensor, mask: Tensor, key: Tensor) -> tuple[Tensor, Any]:
        out, buffers = model.forward(params, model.buffers, rows, mask, train=True, key=key)
        return (out.logits.square().sum(1) * mask).sum() + (out.features.square().sum(1) * mask).sum(), buffers

    rows = torch.stack([x, x.flip(0)])
    with watched(model.module) as inside:
        try:
            got, buffers = torch.vmap(torch.func.grad(objective, has_aux=True))(tree.stack(clients), rows, masks, keys)
        except Exception as error:  # vmap has no rule for an operator, or the forward reads a value
            return f"{layer(model.module, inside[-1])} cannot be stacked ({first_line(error)})"
    for k, params in enumerate(clients):
        n = int(real[k])
        try:
            want, after = torch.func.grad(objective, has_aux=True)(params, rows[k, :n], masks[k, :n], keys[k])
        except Exception:
            return ""  # nothing to compare with
        pairs = [(got[m][k], want[m]) for m in want] + [(buffers[m][k], after[m]) for m in after if after[m].dim()]
        if not all(_near(b, a, 10 * tolerance) for a, b in pairs):
            return f"the forward of {type(model.module).__name__} gives other gradients in a stack of clients"
    return ""
