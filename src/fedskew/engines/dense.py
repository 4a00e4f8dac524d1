"""Dense networks on stacks of clients: the forward and the backward pass, written out as stacked products.

A network is a chain of pieces. Each knows its own way forward, and the way back of a slope. What becomes of a
parameter's gradient is the business of a `Sink`: a step may want the gradient itself, or only its update, which a
product adds to the parameter without the gradient ever being written. `fedskew.engines.written`
has the steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedskew.models.layers import written_as
from fedskew.models.prepare import Model
from fedskew.models.projection import Projected
from fedskew.types import Params


class Gradients:
    """Keeps the gradients themselves."""

    def __init__(self, params: Params) -> None:
        """``params`` [K, ...]."""
        self.params = params
        self.gradients: Params = {}

    def of(self, name: str) -> Tensor:
        """The gradient of a parameter; 0 for one that is not the network's, which a component added."""
        return self.gradients[name] if name in self.gradients else torch.zeros_like(self.params[name])

    def product(self, name: str, a: Tensor, b: Tensor) -> None:
        """The gradient of a weight is a @ b: [K, out, B] and [K, B, in]."""
        self.gradients[name] = torch.bmm(a, b)

    def vector(self, name: str, slope: Tensor) -> None:
        """The gradient of a bias, [K, out]."""
        self.gradients[name] = slope


class Updates:
    """Turns parameters, in memory of their own, into shrink w + slope, for slopes that are scaled by -lr."""

    def __init__(self, params: Params, shrink: Tensor | None) -> None:
        """``shrink`` [K] is 1 - lr decay; None without weight decay."""
        self.params, self.shrink = params, shrink
        self.moved: set[str] = set()

    def of(self, name: str) -> Tensor:
        """A parameter after the step; one that is not the network's, which a component added, only decays."""
        return self.params[name] if name in self.moved else self._decayed(name)

    def _decayed(self, name: str) -> Tensor:
        p = self.params[name]
        self.moved.add(name)
        return p if self.shrink is None else p.mul_(along(self.shrink, p))

    def product(self, name: str, a: Tensor, b: Tensor) -> None:
        """Of a weight."""
        self._decayed(name).baddbmm_(a, b)

    def vector(self, name: str, slope: Tensor) -> None:
        """Of a bias."""
        self._decayed(name).add_(slope)


Sink = Gradients | Updates  # takes what the way back gives for each parameter


def along(each: Tensor, p: Tensor) -> Tensor:
    """One number a client, [K], in the shape that multiplies a parameter [K, ...]."""
    return each.view(-1, *(1 for _ in p.shape[1:]))


