"""The networks of the papers, as options that build them, and the table `MODELS`.

A shape has the channels first and no batch axis: (C, H, W) for images, (F,) for tables. Every network returns logits
[B, classes] and names its classifier `fc`. Numbers of parameters:

    logistic    784->10                          Seol-Kim, MNIST              7850
    mlp         784->128->10                     FedGA, MNIST               101770
    2nn         784->200->200->10                McMahan et al. 2017        199210
    lenet       two 5x5 convolutions             FedGA, CIFAR-10, SVHN       62006
    convnet     three 3x3 convolutions           FedBal                     482506 (C=10), 3811876 (C=100)
    tfcnn       three 3x3 convolutions           FedGR                       66560 (code), 122570 (tutorial)
    seolkim_cnn two wide 5x5 convolutions        Seol-Kim, CIFAR-10        1514826 (pools=2), 7363914 (pools=1)
    emnist_cnn  two 5x5 convolutions, dropout    FedLA, EMNIST               23727
    resnet9     eleven 3x3 convolutions          FedLA, CIFAR-100         30441528
    resnet18    He et al. 2016, option B         FedBal, CIFAR-10         11173962 (stem cifar), 11181642 (imagenet)
    resnet20    He et al. 2016, option A         FedGA, CIFAR-100           275572 (C=100), 282072 (C=200)

and of two libraries, for comparisons with them:

    pfl_cnn     two 3x3 convolutions, dropout    pfl-research, CIFAR-10    1626442
    pfllib_cnn  two 5x5 convolutions             PFLlib, MNIST              582026

and for tokens, the next character of LEAF's Shakespeare:

    char_lstm        embedding 8, LSTM 64        LEAF, smaller               24528 (layers=2, hidden=256: 817872)
    char_transformer width 32, two blocks                                    33232

Initial weights are keyed by (seed, parameter name). No generator is used, and two networks that differ only in the
number of classes start from the same weights below the classifier.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedskew.errors import ConfigError, require, unknown
from fedskew.fields import AtLeast, Within, demand, omit_if_default
from fedskew.models import networks
from fedskew.models.networks import Architecture, Init, Layers, Shape, dense, image_shape, stack, width_after
from fedskew.models.pretrained import HF
from fedskew.models.projection import insert, projected
from fedskew.models.sequences import CharLSTM, CharTransformer
from fedskew.types import Width

__all__ = [
    "MLP", "MODELS", "TFCNN", "Architecture", "CharLSTM", "CharTransformer", "ConvNet", "EmnistCNN", "LeNet",
    "Logistic", "PFLlibCNN", "PflCNN", "ResNet9", "ResNet18", "ResNet20", "SeolKimCNN", "TwoNN", "architecture",
    "build",
]  # fmt: skip

# ---------------------------------------------------------------------------------------------------------------------
# Dense networks: any shape, flattened


@dataclass(frozen=True)
class Logistic(Architecture):
    """Multinomial logistic regression: 784->10, 7850 parameters on MNIST (Seol and Kim 2023)."""

    name: ClassVar[str] = "logistic"

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Flatten -> linear."""
        return dense(stack(flatten=nn.Flatten()), [math.prod(shape)], classes)


@dataclass(frozen=True)
class MLP(Architecture):
    """One hidden layer, or several: 784->128->10, 101770 parameters on MNIST (FedGA)."""

    name: ClassVar[str] = "mlp"
    hidden: Annotated[int, AtLeast(1)] = 128
    """width of the hidden layer"""
    further: tuple[Annotated[int, AtLeast(1)], ...] = omit_if_default(default=())
    """widths of the hidden layers after it"""

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Flatten -> hidden -> ReLU -> linear."""
        return dense(stack(flatten=nn.Flatten()), [math.prod(shape), self.hidden, *self.further], classes)


@dataclass(frozen=True)
class TwoNN(Architecture):
    """Two hidden layers: 784->200->200->10, 199210 parameters on MNIST ("2NN").

    References:
        McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data (AISTATS).
        https://arxiv.org/abs/1602.05629
    """

    name: ClassVar[str] = "2nn"
    hidden: Annotated[int, AtLeast(1)] = 200
    """width of both hidden layers"""

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Flatten -> hidden -> ReLU -> hidden -> ReLU -> linear."""
        return dense(stack(flatten=nn.Flatten()), [math.prod(shape), self.hidden, self.hidden], classes)


