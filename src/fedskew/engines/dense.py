"""Plain steps of dense networks on stacks of clients, their gradients written out.

A step by vmap and the tape is some sixty operators for logistic regression, here it is a dozen: stacked products of a
client's rows with its weights, and the update is a product into the weights. So a stack may have any width without
being traced. What is written out is the network, cross-entropy and plain SGD; a method that brings another loss,
corrects gradients, learns at every step, or has another local step takes the general step (`fedskew.engines.batched`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedskew import rng
from fedskew.engines.guard import unguarded
from fedskew.engines.jobs import Place
from fedskew.engines.stacks import positions
from fedskew.method import Method
from fedskew.models.layers import written_as
from fedskew.models.prepare import Model
from fedskew.shared.parts import CrossEntropy
from fedskew.shared.steps import SGD
from fedskew.types import Params

__all__ = ["Dense", "Layer", "Steps", "descend", "plain", "steps_of"]

ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.Sigmoid)
DTYPES = (torch.float32, torch.float64)


class Layer(NamedTuple):
    """A linear layer, and what follows it: activations and dropouts, each with its rate, in their order."""

    weight: str  # [out, in]
    bias: str | None
    after: tuple[tuple[type[nn.Module], float], ...]


class Steps(NamedTuple):
    """What the steps of a stack read, time first, so that the first clients of a step lie side by side."""

    at: Tensor  # [T, K, B] rows of the stack, 0 for padding
    y: Tensor  # [T, K, B, 1]
    share: Tensor  # [T, K, B] of each row in its client's mean; 0 for padding
    keys: Tensor  # [T, K]
    widths: list[int]  # [T] clients that have not ended: the first of the stack


def plain(method: Method) -> bool:
    """Whether a local step is plain SGD on plain cross-entropy, and nothing looks in between."""
    bare = unguarded(method)
    losses, local = bare.having("loss"), bare.local
    simple = type(local) is SGD and not local.momentum and not local.clip
    return simple and list(map(type, losses)) == [CrossEntropy] and not (bare.having("correct") + bare.having("learn"))


class Dense(NamedTuple):
    """A network of linear layers, one after another, of which the last is the head."""

    first: tuple[tuple[type[nn.Module], float], ...]  # what stands before the first linear layer
    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, model: Model) -> Dense | None:
        """The network as such; None where it is anything else."""
        flat = _flat(model.module, "")
        if flat is None or model.narrow is not None or model.buffers or _dtype(model) not in DTYPES:
            return None
        if len(model.shape) > 1 and not any(isinstance(one, nn.Flatten) for _, one in flat):
            return None
        first: list[tuple[type[nn.Module], float]] = []
        layers: list[Layer] = []
        for name, one in flat:
            kind = written_as(type(one))
            if kind is nn.Linear:
                prefix = f"{name}." if name else ""
                layers.append(Layer(f"{prefix}weight", f"{prefix}bias" if one.bias is not None else None, ()))
            elif kind in ACTIVATIONS or kind is nn.Dropout:
                it = (kind, float(getattr(one, "p", 0.0)))
                if layers:
                    layers[-1] = layers[-1]._replace(after=(*layers[-1].after, it))
                else:
                    first.append(it)
            elif kind is nn.Flatten and not layers and (one.start_dim, one.end_dim) == (1, -1):
                continue
            elif kind is not nn.Identity:
                return None
        names = {name for layer in layers for name in (layer.weight, layer.bias) if name}
        ends = bool(layers) and not layers[-1].after and layers[-1].weight == _weight(model)
        return cls(tuple(first), tuple(layers)) if ends and names == set(model.params) else None

    @torch.no_grad()
    def forward(self, params: Params, x: Tensor, keys: Tensor) -> tuple[Tensor, list[Tensor], list[list[Tensor]]]:
        """(logits [K, B, C], inputs of the linear layers, and what each activation or dropout needs to go back)."""
        draw = 0
        inputs: list[Tensor] = []
        kept: list[list[Tensor]] = []
        for i, after in enumerate((self.first, *(layer.after for layer in self.layers))):
            if i:
                weight, bias = self.layers[i - 1][:2]
                inputs.append(x)
                turned = params[weight].transpose(1, 2)
                x = torch.bmm(x, turned) if bias is None else torch.baddbmm(params[bias].unsqueeze(1), x, turned)
            notes: list[Tensor] = []
            for kind, rate in after:
                if kind is nn.Dropout:
                    if not rate:
                        notes.append(x)
                        continue
                    draw += 1
                    keep = rng.uniform(rng.fold(keys, draw)[:, None, None], tuple(x.shape[1:])) >= rate
                    notes.append(keep.to(x.dtype) * (1 / (1 - rate) if rate < 1 else 0.0))
                    x = x * notes[-1]
                else:
                    x = FORWARD[kind](x.clone() if notes else x)
                    notes.append(x)
            kept.append(notes)
        return x, inputs, kept

    def back(self, i: int, slope: Tensor, kept: list[list[Tensor]]) -> Tensor:
        """The slope before what follows linear layer ``i``, from that behind it."""
        for (kind, rate), note in zip(self.layers[i].after[::-1], kept[i + 1][::-1], strict=True):
            if kind is not nn.Dropout:
                slope = BACKWARD[kind](slope, note)
            elif rate:
                slope = slope * note
        return slope


FORWARD: dict[Any, Any] = {nn.ReLU: torch.relu_, nn.Tanh: torch.tanh_, nn.Sigmoid: torch.sigmoid_}
BACKWARD: dict[Any, Any] = {
    nn.ReLU: lambda slope, out: torch.ops.aten.threshold_backward.default(slope, out, 0),
    nn.Tanh: torch.ops.aten.tanh_backward.default,
    nn.Sigmoid: torch.ops.aten.sigmoid_backward.default,
}


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
    rows = x.flatten(1)
    scaled = (steps.share * -lr[:, None]).unsqueeze(3)
    minus = torch.full((1, 1, 1), -1.0, dtype=x.dtype).expand(*steps.y.shape[1:])
    right = torch.zeros(steps.y.shape, dtype=x.dtype)
    shrink = 1 - lr * decay
    here, last = params, -1
    for t, width in enumerate(steps.widths):
        if width != last:
            here, last = {name: p[:width] for name, p in params.items()}, width
        out, inputs, kept = net.forward(here, rows[steps.at[t, :width]], steps.keys[t, :width])
        slope = torch.log_softmax(out, 2)
        torch.gather(slope, 2, steps.y[t, :width], out=right[t, :width])
        slope.exp_().scatter_add_(2, steps.y[t, :width], minus[:width]).mul_(scaled[t, :width])
        for i in reversed(range(len(net.layers))):
            weight, bias, _ = net.layers[i]
            slope = net.back(i, slope, kept)
            behind = torch.bmm(slope, here[weight]) if i else slope
            if decay:
                here[weight].mul_(shrink[:width, None, None])
            here[weight].baddbmm_(slope.transpose(1, 2), inputs[i])
            if bias is not None:
                if decay:
                    here[bias].mul_(shrink[:width, None])
                here[bias].add_(slope.sum(1))
            slope = behind
    return -(right.squeeze(3) * steps.share).sum(2).T


def steps_of(places: Sequence[Place], y: Tensor, dtype: torch.dtype) -> Steps:
    """What the steps of a sorted stack read; ``y`` are the labels of its rows."""
    padded = torch.from_numpy(positions(places)[:, :, 0]).transpose(0, 1).contiguous()
    real = padded >= 0
    at = padded.clamp_(min=0)
    labels = torch.where(real, y[at], 0).unsqueeze(3)
    share = real.to(dtype)
    share /= share.sum(2, keepdim=True).clamp_(min=1)
    keys = torch.nn.utils.rnn.pad_sequence([place.keys[:, 0] for place in places])
    widths = real.any(2).sum(1).tolist()
    return Steps(at, labels, share, keys, widths)


def _flat(module: nn.Module, name: str) -> Sequence[tuple[str, Any]] | None:
    """(name, layer) of a chain of layers, in the order in which they are called; None where hooks may do more."""
    hooks = len(module._forward_hooks) + len(module._forward_pre_hooks) - hasattr(module, "fedskew_call")
    if hooks or getattr(module, "parametrizations", None):
        return None
    if written_as(type(module)) is not nn.Sequential:
        return [(name, module)]
    found: list[tuple[str, Any]] = []
    for local, child in module._modules.items():
        inner = None if child is None else _flat(child, f"{name}.{local}" if name else local)
        if inner is None:
            return None
        found += inner
    return found


def _dtype(model: Model) -> torch.dtype:
    return next(iter(model.params.values())).dtype


def _weight(model: Model) -> str:
    return f"{model.head}.weight" if model.head else "weight"
