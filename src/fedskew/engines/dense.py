"""Dense networks on stacks of clients: the forward and the backward pass, written out as stacked products.

A network is a chain of pieces. Each knows its own way forward, and the way back of a slope. What becomes of a
parameter's gradient is the business of a `Sink`: a step may want the gradient itself, or only its update, which a
product adds to the parameter without the gradient ever being written. `fedskew.engines.written` and
`fedskew.engines.around` have the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from fedskew import rng
from fedskew.models.layers import written_as
from fedskew.models.prepare import Model
from fedskew.models.projection import Projected
from fedskew.types import Params

__all__ = ["Dense", "Gradients", "Sink", "Updates", "along", "taken"]

DTYPES = (torch.float32, torch.float64)
Note = Any  # what a piece keeps of its way forward


class Sink(Protocol):
    """Takes what the way back finds for each parameter."""

    def product(self, name: str, a: Tensor, b: Tensor) -> None:
        """The gradient of a weight is a @ b: [K, out, B] and [K, B, in]."""
        ...

    def vector(self, name: str, slope: Tensor) -> None:
        """The gradient of a bias or a scale, [K, out]."""
        ...


class Gradients:
    """Keeps the gradients themselves."""

    def __init__(self, params: Params) -> None:
        """``params`` [K, ...]."""
        self.params = params
        self.found: Params = {}

    def of(self, name: str) -> Tensor:
        """The gradient of a parameter; 0 for one that is not the network's, which a component added."""
        return self.found[name] if name in self.found else torch.zeros_like(self.params[name])

    def product(self, name: str, a: Tensor, b: Tensor) -> None:
        """Of a weight."""
        self.found[name] = torch.bmm(a, b)

    def vector(self, name: str, slope: Tensor) -> None:
        """Of a bias or a scale."""
        self.found[name] = slope


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
        """Of a bias or a scale."""
        self._decayed(name).add_(slope)


def along(each: Tensor, p: Tensor) -> Tensor:
    """One number a client, [K], in the shape that multiplies a parameter [K, ...]."""
    return each.view(-1, *(1 for _ in p.shape[1:]))


class Linear(NamedTuple):
    """x W' + b; it notes x."""

    weight: str  # [out, in]
    bias: str | None

    def forward(self, params: Params, x: Tensor, keys: Tensor) -> tuple[Tensor, Note]:
        """Rows [K, B, in] to [K, B, out]."""
        turned = params[self.weight].transpose(1, 2)
        if self.bias is None:
            return torch.bmm(x, turned), x
        return torch.baddbmm(params[self.bias].unsqueeze(1), x, turned), x

    def back(self, params: Params, slope: Tensor, x: Note, sink: Sink, further: bool) -> Tensor:
        """The slope at the input, where it is wanted."""
        behind = torch.bmm(slope, params[self.weight]) if further else slope  # before the sink writes into the weight
        sink.product(self.weight, slope.transpose(1, 2), x)
        if self.bias is not None:
            sink.vector(self.bias, slope.sum(1))
        return behind


class Norm(NamedTuple):
    """LayerNorm over the last axis; it notes the normalised rows and 1 / sqrt(var + eps)."""

    width: int
    eps: float
    weight: str | None
    bias: str | None

    def forward(self, params: Params, x: Tensor, keys: Tensor) -> tuple[Tensor, Note]:
        """(x - mean) / sqrt(var + eps) * weight + bias, rows [K, B, width]."""
        normal, _, inverse = torch.native_layer_norm(x, [self.width], None, None, self.eps)
        out = normal if self.weight is None else normal * params[self.weight].unsqueeze(1)
        return (out if self.bias is None else out + params[self.bias].unsqueeze(1)), (normal, inverse)

    def back(self, params: Params, slope: Tensor, note: Note, sink: Sink, further: bool) -> Tensor:
        """The slope at the input, where it is wanted. torch's kernel has an argument that traced steps cannot have."""
        normal, inverse = note
        behind = slope if self.weight is None else slope * params[self.weight].unsqueeze(1)
        if self.bias is not None:
            sink.vector(self.bias, slope.sum(1))
        if self.weight is not None:
            sink.vector(self.weight, (slope * normal).sum(1))
        if not further:
            return behind
        along_rows = (behind * normal).mean(2, keepdim=True)
        slope = (behind - behind.mean(2, keepdim=True) - normal * along_rows) * inverse
        return slope


class Activation(NamedTuple):
    """An elementwise function. It notes its output, or its input where the slope is a function of that."""

    kind: type[nn.Module]
    owns: bool  # nobody else reads its input, so it may be written into
    form: str = "none"  # GELU's

    def forward(self, params: Params, x: Tensor, keys: Tensor) -> tuple[Tensor, Note]:
        """Elementwise."""
        if self.kind is nn.GELU:
            return nn.functional.gelu(x, approximate=self.form), x
        plain, into, _ = FUNCTIONS[self.kind]
        out: Tensor = into(x) if self.owns else plain(x)
        return out, out

    def back(self, params: Params, slope: Tensor, note: Note, sink: Sink, further: bool) -> Tensor:
        """The slope at the input."""
        if self.kind is nn.GELU:
            gelu: Tensor = torch.ops.aten.gelu_backward.default(slope, note, approximate=self.form)
            return gelu
        behind: Tensor = FUNCTIONS[self.kind][2](slope, note)
        return behind