# ---------------------------------------------------------------------------------------------------------------------
# Convolutional networks: (channels, height, width)


@dataclass(frozen=True)
class LeNet(Architecture):
    """LeNet as in FedGA's code: 62006 parameters on CIFAR-10.

    References:
        LeCun et al. 1998, Gradient-Based Learning Applied to Document Recognition (Proceedings of the IEEE).
        https://doi.org/10.1109/5.726791
    """

    name: ClassVar[str] = "lenet"

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """(5x5 convolution -> ReLU -> pool) with 6 and 16 channels, then 120, 84 and the classifier."""
        channels = image_shape(self.name, shape)[0]
        trunk = stack(
            conv1=nn.Conv2d(channels, 6, 5), relu1=nn.ReLU(), pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(6, 16, 5), relu2=nn.ReLU(), pool2=nn.MaxPool2d(2), flatten=nn.Flatten(),
        )  # fmt: skip
        return dense(trunk, [width_after(self.name, trunk, shape), 120, 84], classes)


@dataclass(frozen=True)
class ConvNet(Architecture):
    """FedBal's ConvNet (appendix, table 7): 482506 parameters on CIFAR-10, 3811876 on CIFAR-100."""

    name: ClassVar[str] = "convnet"

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Three 3x3 convolutions (64, 64, 128), one padded pool 32x32 -> 17x17, and the classifier."""
        channels = image_shape(self.name, shape)[0]
        trunk = stack(
            conv1=nn.Conv2d(channels, 64, 3, padding=1), relu1=nn.ReLU(),
            conv2=nn.Conv2d(64, 64, 3, padding=1), relu2=nn.ReLU(),
            conv3=nn.Conv2d(64, 128, 3, padding=1), relu3=nn.ReLU(),
            # note: kernel 2 with padding 1 is what yields the paper's 36992 features
            pool=nn.MaxPool2d(2, 2, 1), flatten=nn.Flatten(),
        )  # fmt: skip
        return dense(trunk, [width_after(self.name, trunk, shape)], classes)


@dataclass(frozen=True)
class TFCNN(Architecture):
    """FedGR's TFCNN: 66560 (code) or 122570 (tutorial) parameters for ten classes of 32x32 colour images.

    28x28 images are padded to 32x32 inside the network, because neither form is defined for them.
    """

    name: ClassVar[str] = "tfcnn"
    form: Literal["code", "tutorial"] = "code"
    """code: padded convolutions and one bias-free linear layer, as in the authors' code; tutorial: the network that
    they cite, with valid convolutions, a dense layer of 64 units and biases"""

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """(3x3 convolution -> ReLU -> pool) with 32, 64 and 64 channels; the tutorial drops the last pool."""
        channels, height, width = image_shape(self.name, shape)
        code = self.form == "code"
        pad = int(code)
        trunk = stack(pad=nn.ZeroPad2d(2)) if (height, width) == (28, 28) else stack()
        trunk |= stack(
            conv1=nn.Conv2d(channels, 32, 3, padding=pad), relu1=nn.ReLU(), pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(32, 64, 3, padding=pad), relu2=nn.ReLU(), pool2=nn.MaxPool2d(2),
            conv3=nn.Conv2d(64, 64, 3, padding=pad), relu3=nn.ReLU(),
        )  # fmt: skip
        trunk |= stack(pool3=nn.MaxPool2d(2), flatten=nn.Flatten()) if code else stack(flatten=nn.Flatten())
        features = width_after(self.name, trunk, shape)
        return dense(trunk, [features] if code else [features, 64], classes, bias=not code)


@dataclass(frozen=True)
class SeolKimCNN(Architecture):
    """Seol and Kim's CIFAR-10 network: 5x5 convolutions of 64 and 128 filters, then 384, 192 and the classifier.

    The text lists one max pool (`pools=1`, 7363914 parameters on CIFAR-10). Pooling after each convolution
    (`pools=2`, 1514826 parameters) gives the smaller network and stays the default, which says nothing about what the
    authors ran. Records and titles name the reading. The paper does not state padding, ReLU and the dense widths.

    References:
        Seol and Kim 2023, Performance Enhancement in Federated Learning by Reducing Class Imbalance of Non-IID Data
        (Sensors 23(3):1152). https://doi.org/10.3390/s23031152
    """

    name: ClassVar[str] = "seolkim_cnn"
    pools: Literal[1, 2] = 2
    """number of max pools: 1 as in the text; 2: one after each convolution"""

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Convolution -> ReLU (-> pool), convolution -> ReLU -> pool, then the dense layers."""
        channels = image_shape(self.name, shape)[0]
        trunk = stack(conv1=nn.Conv2d(channels, 64, 5), relu1=nn.ReLU())
        trunk |= stack(pool1=nn.MaxPool2d(2)) if self.pools == 2 else stack()
        trunk |= stack(conv2=nn.Conv2d(64, 128, 5), relu2=nn.ReLU(), pool2=nn.MaxPool2d(2), flatten=nn.Flatten())
        return dense(trunk, [width_after(self.name, trunk, shape), 384, 192], classes)


