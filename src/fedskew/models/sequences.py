"""Networks that read tokens, numbers 0..V-1 in a row, and predict the one that follows.

Samples are stored and handed on as floats, which are the tokens exactly. Recurrence and attention are written from
linear layers: torch's own have no rule for a stack of clients (`torch.vmap`). A single client on a CPU takes torch's
recurrence, which is several times faster.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor

from fedskew.errors import ConfigError, require
from fedskew.fields import AtLeast, AtMost, Within, demand
from fedskew.models.networks import Architecture, Shape, dense, stack

ROWS = 1 << 16  # tokens are checked so many rows at a time


class _Table(nn.Embedding):
    """A table of vectors, which `fedskew.models.networks` fills."""

    def reset_parameters(self) -> None:
        """Nothing: torch's draw would import its compiler on the meta device (seconds)."""


class Tokens(_Table):
    """Numbers of tokens as vectors: [B, ...] -> [B, T, E]. A number beyond the vocabulary counts as its last token."""

    least = 0  # the smallest number that may stand in a row

    @property
    def vocabulary(self) -> int:
        """V."""
        return self.num_embeddings

    def forward(self, x: Tensor) -> Tensor:
        """Look up."""
        return F.embedding(x.flatten(1).long().clamp(0, self.num_embeddings - 1), self.weight)


class Places(_Table):
    """Adds a trained vector for each place: [B, T, E] -> [B, T, E]."""

    def forward(self, x: Tensor) -> Tensor:
        """Add."""
        return x + self.weight


