"""What networks are made of; `fedskew.models.architectures` has them and their table."""

import copy
import math
from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from fedskew import rng
from fedskew.errors import ConfigError, require
from fedskew.fields import AtLeast, Checked, omit_if_default

Shape = tuple[int, ...]
Layers = OrderedDict[str, nn.Module]  # in their order, by name
Init = Literal["uniform", "kaiming_normal", "glorot_uniform"]


@dataclass(frozen=True)
class Architecture(Checked):
    """Options of a network, a value that `fedskew.models.build` turns into an nn.Module.

    Derive a frozen dataclass with `build`. Its fields are its options; `projection` is an option of every network.

    Attributes:
        name: Name in the table `MODELS` and in records.
        head: Name of the classifier layer.
        init: Rule for the initial weights: "uniform", "kaiming_normal" or "glorot_uniform".
    """

    name: ClassVar[str]
    head: ClassVar[str] = "fc"  # name of the classifier layer
    init: ClassVar[Init] = "uniform"  # of convolution and linear weights

    projection: Annotated[int, AtLeast(0)] | Literal["linear"] | None = omit_if_default()
    """width of a projection head F -> F -> ReLU -> width in front of the classifier; linear: one layer F -> C; 0: none;
    unset: as the method needs, 256 for MOON, linear for FedETF and none for others"""

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Make the network; `fedskew.models.build` then gives it keyed weights.

        Args:
            shape: Shape of one sample: (channels, height, width) or (features,).
            classes: Number of classes.

        Returns:
            The network.

        Raises:
            ConfigError: The network cannot take the shape.
        """
        raise NotImplementedError

    def settled(self) -> "Architecture":
        """The same with what is looked up elsewhere written down, as a run records it. Raises ConfigError."""
        return self

    def made(self, shape: Shape, classes: int, seed: int) -> nn.Module | None:
        """The network with weights of its own. None: they are keyed, in what `build` makes."""
        return None


def image_shape(name: str, shape: Shape) -> tuple[int, int, int]:
    """The shape (channels, height, width). Raises ConfigError for the shape of a table."""
    hint = f"model {name!r} needs images; for tables use 'logistic', 'mlp' or '2nn'"
    require(len(shape) == 3, "shape", "be (channels, height, width)", shape, hint)
    return shape[0], shape[1], shape[2]


def allocate(module: nn.Module, device: torch.device | str = "cpu", dtype: torch.dtype | None = None) -> nn.Module:
    """Give the layers of a network on the meta device memory without values, in place; the network itself.

    It does what `to_empty` does. That one allocates by `torch.empty_like`, which for tensors of the meta device
    imports torch's symbolic shapes and sympy (0.7 s).

    Args:
        module: Built under `torch.device("meta")`.
        device: Where the memory is.
        dtype: Of the parameters; None keeps theirs.
    """

    def room(t: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        return torch.empty(t.shape, dtype=dtype or t.dtype, device=device)

    for layer in module.modules():
        for name, parameter in list(layer.named_parameters(recurse=False)):
            setattr(layer, name, nn.Parameter(room(parameter, dtype), parameter.requires_grad))
        for name, buffer in list(layer.named_buffers(recurse=False)):
            setattr(layer, name, room(buffer))
    return module


def width_after(name: str, layers: Layers, shape: Shape) -> int:
    """Number of features that the layers return, found by passing one row of zeros through a copy of them.

    The meta device would need no pass, but a convolution there imports torch's symbolic shapes and compiler (2 s).

    Args:
        name: Name of the network in the error message.
        layers: Named layers.
        shape: Shape of one sample.

    Returns:
        Number of features.

    Raises:
        ConfigError: The images are too small for the layers.
    """
    trunk = allocate(copy.deepcopy(nn.Sequential(layers))).eval()
    try:
        with torch.no_grad():
            return int(trunk(torch.zeros(1, *shape, device="cpu")).shape[1])
    except RuntimeError as error:
        if "memory" in str(error):  # too large, rather
            raise
        hint = "try 'convnet', 'resnet20' or 'mlp'"
        raise ConfigError(f"shape must be large enough for model {name!r}; got {shape!r}; {hint}") from None


def stack(**layers: nn.Module) -> Layers:
    """Named layers, in order."""
    return OrderedDict(layers)


def dense(layers: Layers, widths: list[int], classes: int, bias: bool = True) -> nn.Sequential:
    """Add linear layers with ReLU and the classifier `fc`.

    Args:
        layers: Layers that come before.
        widths: Number of features that enter, then the width of each hidden layer.
        classes: Number of classes.
        bias: Whether the classifier has a bias.

    Returns:
        The whole network.
    """
    for i, (before, after) in enumerate(pairwise(widths), start=1):
        layers[f"hidden{i}"] = nn.Linear(before, after)
        layers[f"hidden{i}_relu"] = nn.ReLU()
    layers["fc"] = nn.Linear(widths[-1], classes, bias=bias)
    return nn.Sequential(layers)


@torch.no_grad()
def initialise(module: nn.Module, init: Init, seed: int, prefix: str = "") -> None:
    """Give every layer its keyed weights. `prefix` stands before the layers' names in the keys.

    Raises:
        ConfigError: a kind of layer without a rule.
    """
    for name, layer in module.named_modules(prefix=prefix):
        if isinstance(layer, nn.Linear | _ConvNd):
            _initialise_weights(layer, name, init, seed)
        elif isinstance(layer, nn.Embedding):
            key = rng.key(seed, "model", f"{name}.weight")
            layer.weight.copy_(rng.normal(key, tuple(layer.weight.shape), layer.weight.dtype))  # torch's rule
        elif isinstance(layer, _BatchNorm | nn.GroupNorm | nn.LayerNorm):
            layer.reset_parameters()  # constants
        elif next(layer.parameters(recurse=False), None) is not None:
            kind = type(layer).__name__
            raise ConfigError(f"model layer {name!r} ({kind}) has no keyed initialisation; pass the nn.Module itself")


def _initialise_weights(layer: nn.Linear | _ConvNd, name: str, init: Init, seed: int) -> None:
    """Give a linear layer or a convolution its keyed weights."""
    fan_in, fan_out = layer.weight[0].numel(), layer.weight[:, 0].numel()
    for local, tensor in layer.named_parameters(recurse=False):
        key = rng.key(seed, "model", f"{name}.{local}")
        if init == "kaiming_normal" and local == "weight":
            tensor.copy_(rng.normal(key, tuple(tensor.shape), tensor.dtype) * math.sqrt(2 / fan_in))
            continue
        glorot = init == "glorot_uniform" and local == "weight"
        bound = math.sqrt(6 / (fan_in + fan_out)) if glorot else 1 / math.sqrt(fan_in)
        tensor.copy_((2 * rng.uniform(key, tuple(tensor.shape), tensor.dtype) - 1) * bound)