@dataclass(frozen=True)
class EmnistCNN(Architecture):
    """FedLA's EMNIST network as in the authors' code: 23727 parameters for 47 classes.

    Their log-softmax is left out: cross-entropy of log-softmax outputs equals cross-entropy of the logits.
    """

    name: ClassVar[str] = "emnist_cnn"
    dropout: Annotated[float, Within(0, 1, "[)")] = 0.5
    """probability of both dropouts: of whole channels after the second convolution, and of hidden units"""

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Convolution -> pool -> ReLU, convolution -> dropout2d -> pool -> ReLU, 50 -> ReLU -> dropout, classifier."""
        channels = image_shape(self.name, shape)[0]
        layers = stack(
            conv1=nn.Conv2d(channels, 10, 5), pool1=nn.MaxPool2d(2), relu1=nn.ReLU(),
            conv2=nn.Conv2d(10, 20, 5), drop2=nn.Dropout2d(self.dropout), pool2=nn.MaxPool2d(2), relu2=nn.ReLU(),
            flatten=nn.Flatten(),
        )  # fmt: skip
        width = width_after(self.name, layers, shape)
        layers |= stack(hidden1=nn.Linear(width, 50), hidden1_relu=nn.ReLU(), drop3=nn.Dropout(self.dropout))
        return dense(layers, [50], classes)


# ---------------------------------------------------------------------------------------------------------------------
# ResNet-18


class GlobalAverage(nn.Module):
    """Global average pool: [B, F, H, W] -> [B, F]."""

    def forward(self, x: Tensor) -> Tensor:
        """Mean over the pixels."""
        return x.mean((2, 3))


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


class Residual(Architecture):
    """Base of the residual networks: their normalisation."""

    init: ClassVar[Init] = "kaiming_normal"
    widths: ClassVar[tuple[int, ...]]  # channels of each stage
    norm: str
    groups: int

    def __post_init__(self) -> None:
        super().__post_init__()
        demand(self, "groups", self.widths[0] % self.groups == 0, f"divide {self.widths[0]}")

    def norm_of(self, channels: int) -> nn.Module:
        """The normalisation layer for a number of channels."""
        return nn.BatchNorm2d(channels) if self.norm == "batch" else nn.GroupNorm(self.groups, channels)

    def add_stages(self, layers: Layers, blocks: int, shortcut_of: Callable[[int, int, int], nn.Module]) -> None:
        """Add stages of basic blocks, of which all but the first halve the image, and the global average.

        Args:
            layers: Layers that come before.
            blocks: Number of blocks in each stage.
            shortcut_of: The shortcut for channels before and after, and the stride, where they differ.
        """
        before = self.widths[0]
        for stage, after in enumerate(self.widths, start=1):
            for block in range(1, blocks + 1):
                stride = 2 if stage > 1 and block == 1 else 1
                shortcut = shortcut_of(before, after, stride) if stride > 1 or before != after else nn.Identity()
                layers[f"stage{stage}_block{block}"] = BasicBlock(before, after, stride, self.norm_of, shortcut)
                before = after
        layers["pool"] = GlobalAverage()


@dataclass(frozen=True)
class ResNet18(Residual):
    """ResNet-18: 11173962 parameters for ten classes of colour images, 11181642 with ImageNet's stem.

    Channels 64-128-256-512, two blocks each, option-B shortcuts, Kaiming-normal weights, global average pool.

    References:
        He et al. 2016, Deep Residual Learning for Image Recognition (CVPR). https://arxiv.org/abs/1512.03385
    """

    name: ClassVar[str] = "resnet18"
    widths: ClassVar[tuple[int, ...]] = (64, 128, 256, 512)
    stem: Literal["cifar", "imagenet"] = "cifar"
    """first layers: cifar: one 3x3 convolution, for images of 32x32 or 64x64; imagenet: the paper's 7x7 convolution of
    stride 2 and a max pool, which reduce each side to a quarter"""
    norm: Literal["batch", "group"] = "batch"
    """normalisation: batch as in the paper, or group, which has no running statistics to average"""
    groups: Annotated[int, AtLeast(1)] = 32
    """groups of the group normalisation; divides 64"""

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Stem -> eight blocks -> average -> classifier."""
        layers = self._stem(image_shape(self.name, shape)[0])

        def shortcut_of(before: int, after: int, stride: int) -> nn.Module:
            projection = nn.Conv2d(before, after, 1, stride, bias=False)
            return nn.Sequential(stack(conv=projection, norm=self.norm_of(after)))

        self.add_stages(layers, 2, shortcut_of)
        return dense(layers, [self.widths[-1]], classes)

    def _stem(self, channels: int) -> Layers:
        """The first layers."""
        if self.stem == "cifar":
            return stack(conv1=nn.Conv2d(channels, 64, 3, 1, 1, bias=False), norm1=self.norm_of(64), relu1=nn.ReLU())
        wide = stack(conv1=nn.Conv2d(channels, 64, 7, 2, 3, bias=False), norm1=self.norm_of(64), relu1=nn.ReLU())
        return wide | stack(pool1=nn.MaxPool2d(3, 2, 1))


