"""Shapes of images, and for each network of the table one that it takes and that is quick."""

from __future__ import annotations

from fedskew.models.architectures import ResNet9

CIFAR, MNIST, TINY, DIGITS = (3, 32, 32), (1, 28, 28), (3, 64, 64), (1, 8, 8)
SHAPES = {
    "tfcnn": CIFAR, "lenet": CIFAR, "seolkim_cnn": CIFAR, "emnist_cnn": MNIST, "pfllib_cnn": MNIST, "resnet9": CIFAR,
}  # fmt: skip
NARROW = {"resnet9": ResNet9(width=8)}  # thirty million weights take seconds to draw
