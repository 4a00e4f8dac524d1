"""The parts of the networks, and the deeper networks; `fedskew.models.architectures` has the table."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedskew.errors import ConfigError, require
from fedskew.fields import AtLeast, Checked, Within, demand, later

__all__ = [
    "Architecture", "GlobalAverage", "Init", "PFLlibCNN", "PflCNN", "ResNet9", "ResNet18", "Shape", "allocate",
    "dense", "image_shape", "residual_stages", "stack", "width_after",
]  # fmt: skip

Shape = tuple[int, ...]
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

    projection: Annotated[int, AtLeast(0)] | None = later()
    """width of a projection head F -> F -> ReLU -> width in front of the classifier; 0: none; unset: as the method
    needs, 256 for MOON and none for others"""

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


# ---------------------------------------------------------------------------------------------------------------------
# Checks and bricks


def image_shape(name: str, shape: Shape) -> tuple[int, int, int]:
    """The shape (channels, height, width). Raises ConfigError for the shape of a table."""
    hint = f"model {name!r} needs images; for tables use 'logistic', 'mlp' or '2nn'"
    require(len(shape) == 3, "shape", "be (channels, height, width)", shape, hint)
    return shape[0], shape[1], shape[2]


def allocate(module: nn.Module, device: torch.device | str = "cpu", dtype: torch.dtype | None = None) -> nn.Module:
    """Give the layers of a network on the meta device memory without values, in place; the network itself.

    It does what ``to_empty`` does. That one allocates by ``torch.empty_like``, which for tensors of the meta device
    imports torch's symbolic shapes and sympy (0.7 s).

    Args:
        module: Built under ``torch.device("meta")``.
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


def width_after(name: str, layers: OrderedDict[str, nn.Module], shape: Shape) -> int:
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


def stack(**layers: nn.Module) -> OrderedDict[str, nn.Module]:
    """Named layers, in order."""
    return OrderedDict(layers)


