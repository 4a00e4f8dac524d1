"""A dataset of many labels, joined from four that are easy to have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedskew.data.arrays import Dataset, build
from fedskew.data.sources.cifar import Cifar10, Cifar100
from fedskew.data.sources.images import Constants, FashionMnist, ImageOptions, Mnist

__all__ = ["Labels47"]

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601
ROWS, TEST_ROWS = 2400, 400  # of a label, as in EMNIST-balanced
SIDE = 28


@dataclass(frozen=True)
class Labels47(ImageOptions):
    """47 labels of grey 28x28 images, 2400 training and 400 test rows each: a stand-in for EMNIST-balanced.

    Labels 0 to 9 are MNIST's, 10 to 19 Fashion-MNIST's, 20 to 29 CIFAR-10's, 30 to 46 the first 17 superclasses of
    CIFAR-100 (without trees and vehicles). Of each label the first rows are taken. Colours become grey by 0.299 R +
    0.587 G + 0.114 B, and 32x32 images lose 2 pixels on each side. So labels, rows a label and size of an image are
    EMNIST-balanced's, and accuracies are not.

    References:
        LeCun et al. 1998, Gradient-Based Learning Applied to Document Recognition (Proceedings of the IEEE).
        https://doi.org/10.1109/5.726791
        Xiao, Rasul and Vollgraf 2017, Fashion-MNIST: a Novel Image Dataset. https://arxiv.org/abs/1708.07747
        Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images.
        https://www.cs.toronto.edu/~kriz/cifar.html
    """

    name: ClassVar[str] = "labels47"
    reference: ClassVar[str] = "krizhevsky2009"
    protocol: ClassVar[Constants] = ((0.1307,), (0.3081,))
    augmentations: ClassVar[tuple[str, ...]] = ("crop",)

    verify: bool = True
    """check that local files hold the published rows; false for your own files in the same format"""

    def load(self, path: str | None = None) -> Dataset:
        """Load the four datasets and join them.

        Args:
            path: Folder that holds all four; None searches $FEDSKEW_DATA, then the cache, then the hub.

        Returns:
            The dataset.

        Raises:
            ConfigError: An option breaks a rule.
            DataError: One of the four is nowhere, or a file is truncated or altered.
        """
        made: list[Any] = [kind(verify=self.verify) for kind in (Mnist, FashionMnist, Cifar10)]
        loaded = [source.load(path) for source in (*made, Cifar100(verify=self.verify, coarse=True))]
        wanted = [(data, label) for data in loaded for label in range(data.classes)][:47]
        train = [_first(data.x, data.y, label, ROWS) for data, label in wanted]
        test = [_first(data.x_test, data.y_test, label, TEST_ROWS) for data, label in wanted]
        joined = build(
            self.name, self.padded(torch.cat(train).numpy()), _numbers(train),
            self.padded(torch.cat(test).numpy()), _numbers(test), classes=len(wanted),
            label_names=[f"{data.name} {data.class_names[label]}" for data, label in wanted],
            source="; ".join(data.source for data in loaded), notes=[n for data in loaded for n in data.notes],
        )  # fmt: skip
        return self.finish(joined)


def _first(x: Tensor, y: Tensor, label: int, most: int) -> Tensor:
    """The first images of a label, grey and of 28x28 pixels, uint8 [n, 1, 28, 28]."""
    rows = x[(y == label).nonzero().flatten()[:most]]
    if rows.shape[1] == 3:
        rows = torch.einsum("nchw,c->nhw", rows.double(), torch.tensor(LUMA, dtype=torch.float64))
        rows = rows.round().to(torch.uint8).unsqueeze(1)
    edge = (rows.shape[-1] - SIDE) // 2
    return rows[..., edge : edge + SIDE, edge : edge + SIDE]


def _numbers(images: list[Tensor]) -> Any:
    """The label of every row, its place in the list, int64 [n]."""
    return torch.arange(len(images)).repeat_interleave(torch.tensor([len(rows) for rows in images])).numpy()