FUNCTIONS: dict[Any, tuple[Any, Any, Any]] = {  # the function, into its argument, and back
    nn.ReLU: (torch.relu, torch.relu_, lambda slope, out: torch.ops.aten.threshold_backward.default(slope, out, 0)),
    nn.Tanh: (torch.tanh, torch.tanh_, torch.ops.aten.tanh_backward.default),
    nn.Sigmoid: (torch.sigmoid, torch.sigmoid_, torch.ops.aten.sigmoid_backward.default),
}


class Dropout(NamedTuple):
    """The draws of the model's own layer (`fedskew.models.layers`); it notes what each element is multiplied by."""

    rate: float
    draw: int  # which dropout of the pass it is, from 1

    def forward(self, params: Params, x: Tensor, keys: Tensor) -> tuple[Tensor, Note]:
        """x * (u >= rate) / (1 - rate), u drawn from each client's key and the number of the draw."""
        keep = rng.uniform(rng.fold(keys, self.draw)[:, None, None], tuple(x.shape[1:])) >= self.rate
        factor = keep.to(x.dtype) * (1 / (1 - self.rate) if self.rate < 1 else 0.0)
        return x * factor, factor

    def back(self, params: Params, slope: Tensor, note: Note, sink: Sink, further: bool) -> Tensor:
        """The slope at the input."""
        behind: Tensor = slope * note
        return behind


Piece = Linear | Norm | Activation | Dropout


class Dense(NamedTuple):
    """A network of linear layers, one after another, of which the last is the head."""

    pieces: tuple[Piece, ...]
    first: int  # the first piece that has parameters: no slope goes back beyond it

    @classmethod
    def of(cls, model: Model) -> Dense | None:
        """The network as such; None where it is anything else."""
        flat = _flat(model.module, "")
        if flat is None or model.narrow is not None or model.buffers or _dtype(model) not in DTYPES:
            return None
        pieces: list[Piece] = []
        draws, wide = 0, len(model.shape) > 1  # rows are tensors until they are flattened
        for name, one in flat:
            kind = written_as(type(one))
            if kind is nn.Identity or (kind is nn.Dropout and not one.p):
                continue
            if kind is nn.Flatten:
                if (one.start_dim, one.end_dim) != (1, -1):
                    return None
                wide = False
                continue
            draws += kind is nn.Dropout
            piece = _piece(name, one, kind, pieces, draws)
            if piece is None or (wide and isinstance(piece, Linear | Norm)):
                return None
            pieces.append(piece)
        names = {name for piece in pieces for name in names_of(piece)}
        if not pieces or wide or names != set(model.params):
            return None
        last = pieces[-1]
        if not isinstance(last, Linear) or last.weight != _weight(model):
            return None
        return cls(tuple(pieces), next(i for i, piece in enumerate(pieces) if names_of(piece)))

    @torch.no_grad()
    def forward(self, params: Params, x: Tensor, keys: Tensor) -> tuple[Tensor, list[Note]]:
        """A training pass of K clients.

        Args:
            params: of each client, [K, ...].
            x: rows [K, B, F0]; they are not written into.
            keys: of the dropouts, [K].

        Returns:
            Logits [K, B, C], and a note of each piece; the last note is what enters the head.
        """
        notes: list[Note] = []
        for piece in self.pieces:
            x, note = piece.forward(params, x, keys)
            notes.append(note)
        return x, notes

    @torch.no_grad()
    def back(
        self, params: Params, slope: Tensor, notes: list[Note], sink: Sink, features: Tensor | None = None
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


def names_of(piece: Piece) -> list[str]:
    """Names of a piece's parameters."""
    return [n for n in (piece.weight, piece.bias) if n] if isinstance(piece, Linear | Norm) else []


def _piece(name: str, one: Any, kind: type[nn.Module], before: Sequence[Piece], draw: int) -> Piece | None:
    """A layer as a piece; None where it is of no known kind."""
    prefix = f"{name}." if name else ""
    weight, bias = (f"{prefix}{n}" if getattr(one, n, None) is not None else None for n in ("weight", "bias"))
    if kind is nn.Linear:
        return Linear(f"{prefix}weight", bias)
    if kind is nn.LayerNorm:
        return Norm(one.normalized_shape[-1], one.eps, weight, bias) if len(one.normalized_shape) == 1 else None
    if kind is nn.Dropout:
        return Dropout(float(one.p), draw)
    if kind in FUNCTIONS or kind is nn.GELU:
        owns = bool(before) and isinstance(before[-1], Linear | Dropout)
        return Activation(kind, owns, getattr(one, "approximate", "none"))
    return None


def _flat(module: nn.Module, name: str) -> Sequence[tuple[str, Any]] | None:
    """(name, layer) of a chain of layers, in the order in which they are called; None where hooks may do more."""
    hooks = len(module._forward_hooks) + len(module._forward_pre_hooks) - hasattr(module, "fedskew_call")
    if hooks or getattr(module, "parametrizations", None):
        return None
    if type(module) is Projected:
        layers = (("hidden", module.hidden), ("", nn.ReLU()), ("out", module.out), ("classifier", module.classifier))
        return _chain(layers, name)
    if written_as(type(module)) is not nn.Sequential:
        return [(name, module)]
    return _chain(module._modules.items(), name)


def _chain(layers: Iterable[tuple[str, nn.Module | None]], name: str) -> Sequence[tuple[str, Any]] | None:
    found: list[tuple[str, Any]] = []
    for local, child in layers:
        inner = None if child is None else _flat(child, f"{name}.{local}" if name else local)
        if inner is None:
            return None
        found += inner
    return found


def _dtype(model: Model) -> torch.dtype:
    return next(iter(model.params.values())).dtype


def _weight(model: Model) -> str:
    return f"{model.head}.weight" if model.head else "weight"