def dense(layers: OrderedDict[str, nn.Module], widths: list[int], classes: int, bias: bool = True) -> nn.Sequential:
    """Add linear layers with ReLU and the classifier ``fc``.

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


class GlobalAverage(nn.Module):
    """Global average pool: [B, F, H, W] -> [B, F]."""

    def forward(self, x: Tensor) -> Tensor:
        """Mean over the pixels."""
        return x.mean((2, 3))


# ---------------------------------------------------------------------------------------------------------------------
# ResNet-18


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut: [B, before, H, W] -> [B, after, H/stride, W/stride]."""

    def __init__(
        self, before: int, after: int, stride: int, norm_of: Callable[[int], nn.Module], shortcut: nn.Module
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = norm_of(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = norm_of(after)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Add the shortcut to what the convolutions give."""
        out = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(out + self.shortcut(x))


def residual_stages(
    layers: OrderedDict[str, nn.Module],
    widths: Sequence[int],
    blocks: int,
    norm_of: Callable[[int], nn.Module],
    shortcut_of: Callable[[int, int, int], nn.Module],
) -> None:
    """Add stages of basic blocks, of which all but the first halve the image, and the global average.

    Args:
        layers: Layers that come before, which give ``widths[0]`` channels.
        widths: Channels of each stage.
        blocks: Number of blocks in each stage.
        norm_of: The normalisation for a number of channels.
        shortcut_of: The shortcut for channels before and after, and the stride, where they differ.
    """
    before = widths[0]
    for stage, after in enumerate(widths, start=1):
        for block in range(1, blocks + 1):
            stride = 2 if stage > 1 and block == 1 else 1
            shortcut = shortcut_of(before, after, stride) if stride > 1 or before != after else nn.Identity()
            layers[f"stage{stage}_block{block}"] = BasicBlock(before, after, stride, norm_of, shortcut)
            before = after
    layers["pool"] = GlobalAverage()


@dataclass(frozen=True)
class ResNet18(Architecture):
    """ResNet-18: 11173962 parameters for ten classes of colour images, 11181642 with ImageNet's stem.

    Channels 64-128-256-512, two blocks each, option-B shortcuts, Kaiming-normal weights, global average pool.

    References:
        He et al. 2016, Deep Residual Learning for Image Recognition (CVPR). https://arxiv.org/abs/1512.03385
    """

    name: ClassVar[str] = "resnet18"
    init: ClassVar[Init] = "kaiming_normal"
    stem: Literal["cifar", "imagenet"] = "cifar"
    """first layers: cifar: one 3x3 convolution, for images of 32x32 or 64x64; imagenet: the paper's 7x7 convolution of
    stride 2 and a max pool, which reduce each side to a quarter"""
    norm: Literal["batch", "group"] = "batch"
    """normalisation: batch as in the paper, or group, which has no running statistics to average"""
    groups: Annotated[int, AtLeast(1)] = 32
    """groups of the group normalisation; divides 64"""

    def __post_init__(self) -> None:
        super().__post_init__()
        demand(self, "groups", 64 % self.groups == 0, "divide 64")

    def norm_of(self, channels: int) -> nn.Module:
        """The normalisation layer for a number of channels."""
        return nn.BatchNorm2d(channels) if self.norm == "batch" else nn.GroupNorm(self.groups, channels)

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Stem -> eight blocks -> average -> classifier."""
        layers = self._stem(image_shape(self.name, shape)[0])

        def shortcut_of(before: int, after: int, stride: int) -> nn.Module:
            projection = nn.Conv2d(before, after, 1, stride, bias=False)
            return nn.Sequential(stack(conv=projection, norm=self.norm_of(after)))

        residual_stages(layers, (64, 128, 256, 512), 2, self.norm_of, shortcut_of)
        return dense(layers, [512], classes)

    def _stem(self, channels: int) -> OrderedDict[str, nn.Module]:
        """The first layers."""
        if self.stem == "cifar":
            return stack(conv1=nn.Conv2d(channels, 64, 3, 1, 1, bias=False), norm1=self.norm_of(64), relu1=nn.ReLU())
        wide = stack(conv1=nn.Conv2d(channels, 64, 7, 2, 3, bias=False), norm1=self.norm_of(64), relu1=nn.ReLU())
        return wide | stack(pool1=nn.MaxPool2d(3, 2, 1))


# ---------------------------------------------------------------------------------------------------------------------
# ResNet-9


def _unit(before: int, after: int, pool: bool = False) -> nn.Sequential:
    """3x3 convolution -> BatchNorm -> ReLU (-> pool): [B, before, H, W] -> [B, after, H, W], halved by the pool."""
    layers = stack(conv=nn.Conv2d(before, after, 3, padding=1), norm=nn.BatchNorm2d(after), relu=nn.ReLU())
    return nn.Sequential(layers | stack(pool=nn.MaxPool2d(2)) if pool else layers)


class _Residual(nn.Module):
    """x plus two units of x, without activation after the sum; the shape [B, F, H, W] stays."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.unit1, self.unit2 = _unit(channels, channels), _unit(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.unit2(self.unit1(x))
        return out


@dataclass(frozen=True)
class ResNet9(Architecture):
    """FedLA's CIFAR-100 network as in the authors' code, a longer ResNet-9: 30441528 parameters for 100 classes.

    Its eleven 3x3 convolutions have a bias although BatchNorm follows. Images need 32 pixels a side: five pools halve
    them.
    """

    name: ClassVar[str] = "resnet9"
    width: Annotated[int, AtLeast(1)] = 1028
    """channels of the last three convolutions: 1028 as in the authors' code, which may mean 1024"""

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """64, 128 + pool, residual, 256 + pool, 512 + pool, residual, 1028 + pool, residual, pool, classifier."""
        layers = stack(
            unit1=_unit(image_shape(self.name, shape)[0], 64), unit2=_unit(64, 128, pool=True),
            residual1=_Residual(128),
            unit3=_unit(128, 256, pool=True), unit4=_unit(256, 512, pool=True),
            residual2=_Residual(512),
            unit5=_unit(512, self.width, pool=True),
            residual3=_Residual(self.width),
            pool=nn.MaxPool2d(2), flatten=nn.Flatten(),
        )  # fmt: skip
        return dense(layers, [width_after(self.name, layers, shape)], classes)


# ---------------------------------------------------------------------------------------------------------------------
# The networks of two libraries, for comparisons with them


@dataclass(frozen=True)
class PflCNN(Architecture):
    """pfl-research's simple_cnn: 1626442 parameters for CIFAR-10, 1206590 for FEMNIST (28x28, 62 classes).

    It follows benchmarks/model/pytorch/cnn.py of that library: unpadded convolutions, Glorot-uniform weights as in its
    TensorFlow version, biases by torch's rule. That library has the channels last; here they are first, with the same
    result.
    """

    name: ClassVar[str] = "pfl_cnn"
    init: ClassVar[Init] = "glorot_uniform"
    dropout_conv: Annotated[float, Within(0, 1, "[)")] = 0.25
    """probability of the dropout after the convolutions"""
    dropout: Annotated[float, Within(0, 1, "[)")] = 0.5
    """probability of the dropout of hidden units"""

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """3x3 convolutions of 32 and 64 -> pool -> dropout -> 128 -> ReLU -> dropout -> classifier."""
        layers = stack(
            conv1=nn.Conv2d(image_shape(self.name, shape)[0], 32, 3), relu1=nn.ReLU(),
            conv2=nn.Conv2d(32, 64, 3), relu2=nn.ReLU(),
            pool=nn.MaxPool2d(2), drop1=nn.Dropout(self.dropout_conv), flatten=nn.Flatten(),
        )  # fmt: skip
        width = width_after(self.name, layers, shape)
        layers |= stack(hidden1=nn.Linear(width, 128), hidden1_relu=nn.ReLU(), drop2=nn.Dropout(self.dropout))
        return dense(layers, [128], classes)


@dataclass(frozen=True)
class PFLlibCNN(Architecture):
    """PFLlib's FedAvgCNN, an unpadded version of McMahan et al. 2017: 582026 parameters for MNIST, 878538 for CIFAR-10.

    The classifier's trunk has 1024 features for 28x28 images and 1600 for 32x32.
    """

    name: ClassVar[str] = "pfllib_cnn"
    hidden: Annotated[int, AtLeast(1)] = 512
    """width of the hidden layer"""

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """(5x5 convolution -> ReLU -> pool) with 32 and 64 channels, hidden -> ReLU, classifier."""
        layers = stack(
            conv1=nn.Conv2d(image_shape(self.name, shape)[0], 32, 5), relu1=nn.ReLU(), pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(32, 64, 5), relu2=nn.ReLU(), pool2=nn.MaxPool2d(2), flatten=nn.Flatten(),
        )  # fmt: skip
        return dense(layers, [width_after(self.name, layers, shape), self.hidden], classes)
