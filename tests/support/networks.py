"""Shapes of images, and for each network of the table one that it takes and that is quick."""

from __future__ import annotations

from fedskew.models.architectures import MODELS, ResNet9, ResNet18


class NarrowResNet18(ResNet18):
    """All of its layers, with a twentieth of its weights."""

    widths = (64, 64, 64, 64)


CIFAR, MNIST, TINY, DIGITS = (3, 32, 32), (1, 28, 28), (3, 64, 64), (1, 8, 8)
SHAPES = {
    "char_lstm": (8,), "char_transformer": (8,),
    "tfcnn": CIFAR, "lenet": CIFAR, "seolkim_cnn": CIFAR, "emnist_cnn": MNIST, "pfllib_cnn": MNIST, "resnet9": CIFAR,
}  # fmt: skip
BUILT = [name for name in MODELS if name != "hf"]  # without a folder
TOKENS = ("char_lstm", "char_transformer")  # they read whole numbers 0..79
NARROW = {"resnet9": ResNet9(width=8), "resnet18": NarrowResNet18()}  # millions of weights take seconds to draw