class Linear(NamedTuple):
    """x W' + b; it notes x."""

    weight: str  # [out, in]
    bias: str | None

    def forward(self, params: Params, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rows [K, B, in] to [K, B, out]."""
        turned = params[self.weight].transpose(1, 2)
        if self.bias is None:
            return torch.bmm(x, turned), x
        return torch.baddbmm(params[self.bias].unsqueeze(1), x, turned), x

    def back(self, params: Params, slope: Tensor, x: Tensor, sink: Sink, further: bool) -> Tensor:
        """The slope at the input, where it is wanted."""
        behind = torch.bmm(slope, params[self.weight]) if further else slope  # before the sink writes into the weight
        sink.product(self.weight, slope.transpose(1, 2), x)
        if self.bias is not None:
            sink.vector(self.bias, slope.sum(1))
        return behind


class Activation(NamedTuple):
    """An elementwise function; it notes its output."""

    kind: type[nn.Module]
    owns: bool  # nobody else reads its input, so it may be written into

    def forward(self, params: Params, x: Tensor) -> tuple[Tensor, Tensor]:
        """Elementwise."""
        plain, into, _ = FUNCTIONS[self.kind]
        out: Tensor = into(x) if self.owns else plain(x)
        return out, out

    def back(self, params: Params, slope: Tensor, out: Tensor, sink: Sink, further: bool) -> Tensor:
        """The slope at the input."""
        behind: Tensor = FUNCTIONS[self.kind][2](slope, out)
        return behind


FUNCTIONS: dict[Any, tuple[Any, Any, Any]] = {  # the function, into its argument, and back
    nn.ReLU: (torch.relu, torch.relu_, lambda slope, out: torch.ops.aten.threshold_backward.default(slope, out, 0)),
    nn.Tanh: (torch.tanh, torch.tanh_, torch.ops.aten.tanh_backward.default),
    nn.Sigmoid: (torch.sigmoid, torch.sigmoid_, torch.ops.aten.sigmoid_backward.default),
}


class Dense(NamedTuple):
    """A network of linear layers and activations, one after another, of which the last is the head."""

    pieces: tuple[Linear | Activation, ...]
    first: int  # the first linear layer: no slope goes back beyond it

    @classmethod
    def of(cls, model: Model) -> Dense | None:
        """The network as such; None where it is anything else."""
        layers = _chain(model.module, "")
        kinds = {p.dtype for p in model.params.values()}
        if layers is None or model.narrow is not None or model.buffers or not kinds <= {torch.float32, torch.float64}:
            return None
        pieces: list[Linear | Activation] = []
        flat = len(model.shape) == 1  # rows are tensors until they are flattened
        for name, layer in layers:
            kind, last = written_as(type(layer)), pieces[-1] if pieces else None
            if kind is nn.Linear and flat:
                prefix = f"{name}." if name else ""
                pieces.append(Linear(f"{prefix}weight", None if layer.bias is None else f"{prefix}bias"))
            elif kind in FUNCTIONS:
                pieces.append(Activation(kind, isinstance(last, Linear)))
            elif kind is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
                flat = True
            elif not (kind is nn.Identity or (kind is nn.Dropout and not layer.p)):
                return None
        named = {name for piece in pieces if isinstance(piece, Linear) for name in (piece.weight, piece.bias) if name}
        head = pieces[-1] if pieces else None
        weight = f"{model.head}.weight" if model.head else "weight"
        whole = named == set(model.params) and isinstance(head, Linear) and head.weight == weight
        return cls(tuple(pieces), next(i for i, p in enumerate(pieces) if isinstance(p, Linear))) if whole else None

    @torch.no_grad()
    def forward(self, params: Params, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """A training pass of K clients.

        Args:
            params: of each client, [K, ...].
            x: rows [K, B, F0]; they are not written into.

        Returns:
            Logits [K, B, C], and a note of each piece; the last note is what enters the head.
        """
        notes: list[Tensor] = []
        for piece in self.pieces:
            x, note = piece.forward(params, x)
            notes.append(note)
        return x, notes

    @torch.no_grad()
    def back(
        self, params: Params, slope: Tensor, notes: list[Tensor], sink: Sink, features: Tensor | None = None
    ) -> None:
        """The way back of a slope at the logits [K, B, C], and of one at the features [K, B, F] where there is one."""
        end = len(self.pieces) - 1
        for i in range(end, self.first - 1, -1):
            slope = self.pieces[i].back(params, slope, notes[i], sink, i > self.first)
            if i == end and features is not None and i > self.first:
                slope = slope + features


def taken(rows: Tensor, at: Tensor) -> Tensor:
    """Rows [R, ...] at ``at`` [K, B], flat: [K, B, F0]. Three times as fast as by an index of two axes."""
    return rows.index_select(0, at.reshape(-1)).view(*at.shape, -1)


def _chain(module: nn.Module, name: str) -> list[tuple[str, Any]] | None:
    """(name, layer) of a chain of layers, in the order in which they are called; None where hooks may do more."""
    hooks = len(module._forward_hooks) + len(module._forward_pre_hooks) - hasattr(module, "fedskew_call")
    if hooks or getattr(module, "parametrizations", None):
        return None
    layers: Iterable[tuple[str, nn.Module | None]] = module._modules.items()
    if type(module) is Projected:
        layers = (("hidden", module.hidden), ("", nn.ReLU()), ("out", module.out), ("classifier", module.classifier))
    elif written_as(type(module)) is not nn.Sequential:
        return [(name, module)]
    chain: list[tuple[str, Any]] = []
    for local, child in layers:
        inner = None if child is None else _chain(child, f"{name}.{local}" if name else local)
        if inner is None:
            return None
        chain += inner
    return chain