# ---------------------------------------------------------------------------------------------------------------------
# ResNet-20


class _Padded(nn.Module):
    """The option-A shortcut: every second pixel, zeros for the new channels."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.stride, self.grow = stride, (after - before) // 2

    def forward(self, x: Tensor) -> Tensor:  # [B, before, H, W] -> [B, after, H/stride, W/stride]
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.grow, self.grow))


@dataclass(frozen=True)
class ResNet20(Residual):
    """ResNet-20 for small images, as FedGA runs it: 275572 parameters for 100 classes, 282072 for 200.

    Channels 16-32-64, three blocks each, option-A shortcuts, Kaiming-normal weights, global average pool.

    References:
        He et al. 2016, Deep Residual Learning for Image Recognition (CVPR). https://arxiv.org/abs/1512.03385
    """

    name: ClassVar[str] = "resnet20"
    widths: ClassVar[tuple[int, ...]] = (16, 32, 64)
    norm: Literal["batch", "group"] = "batch"
    """normalisation: batch as in the paper, or group, which has no running statistics to average"""
    groups: Annotated[int, AtLeast(1)] = 8
    """groups of the group normalisation; divides 16"""

    def build(self, shape: Shape, classes: int) -> nn.Module:
        """Convolution -> norm -> ReLU -> nine blocks -> average -> classifier."""
        channels = image_shape(self.name, shape)[0]
        layers = stack(conv1=nn.Conv2d(channels, 16, 3, 1, 1, bias=False), norm1=self.norm_of(16), relu1=nn.ReLU())
        self.add_stages(layers, 3, _Padded)
        return dense(layers, [64], classes)


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


MODELS: dict[str, type[Architecture]] = {
    network.name: network
    for network in (
        Logistic, MLP, TwoNN, LeNet, ConvNet, TFCNN, SeolKimCNN, EmnistCNN, ResNet9, ResNet18, ResNet20, PflCNN,
        PFLlibCNN, CharLSTM, CharTransformer, HF,
    )
}  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Building with keyed weights


def build(model: str | Architecture, shape: Shape, classes: int, seed: int) -> nn.Module:
    """Build a network with initial weights keyed by (seed, parameter name).

    Weights and biases are uniform in +-1/sqrt(fan_in), torch's rule for linear layers and convolutions. Where the
    architecture says so, weights are normal with variance 2/fan_in (He et al. 2015) or uniform in +-sqrt(6/(fan_in +
    fan_out)) (Glorot and Bengio 2010). No generator is used.

    Args:
        model: A name of `MODELS`, or an architecture such as `MLP(hidden=64)`.
        shape: Shape of one sample: (channels, height, width) or (features,).
        classes: Number of classes, at least 2.
        seed: Seed of the weights.

    Returns:
        The network, on the CPU.

    Raises:
        ConfigError: The name is unknown, the network cannot take the shape, or there are fewer than two classes.

    Example:
        >>> from fedskew.models import build
        >>> network = build("logistic", shape=(1, 8, 8), classes=10, seed=0)
        >>> {name: tuple(p.shape) for name, p in network.named_parameters()}
        {'fc.weight': (10, 64), 'fc.bias': (10,)}
        >>> (build("logistic", (64,), 10, seed=0).fc.weight == network.fc.weight).all().item()
        True
    """
    model = architecture(model)
    shape = tuple(shape)
    require(len(shape) >= 1 and min(shape) >= 1, "shape", "hold positive sizes", shape)
    require(classes >= 2, "classes", "be at least 2", classes)
    network = model.made(shape, classes, seed)
    if network is not None:
        return projected(network, model.head, model.projection, seed)[0] if model.projection else network
    with torch.device("meta"):  # torch's own initialisation would draw from the global generator
        module = model.build(shape, classes)
        if model.projection:
            module = insert(module, model.head, model.projection)
    networks.initialise(networks.allocate(module), model.init, seed)
    return module


def architecture(model: str | Architecture, projection: Width = 0) -> Architecture:
    """The architecture of a name, or itself, with its projection head settled.

    Args:
        model: A name of `MODELS`, or an architecture.
        projection: Width of the projection head, or linear, where the architecture leaves it open.

    Raises:
        ConfigError: The name is unknown, or `model` is neither.

    Example:
        >>> architecture("mlp", projection=256).projection, architecture(MLP(projection=0), 256).projection
        (256, 0)
    """
    if isinstance(model, str):
        if model not in MODELS:
            raise unknown("model", model, MODELS)
        model = MODELS[model]()
    named = f"the class {model.__name__}; use {model.__name__}(...)" if isinstance(model, type) else repr(model)
    if not isinstance(model, Architecture):
        raise ConfigError(f"model must be a name, an Architecture or an nn.Module; got {named}")
    return replace(model, projection=projection) if model.projection is None and projection else model
