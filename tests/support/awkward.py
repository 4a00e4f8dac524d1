"""Networks of users, none of them simple: what a library meets that takes any ``nn.Module``."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from support.nets import keyed

__all__ = ["REFUSED", "TRAINED", "UNSTACKED", "built"]

FEATURES, CLASSES = 5, 3  # of `support.federations.blobs`


class Net(nn.Module):
    """Two layers; ``between`` works on what the first one gives."""

    def __init__(self, between: Callable[[Any, Tensor], Tensor] = lambda net, h: h, **layers: nn.Module) -> None:
        super().__init__()
        self.hidden = nn.Linear(FEATURES, 8)
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.fc = nn.Linear(8, CLASSES)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(self.between(self, torch.tanh(self.hidden(x))))
        return out


class Centred(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        return h - h.mean(0)


class Scaled(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        return h / len(h)


class Before(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        return h + h.cumsum(0)


class Storing(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        self.last = h
        return h * 2


class Branching(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        return h if h.sum() > 0 else -h


class Counting(nn.Module):
    calls = 0

    def forward(self, h: Tensor) -> Tensor:
        self.calls += 1
        return h


class Caching(nn.Module):
    """What the first call saw shapes all others."""

    mean: Any = None

    def forward(self, h: Tensor) -> Tensor:
        if self.mean is None:
            self.mean = h.mean(0).detach()
        return h - self.mean


class Collecting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, h: Tensor) -> Tensor:
        self.seen.append(h)
        return h


class ByHand(nn.Module):
    """A running mean without BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(8), persistent=False)

    def forward(self, h: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * h.mean(0).detach()
        return h - self.mean


class Clamping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.full((8,), 2.0))

    def forward(self, h: Tensor) -> Tensor:
        self.gain.data.clamp_(max=1.0)
        return h * self.gain


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        ctx.save_for_backward(h)
        return h * h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (h,) = ctx.saved_tensors
        return 2 * h * grad


class Own(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = Square.apply(h)
        return out


class Wide(nn.Module):
    """A layer that insists on float64."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8).double()

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = self.inner(h.double()).to(h.dtype)
        return out


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.phase = nn.Parameter(torch.ones(8, dtype=torch.complex64))

    def forward(self, h: Tensor) -> Tensor:
        return (h * self.phase).real


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.fc = nn.LSTM(1, 8, batch_first=True), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(self.lstm(x.unsqueeze(2))[0][:, -1])
        return out


class Tokens(nn.Module):
    """Whole numbers in, by a cast."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.fc = nn.Embedding(7, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(self.embed(x.round().long() % 7).mean(1))
        return out


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(FEATURES, FEATURES) for _ in range(3))
        self.fc = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + torch.tanh(block(x))
        out: Tensor = self.fc(x)
        return out


class Overwriting(nn.Module):
    """An operation in place on what the gradient of tanh needs."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(8, 8)

    def forward(self, h: Tensor) -> Tensor:
        h = torch.tanh(self.one(h))
        h += 1
        return h


def between(layer: nn.Module) -> Callable[[], nn.Module]:
    """A network with a copy of this layer in the middle: a run of it leaves no trace in the next."""
    return lambda: Net(lambda net, h: net.mid(h), mid=copy.deepcopy(layer))


def shared() -> nn.Module:
    net: Any = Net(lambda n, h: n.two(n.one(h)), one=nn.Linear(8, 8), two=nn.Linear(8, 8))
    net.two.weight = net.one.weight
    return net


def frozen() -> nn.Module:
    net = Net()
    net.hidden.requires_grad_(False)
    return net


def old_weight_norm() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls it deprecated
        return Net(lambda net, h: net.mid(h), mid=nn.utils.weight_norm(nn.Linear(8, 8)))


def pruned() -> nn.Module:
    return Net(lambda net, h: net.mid(h), mid=prune.l1_unstructured(nn.Linear(8, 8), "weight", 0.5))


def run_before() -> nn.Module:
    """A module that has stored an output with its graph before it is given away."""
    net = between(Storing())()
    net(torch.ones(2, FEATURES))
    return net


def reads_input() -> nn.Module:
    return nn.Sequential(nn.ReLU(inplace=True), nn.Linear(FEATURES, CLASSES))


TRAINED: dict[str, Callable[[], nn.Module]] = {  # in every engine
    "stored outputs": between(Storing()), "stored outputs, run before": run_before,
    "in place after a layer": lambda: nn.Sequential(
        nn.Linear(FEATURES, 8), nn.ReLU(inplace=True), nn.Linear(8, CLASSES)
    ),
    "new weight_norm": lambda: between(parametrizations.weight_norm(nn.Linear(8, 8)))(),
    "shared weights": shared, "dropout": between(nn.Dropout(0.4)), "no bias": between(nn.Linear(8, 8, bias=False)),
    "tokens": Tokens, "frozen parameters": frozen, "module list": Listed, "LSTM": Recurrent,
    "BatchNorm, momentum None": between(nn.BatchNorm1d(8, momentum=None)), "BatchNorm": between(nn.BatchNorm1d(8)),
    "GroupNorm": between(nn.GroupNorm(2, 8)), "its own head": lambda: nn.Linear(FEATURES, CLASSES),
    "orthogonal": lambda: between(parametrizations.orthogonal(nn.Linear(8, 8), orthogonal_map="cayley"))(),
}  # fmt: skip
UNSTACKED: dict[str, tuple[Callable[[], nn.Module], str]] = {  # without padding, and what `batched` says
    "rows mixed": (between(Centred()), "Net mixes the rows"),
    "rows mixed in the forward": (lambda: Net(lambda net, h: h - h.mean(0)), "Net mixes the rows"),
    "divided by the rows": (between(Scaled()), "Net mixes the rows"),
    "order of the rows": (between(Before()), "depends on the order of the rows"),
    "branches on data": (between(Branching()), "layer 'mid' (Branching) cannot be stacked"),
    "own autograd function": (between(Own()), "layer 'mid' (Own) cannot be stacked"),
}
# by every engine, and what is said; tests/models/test_prepare.py has layers of torch and heads
REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "counter": (between(Counting()), "changes attribute 'calls' of layer 'mid' (Counting)"),
    "cache": (between(Caching()), "reads attribute 'mean' of layer 'mid' (Caching) which an earlier call has stored"),
    "list that grows": (between(Collecting()), "puts something into attribute 'seen' of layer 'mid' (Collecting)"),
    "constant by hand": (between(ByHand()), "changes buffer 'mid.mean'"),
    "parameter by hand": (between(Clamping()), "changes parameter 'mid.gain'"),
    "input in place": (reads_input, "a layer that changes it in place"),
    "gradient in place": (between(Overwriting()), "no operation in place may touch what a gradient needs"),
    "old weight_norm": (old_weight_norm, "at layer 'mid'; use torch.nn.utils.parametrizations.weight_norm"),
    "pruned": (pruned, "at layer 'mid'; call torch.nn.utils.prune.remove"),
    "float64 layer": (between(Wide()), "at layer 'mid.inner' (Linear)"),
    "complex parameter": (between(Complex()), "at layer 'mid'; hold complex parameters"),
}


def built(make: Callable[[], nn.Module]) -> nn.Module:
    """A network with weights that no generator gave, and no draw of torch's."""
    state = torch.get_rng_state()
    try:
        return keyed(make())
    finally:
        torch.set_rng_state(state)