class Recurrent(nn.Module):
    """A long short-term memory: [B, T, E] -> [B, T, H], all states, from zero.

    i, f, o = sigmoid, g = tanh of W x_t + U h + b;  c <- f c + i g;  h <- o tanh(c)
    """

    def __init__(self, before: int, hidden: int) -> None:
        super().__init__()
        self.input = nn.Linear(before, 4 * hidden)
        self.state = nn.Linear(hidden, 4 * hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Run through the sequence."""
        given = x, self.input.weight, self.input.bias, self.state.weight
        if x.device.type != "cpu" or any(map(is_functorch_wrapped_tensor, given)):
            return _recurrence(*given)
        out: Tensor = _Fused.apply(*given)  # type: ignore[no-untyped-call]
        return out


def _recurrence(x: Tensor, w: Tensor, b: Tensor, u: Tensor) -> Tensor:
    """The states of `Recurrent`, step by step: of a stack of clients, or to be differentiated twice."""
    given = F.linear(x, w, b)
    h = c = given.new_zeros(given.shape[0], u.shape[1])
    states = []
    for t in range(given.shape[1]):
        i, f, g, o = (given[:, t] + F.linear(h, u)).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        states.append(h)
    return torch.stack(states, 1)


class _Fused(torch.autograd.Function):
    """`_recurrence` by torch's own, which can be differentiated once; for the second time it is written out."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor, u: Tensor) -> Tensor:
        """Keep torch's graph for the backward pass."""
        ctx.save_for_backward(x, w, b, u)
        wanted = any(ctx.needs_input_grad)
        with torch.set_grad_enabled(wanted):
            ctx.own = tuple(t.detach().requires_grad_(wanted) for t in (x, w, b, u))
            a, weight, bias, state = ctx.own
            zero = x.new_zeros(1, len(x), u.shape[1])
            weights = [weight, state, bias, torch.zeros_like(b)]
            ctx.out = torch._VF.lstm(a, (zero, zero), weights, True, 1, 0.0, True, False, True)[0]
        out: Tensor = ctx.out.detach()
        return out

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients with respect to x, w, b and u, as far as they are needed."""
        given, out, again = ctx.own, ctx.out, torch.is_grad_enabled()
        if again:  # somebody will differentiate these gradients
            given = ctx.saved_tensors
            out = _recurrence(*given)
        needed = [t for t, need in zip(given, ctx.needs_input_grad, strict=True) if need]
        grads = iter(torch.autograd.grad(out, needed, above, create_graph=again, retain_graph=True))
        return tuple(next(grads) if need else None for need in ctx.needs_input_grad)


class Attention(nn.Module):
    """A block of a transformer with the norms in front: x + attention(norm(x)), then x + dense(norm(x)).

    Attention is softmax(Q K' / sqrt(E / heads)) V over all T places: the token that is predicted is not among them.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, E] -> [B, T, E]."""
        batch, length, width = x.shape
        parts = self.mix(self.norm1(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)  # [B, heads, T, E/heads]
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        out: Tensor = x + self.down(torch.relu(self.up(self.norm2(x))))
        return out


class Last(nn.Module):
    """The state at the last place: [B, T, H] -> [B, H]."""

    def forward(self, x: Tensor) -> Tensor:
        """Select."""
        return x[:, -1]


@dataclass(frozen=True)
class CharLSTM(Architecture):
    """A smaller version of LEAF's next-character network: embedding 8, one layer of 64 units; 24528 parameters for 80.

    `layers=2, hidden=256` is LEAF's own size: 817872 parameters. The LSTM has one bias where torch's has two.

    References:
        Caldas et al. 2018, LEAF: A Benchmark for Federated Settings. https://arxiv.org/abs/1812.01097
    """

    name: ClassVar[str] = "char_lstm"
    vocabulary: Annotated[int, AtLeast(2)] = 80
    """number of different tokens"""
    embedding: Annotated[int, AtLeast(1)] = 8
    """size of the token embedding"""
    hidden: Annotated[int, AtLeast(1)] = 64
    """units of each layer"""
    layers: Annotated[int, AtLeast(1), AtMost(64)] = 1
    """recurrent layers"""

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Embedding -> recurrent layers -> last state -> classifier."""
        layers = stack(tokens=Tokens(self.vocabulary, self.embedding))
        for layer in range(self.layers):
            layers[f"lstm{layer + 1}"] = Recurrent(self.hidden if layer else self.embedding, self.hidden)
        layers["last"] = Last()
        return dense(layers, [self.hidden], classes)


@dataclass(frozen=True)
class CharTransformer(Architecture):
    """A small transformer for the next token: width 32, two blocks of four heads; 33232 parameters for 80 of 80.

    References:
        Vaswani et al. 2017, Attention Is All You Need (NeurIPS). https://arxiv.org/abs/1706.03762
    """

    name: ClassVar[str] = "char_transformer"
    vocabulary: Annotated[int, AtLeast(2)] = 80
    """number of different tokens"""
    width: Annotated[int, AtLeast(1)] = 32
    """size of the token embedding"""
    heads: Annotated[int, AtLeast(1)] = 4
    """heads of each block; divides the width"""
    layers: Annotated[int, Within(1, 64)] = 2
    """blocks"""

    def __post_init__(self) -> None:
        super().__post_init__()
        demand(self, "heads", self.width % self.heads == 0, f"divide the width, {self.width}")

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Embedding -> places -> blocks -> norm -> last place -> classifier."""
        layers = stack(tokens=Tokens(self.vocabulary, self.width), places=Places(math.prod(shape), self.width))
        for layer in range(self.layers):
            layers[f"block{layer + 1}"] = Attention(self.width, self.heads)
        layers |= stack(norm=nn.LayerNorm(self.width), last=Last())
        return dense(layers, [self.width], classes)


def require_tokens(module: nn.Module, *parts: Tensor) -> None:
    """Raise ConfigError where a network reads tokens and samples are others: images, or numbers beyond its vocabulary.

    Args:
        module: The network.
        parts: Samples as they are stored, [n, ...] each.
    """
    readers: list[Any] = [layer for layer in module.modules() if hasattr(layer, "vocabulary")]
    if not readers:
        return
    most, least = min(layer.vocabulary for layer in readers), min(layer.least for layer in readers)
    hint = "the options of the network have its vocabulary"
    for x in parts:
        if x.dtype == torch.uint8:
            raise ConfigError("model must have tokens to read; got uint8 images; choose a network for images")
        for at in range(0, len(x), ROWS):
            some = x[at : at + ROWS]
            odd = (some < least) | (some >= most) | (some != some.floor() if some.is_floating_point() else False)
            if bool(odd.any()):
                got = float(some[odd][0])
                require(False, "model", f"have tokens to read, whole numbers {least}..{most - 1}", got, hint)
